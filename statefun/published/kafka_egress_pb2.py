# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.kafka_egress_pb2`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from statefun.protocol.kafka_egress_pb2 import KafkaProducerRecord
from statefun.published import warn_of_move

__all__ = ["KafkaProducerRecord"]

warn_of_move(__name__, "statefun.protocol.kafka_egress_pb2")
