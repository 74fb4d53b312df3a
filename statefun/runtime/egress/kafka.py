# SPDX-License-Identifier: Apache-2.0
"""Producing the records of one batch to one Kafka egress, at least once."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer

from statefun.runtime.effects import EgressRecord
from statefun.runtime.kafka_client import connect
from statefun.sdk.errors import KafkaError, TopicError
from statefun.spec.model import DeliverySemantic, KafkaEgress

logger = logging.getLogger("statefun.egress")

_POLL = timedelta(milliseconds=500)
_PATIENCE = timedelta(seconds=10)
"""Waiting for longer than this is worth a word to whoever watches."""


class UndeliveredError(Exception):
    """Some records of a batch were not confirmed; all of it has to be published again."""


class KafkaPublisher:
    """A producer for one egress; made anew after anything that it could not deliver."""

    def __init__(self, egress: KafkaEgress) -> None:
        self.egress = egress
        self._refused: ClientError | None = None
        self._refused_topic = ""
        self._patience = _PATIENCE
        properties: dict[str, Any] = {
            # In order and without duplicates by the producer's own retries.
            "enable.idempotence": True,
            # Where Java's default partitioner puts the same keys.
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            # The outbox, not a time limit, decides how long a record is kept for.
            "message.timeout.ms": 0,
            "queue.buffering.max.messages": 200_000,
            **egress.properties,
            "bootstrap.servers": egress.address,
            "delivery.report.only.error": True,
        }
        self._producer = connect(Producer, f"egress {egress.id}", properties)

    def produce(self, record: EgressRecord, stop: threading.Event) -> None:
        """Hand ``record`` to the producer, behind those before it.

        Raises:
            KafkaError: if the cluster refuses a record for good: naming egress and topic.
            UndeliveredError: if told to stop while the producer's queue is full.
        """
        while True:
            try:
                self._producer.produce(
                    record.topic, record.value, record.key, on_delivery=self._on_delivery
                )
            except BufferError:
                self._wait(stop)
            except KafkaException as error:
                self._refused, self._refused_topic = error.args[0], record.topic
                self._check()
            else:
                return

    def confirm(self, stop: threading.Event) -> None:
        """Wait until the cluster has everything; with the semantic ``none``, do not wait.

        Raises:
            KafkaError: if the cluster refuses a record for good: naming egress and topic.
            UndeliveredError: if told to stop before everything was confirmed.
        """
        if self.egress.delivery_semantic is DeliverySemantic.NONE:
            self._producer.poll(0)
            return
        while self._producer.flush(_POLL.total_seconds()) > 0:
            self._wait(stop)
        self._check()
        self._patience = _PATIENCE

    def _wait(self, stop: threading.Event) -> None:
        self._producer.poll(_POLL.total_seconds())
        self._check()
        self._patience -= _POLL
        if not self._patience:
            logger.warning(
                "egress %s: %s takes no records; they are kept, and tried until it does",
                self.egress.id,
                self.egress.address,
            )
        if stop.is_set():
            raise UndeliveredError

    def _on_delivery(self, error: ClientError | None, message: Message) -> None:
        if error is not None:
            self._refused, self._refused_topic = error, message.topic() or ""

    def _check(self) -> None:
        if self._refused is None:
            return
        code, text = self._refused.code(), self._refused.str()
        where = f"egress {self.egress.id}, topic {self._refused_topic} at {self.egress.address}"
        if code in {ClientError._UNKNOWN_TOPIC, ClientError.UNKNOWN_TOPIC_OR_PART}:  # noqa: SLF001 - how the client names its own codes
            raise TopicError(
                f"{where}: the topic does not exist; create it and start again: the records are "
                "kept in the outbox until then"
            )
        raise KafkaError(f"{where}: the record was refused: {text}; it is kept in the outbox")
