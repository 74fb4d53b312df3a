# SPDX-License-Identifier: Apache-2.0
"""Handles records that a cluster refuses for good, so that one such record does not stop all others.

By the egress's policy, ``onRefused``, a refused record stops the application, becomes a dead
letter, or is skipped. The policy applies only to records that are certainly refused:

- A broker refuses whole batches of a producer. The records of such a batch are sent again, each in
  a separate batch, before one of them counts as refused.
- A topic or partition counts as missing only if the cluster's metadata lack it, too.
- A refused dead letter stops the application: no other topic can take it.

Records that a lane writes at once have numbers, which distinguish equal records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from confluent_kafka import KafkaError as ClientError

from statefun.engine.letters import DeadLetterTopic, Original
from statefun.engine.sinks import EgressRecord
from statefun.module.model import KafkaEgress
from statefun.runtime.egress.lane import UncertainError
from statefun.runtime.egress.marker import Marker
from statefun.runtime.egress.patience import RecordCounter
from statefun.runtime.egress.progress_topic import PROGRESS_PREFIX
from statefun.runtime.kafka.client import admin_for, cluster_metadata
from statefun.runtime.kafka.refusal_codes import OF_BATCH, OF_TOPIC, UNKNOWN_PLACES
from statefun.sdk.errors import KafkaError, TopicError
from statefun.sdk.failure import OnFailure
from statefun.sdk.kafka_parts import topic_problem
from statefun.sdk.times import to_epoch_millis

_ANSWER = timedelta(seconds=10)
"""How long a cluster may take to list its topics."""


class Refused(NamedTuple):
    """A record that a cluster has refused, or may have refused."""

    number: int
    """The number of the record among the lane's records in the batch."""
    record: EgressRecord
    reason: ClientError
    alone: bool
    """Whether the cluster has refused this very record.

    False if the cluster has refused a whole producer batch that contains this record."""


class OutboxPlace(NamedTuple):
    """Where a record is in the outbox."""

    lane: int
    batch: int
    digest: bytes
    """The digest of the batch's manifest."""
    number: int


def numbered(records: Sequence[EgressRecord], marker: Marker) -> dict[int, EgressRecord]:
    """Return records by their numbers among the lane's records in a batch; the last is ``marker.records - 1``."""
    return dict(enumerate(records, marker.records - len(records)))


