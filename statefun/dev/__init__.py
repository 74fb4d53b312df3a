# SPDX-License-Identifier: Apache-2.0
"""What development and tests need around statefun: a real Kafka broker on this machine."""

from statefun.dev.kafka import EmbeddedKafka
from statefun.dev.records import DevRecord, read_records, send_record

__all__ = ["DevRecord", "EmbeddedKafka", "read_records", "send_record"]
