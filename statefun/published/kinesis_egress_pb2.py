# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.kinesis_egress_pb2`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from statefun.protocol.kinesis_egress_pb2 import KinesisEgressRecord
from statefun.published import warn_of_move

__all__ = ["KinesisEgressRecord"]

warn_of_move(__name__, "statefun.protocol.kinesis_egress_pb2")