class Refusals:
    """Applies an egress's policy, ``onRefused``, to refused records.

    Args:
        egress: the egress.
        dead_letters: the topic of dead letters, if there is one.
        write: writes dead letters to another egress, if that one has the topic of dead letters.
        alone: whether each record is sent in a producer batch of its own from the first record on.
        written: the outbox places of refused records whose dead letters another egress has already.
    """

    def __init__(
        self,
        egress: KafkaEgress,
        dead_letters: DeadLetterTopic | None = None,
        write: Callable[[Sequence[EgressRecord]], None] | None = None,
        *,
        alone: bool = False,
        written: Collection[OutboxPlace] = (),
    ) -> None:
        self._egress = egress
        self._owner = egress.label
        self._dead_letters = dead_letters
        self._write = write
        default = OnFailure.DEAD_LETTER if dead_letters else OnFailure.FAIL
        self._policy = egress.on_refused or default
        fates = {OnFailure.DEAD_LETTER: "refused and made dead letters"}
        self.counter = RecordCounter(egress, fates.get(self._policy, "refused and skipped"))
        """Counts the refused records to which the policy was applied."""
        self.alone = alone
        """Whether each record must be sent in a separate producer batch, to find the refused ones."""
        self.written = set(written)
        """The places, in the outbox, of refused records whose dead letters another egress has already."""

    def certain(
        self, refused: Sequence[Refused], aborted_records: Mapping[int, EgressRecord]
    ) -> Sequence[Refused]:
        """Return the records that are refused for good; raise an error if that is not certain yet.

        Args:
            refused: the records for which the cluster has returned an error of a refusal.
            aborted_records: the records of an aborted transaction, by their numbers. If the cluster refuses
                all records of a topic, all aborted records of this topic are returned, too.

        Raises:
            UncertainError: if it is not certain which records are refused; then the records are sent again.
        """
        if any(each.reason.code() in OF_BATCH and not each.alone for each in refused):
            self.alone = True
            raise UncertainError(
                "a producer batch was refused, and its records are sent again one by one: "
                f"{refused[0].reason.str()}"
            )
        missing = {
            _partition(each.record) for each in refused if each.reason.code() in UNKNOWN_PLACES
        }
        self._check_missing(missing)
        topic_reasons = {
            each.record.topic: each.reason for each in refused if each.reason.code() in OF_TOPIC
        }
        certain = {each.number: each for each in refused}
        reasons = {_partition(each.record): each.reason for each in refused}
        for number, record in aborted_records.items():
            reason = topic_reasons.get(record.topic)
            if reason is None and _partition(record) in missing:
                reason = reasons[_partition(record)]
            if reason is not None:
                certain.setdefault(number, Refused(number, record, reason, alone=True))
        return list(certain.values())

    def replace(
        self, refused: Sequence[Refused], lane: int, marker: Marker
    ) -> dict[int, EgressRecord]:
        """Apply the policy to refused records; return the dead letters to write instead, by record number.

        Dead letters for another egress are written at once. They are written only once per record, even if
        the records are sent again.

        Args:
            refused: the refused records.
            lane: the number of their lane.
            marker: the marker that is written with these records.

        Raises:
            KafkaError: if the policy is to fail.
        """
        letters: dict[int, EgressRecord] = {}
        for number, record, reason, _ in refused:
            error = self._explained(record, reason)
            if self._policy is OnFailure.FAIL or self._is_last_resort(record):
                raise _stopping(error)
            if self._policy is OnFailure.DEAD_LETTER:
                letters[number] = self._letter(record, error)
        if self._write is None:
            return letters
        unwritten = {
            place: letter
            for number, letter in letters.items()
            if (place := OutboxPlace(lane, marker.batch, marker.digest, number)) not in self.written
        }
        if unwritten:
            self._write(list(unwritten.values()))
            self.written |= unwritten.keys()
        return {}

    def settle(self, refused: Sequence[Refused]) -> None:
        """Count refused records; must be called when all other records of the portion are written.

        Later records are no longer sent one by one.
        """
        self.alone = False
        self.written.clear()
        if refused:
            first = refused[0]
            self.counter.add(first.record.topic, first.reason.str(), len(refused))

    def _explained(self, record: EgressRecord, reason: ClientError) -> KafkaError:
        """Return an error that says why a record was refused, and what to do."""
        topic, address = record.topic, self._egress.address
        if topic_problem(topic):  # the client reports a name that is no topic as an unknown topic
            return KafkaError(f"{self._owner}: {topic_problem(topic)}")
        if reason.code() in UNKNOWN_PLACES and record.partition is not None:
            return TopicError(
                f"{self._owner}: topic {topic} at {address} does not exist, or has no partition "
                f"{record.partition}, to which a record was sent; create it"
            )
        if reason.code() in UNKNOWN_PLACES:
            return TopicError(
                f"{self._owner}: topic {topic} does not exist at {address}; create it"
            )
        return KafkaError(
            f"{self._owner}: topic {topic} at {address}: a record was refused: {reason.str()}"
        )

    def _check_missing(self, places: Collection[tuple[str, int | None]]) -> None:
        """Check that topics and partitions are missing in the cluster's metadata, too.

        Raises:
            UncertainError: if one of them exists, or the cluster does not answer.
        """
        if not places:
            return
        address = self._egress.address
        admin = admin_for(self._owner, address, self._egress.properties)
        try:
            topics = cluster_metadata(self._owner, address, admin, _ANSWER).topics
        except KafkaError as error:
            raise UncertainError(error.message) from error
        for topic, partition in places:
            if topic in topics and (partition is None or partition in topics[topic].partitions):
                raise UncertainError(f"topic {topic} was unknown, and exists now")

    def _is_last_resort(self, record: EgressRecord) -> bool:
        """Return whether a record is a dead letter or a marker: if it is refused, the application must stop."""
        letters = self._dead_letters
        return record.topic.startswith(PROGRESS_PREFIX) or (
            letters is not None
            and (letters.egress, letters.topic) == (str(self._egress.id), record.topic)
        )

    def _letter(self, record: EgressRecord, error: KafkaError) -> EgressRecord:
        """Return the dead letter of a refused record, with the error that explains the refusal."""
        letters = self._dead_letters
        if letters is None:
            raise AssertionError(
                "onRefused makes dead letters, but no egress has a topic for them: "
                "the checks at the start should have found this"
            )
        facts = {
            "error-code": error.code,
            "error-type": type(error).__name__,
            "error-message": error.message,
            "time": str(to_epoch_millis(datetime.now(timezone.utc))),
            "egress": str(self._egress.id),
            "topic": record.topic,
            **({} if record.partition is None else {"partition": str(record.partition)}),
            **({} if record.timestamp is None else {"timestamp": str(record.timestamp)}),
        }
        original = Original(record.key, record.value, record.headers or ())
        letter, left_out = letters.letter(original, facts.items())
        if left_out:
            raise _stopping(
                error,
                f"; its dead letter would be larger than egress {letters.egress} takes: raise that "
                "egress's property max.request.size",
            )
        return letter


def _stopping(error: KafkaError, remedy: str = "") -> KafkaError:
    """Return ``error`` with ``remedy`` in its text; it ends publishing because of a refused record."""
    return type(error)(f"{error.message}{remedy}; the records stay in the outbox")


def _partition(record: EgressRecord) -> tuple[str, int | None]:
    return record.topic, record.partition
