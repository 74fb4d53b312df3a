# SPDX-License-Identifier: Apache-2.0
"""Writes records to Kafka without waiting for confirmations."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message

from statefun.engine.sinks import EgressRecord
from statefun.module.model import KafkaEgress
from statefun.runtime.egress.lane import UncertainError
from statefun.runtime.egress.marker import Marker
from statefun.runtime.egress.patience import Patience, RecordCounter
from statefun.runtime.egress.produced import other_arguments
from statefun.runtime.egress.producers import AtLeastOnce, ShouldStop
from statefun.runtime.egress.refusals import Refusals
from statefun.runtime.kafka.client import reason_of

_LAST_RECORDS_PATIENCE = timedelta(seconds=5)
"""How long an egress with ``deliverySemantic`` none may take to send its last records at the end of a run."""


class Unconfirmed(AtLeastOnce):
    """A connection that does not wait for confirmations: records that the cluster does not store are lost."""

    def __init__(
        self,
        egress: KafkaEgress,
        should_stop: ShouldStop,
        patience: Patience,
        losses: RecordCounter,
    ) -> None:
        super().__init__(
            egress, should_stop, patience, Refusals(egress), **{"message.timeout.ms": None}
        )
        self._losses = losses

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:  # noqa: ARG002 - there is nowhere to write it
        """Give ``records`` to the producer, without waiting for answers.

        Raises:
            UncertainError: if the producer has failed for good, or has written to very many topics; then the lane makes
                another producer.
        """
        # Else, records with answers that nobody has read would count as waiting.
        self._serve(self._producer.poll, timedelta())
        self._check_producer(records)
        for record in records:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    on_delivery=self._on_loss,
                    **other_arguments(record),
                )
            except BufferError:
                self._losses.add(record.topic, "the queue is full")
            except KafkaException as error:
                reason = reason_of(error)
                if reason.code() == ClientError._FATAL:  # noqa: SLF001 - as above
                    raise UncertainError(reason.str()) from error
                self._losses.add(record.topic, reason.str())
        self._serve(self._producer.poll, timedelta())
        self._patience.end()

    def close(self) -> None:
        """Wait a few seconds for the last answers, and log the number of lost records."""
        with contextlib.suppress(UncertainError):
            self._serve(self._producer.flush, _LAST_RECORDS_PATIENCE)
        super().close()
        self._losses.log_remaining()

    def _on_loss(self, error: ClientError | None, message: Message) -> None:
        if error is not None:
            self._losses.add(message.topic() or "", error.str())
