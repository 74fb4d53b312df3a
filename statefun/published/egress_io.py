# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.egress_io`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from statefun import kafka_egress_message, kinesis_egress_message
from statefun.published import warn_of_move

__all__ = ["kafka_egress_message", "kinesis_egress_message"]

warn_of_move(__name__)
