# SPDX-License-Identifier: Apache-2.0
"""What development and tests need around statefun: a real Kafka broker on this machine."""

from statefun.dev.kafka import EmbeddedKafka

__all__ = ["EmbeddedKafka"]
