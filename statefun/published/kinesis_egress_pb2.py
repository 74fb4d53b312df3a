# SPDX-License-Identifier: Apache-2.0
"""``statefun.kinesis_egress_pb2`` of the published package."""

from __future__ import annotations

from statefun.protocol.kinesis_egress_pb2 import KinesisEgressRecord
from statefun.published import warn_of_move

__all__ = ["KinesisEgressRecord"]

warn_of_move(__name__, "statefun.protocol.kinesis_egress_pb2")
