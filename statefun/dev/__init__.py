# SPDX-License-Identifier: Apache-2.0
"""A real Kafka broker on this machine, for development and tests."""

from statefun.dev.kafka import EmbeddedKafka
from statefun.dev.records import DevRecord, read_records, send_record

__all__ = ["DevRecord", "EmbeddedKafka", "read_records", "send_record"]
