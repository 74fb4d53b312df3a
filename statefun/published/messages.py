# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.messages`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from statefun import EgressMessage, Message, egress_message_builder, message_builder
from statefun.published import warn_of_move

__all__ = ["EgressMessage", "Message", "egress_message_builder", "message_builder"]

warn_of_move(__name__)
