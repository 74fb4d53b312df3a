# SPDX-License-Identifier: Apache-2.0
"""``statefun.messages`` of the published package."""

from __future__ import annotations

from statefun import EgressMessage, Message, egress_message_builder, message_builder
from statefun.published import warn_of_move

__all__ = ["EgressMessage", "Message", "egress_message_builder", "message_builder"]

warn_of_move(__name__)
