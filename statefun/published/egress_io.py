# SPDX-License-Identifier: Apache-2.0
"""``statefun.egress_io`` of the published package."""

from __future__ import annotations

from statefun import kafka_egress_message, kinesis_egress_message
from statefun.published import warn_of_move

__all__ = ["kafka_egress_message", "kinesis_egress_message"]

warn_of_move(__name__)
