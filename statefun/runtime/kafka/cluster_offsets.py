# SPDX-License-Identifier: Apache-2.0
"""Questions about offsets, for a Kafka cluster that may be changing its leaders and coordinators."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec

from statefun.runtime.kafka.client import reason_of
from statefun.sdk.times import EPOCH, in_milliseconds

T = TypeVar("T")
_Place = tuple[str, int]
"""Topic and number of a partition."""
_PAUSE = timedelta(milliseconds=100)
_LONGEST_PAUSE = timedelta(seconds=1)
_SHORTEST_ATTEMPT = timedelta(seconds=1)
_LONGEST_FIRST_ATTEMPT = timedelta(seconds=5)
_FIRST_LOOK = timedelta(seconds=2)
"""How long the cluster may take to return its metadata at first: meanwhile, Python handles no signals."""
_UNSETTLED = {
    ClientError.COORDINATOR_LOAD_IN_PROGRESS,
    ClientError.COORDINATOR_NOT_AVAILABLE,
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.NOT_COORDINATOR,
    ClientError.NOT_LEADER_FOR_PARTITION,
    ClientError.OFFSET_NOT_AVAILABLE,
}
"""Error codes of a cluster that has not found a group's coordinator or a partition's leader yet, or has changed it."""
_OUTDATED = {
    ClientError.FENCED_LEADER_EPOCH,
    ClientError.KAFKA_STORAGE_ERROR,
    ClientError.REPLICA_NOT_AVAILABLE,
    ClientError.UNKNOWN_LEADER_EPOCH,
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError._NOENT,  # noqa: SLF001 - how the client names "No leaders found"
    ClientError._TIMED_OUT,  # noqa: SLF001 - as above
    ClientError._UNKNOWN_PARTITION,  # noqa: SLF001 - as above
    ClientError._UNKNOWN_TOPIC,  # noqa: SLF001 - as above
}
"""Error codes of a client that may remember former leaders and partitions.

librdkafka (2.16) remembers them for up to 15 minutes if nobody asks for the metadata of the cluster."""


def watermarks(
    admin: AdminClient, partitions: Iterable[_Place], timeout: timedelta, *, committed: bool
) -> dict[_Place, tuple[int, int]]:
    """Return, for each partition, the offset of its first record, and the offset at which it ends now.

    Args:
        admin: a client that is connected to the cluster.
        partitions: the topics and numbers of the partitions.
        timeout: how long the cluster may take to answer. It is asked again if it does not, since another broker may
            lead a partition by now: this takes up to twice as long, for each of two questions.
        committed: whether a partition ends where readers with ``read_committed`` have to stop; if not, it
            ends after its last record.

    Raises:
        KafkaException: if the cluster does not return all offsets; its text names a partition.
    """
    # One question after the other: while librdkafka still asks for the leaders of the partitions, the answer for one
    # question may free the memory of the next one, which another thread begins (2.16, query_leaders_async).
    places = [*partitions]
    firsts, ends = (
        _offsets(admin, places, spec, timeout, committed=committed)
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call] # as the client has it
    )
    return {place: (firsts[place], ends[place]) for place in places}


def dated_offsets(
    admin: AdminClient,
    partitions: Iterable[_Place],
    date: datetime,
    timeout: timedelta,
    *,
    committed: bool,
) -> dict[_Place, int]:
    """Return, for each partition, the offset of the first record of a date or a later one; negative if there is none.

    The other arguments and the errors are those of :func:`watermarks`.
    """
    # The client has other meanings for negative numbers.
    spec = OffsetSpec.for_timestamp(max(0, in_milliseconds(date - EPOCH)))
    return _offsets(admin, [*partitions], spec, timeout, committed=committed)


def committed_offsets(
    consumer: Consumer, partitions: list[TopicPartition], timeout: timedelta
) -> list[TopicPartition]:
    """Return the offsets that the consumer's group has committed.

    A cluster that has just started, or lost a broker, must find the group's coordinator first. A consumer that reads
    committed records alone also waits for the end of a transaction that has offsets of the group.

    Raises:
        KafkaException: if the cluster does not return all offsets within ``timeout``.
    """

    def ask(patience: float) -> list[TopicPartition]:
        return _checked(consumer.committed(partitions, timeout=patience))

    try:
        return _answer(ask, timeout)
    except KafkaException as error:
        code, text = reason_of(error).code(), reason_of(error).str()
        if not _is_silence(error):
            raise
        text += "; does the cluster answer, or is a transaction with offsets of the group open?"
        raise KafkaException(ClientError(code, text)) from error


def _checked(partitions: list[TopicPartition] | None) -> list[TopicPartition]:
    """Return the partitions of an answer.

    Raises:
        KafkaException: if the cluster has refused some of them.
    """
    for partition in partitions or []:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return partitions or []


def _offsets(
    admin: AdminClient,
    partitions: list[_Place],
    spec: OffsetSpec,
    timeout: timedelta,
    *,
    committed: bool,
) -> dict[_Place, int]:
    if not partitions:
        return {}
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    keys: Mapping[_Place, TopicPartition] = {
        partition: TopicPartition(*partition) for partition in partitions
    }
    # A broker that has died does not answer, and another one may lead its partitions by now.
    attempt = max(_SHORTEST_ATTEMPT, min(timeout / 4, _LONGEST_FIRST_ATTEMPT))

    def ask(patience: float) -> dict[_Place, int]:
        nonlocal attempt
        is_last = patience - attempt.total_seconds() < timeout.total_seconds()
        found = admin.list_offsets(
            dict.fromkeys(keys.values(), spec),
            isolation_level=isolation,
            request_timeout=patience if is_last else attempt.total_seconds(),
        )
        attempt = min(2 * attempt, timeout)
        return _all_of({place: found[key] for place, key in keys.items()})

    def look_again(patience: float) -> bool:
        topics = admin.list_topics(timeout=patience).topics
        return all(
            topic in topics and number in topics[topic].partitions for topic, number in partitions
        )

    return _answer(ask, 2 * timeout, look_again)


def _all_of(answers: Mapping[_Place, Future[ListOffsetsResultInfo]]) -> dict[_Place, int]:
    """Return the offsets in the answers for partitions.

    Raises:
        KafkaException: if an answer has an error; its text names the partition. An error that is final comes first.
    """
    offsets: dict[_Place, int] = {}
    errors: list[ClientError] = []
    for place, answer in answers.items():
        # Not raised here: an answer with an error that knows this frame would keep the client until it is garbage.
        error = answer.exception()
        if isinstance(error, KafkaException):
            errors.append(_named(place, reason_of(error).code(), reason_of(error).str()))
            continue
        offsets[place] = answer.result().offset
        if offsets[place] == OFFSET_INVALID:  # a broker has not answered
            code = ClientError._TIMED_OUT  # noqa: SLF001 - how the client names it
            errors.append(_named(place, code, "Timed out"))
    if errors:
        raise KafkaException(min(errors, key=lambda error: error.code() in _UNSETTLED | _OUTDATED))
    return offsets


def _named(place: _Place, code: int, text: str) -> ClientError:
    topic, number = place
    return ClientError(code, f"{topic}/{number}: {text}")


def _answer(
    ask: Callable[[float], T],
    timeout: timedelta,
    look_again: Callable[[float], bool] | None = None,
) -> T:
    """Ask a cluster, and ask again while its leaders and coordinators are changing.

    Args:
        ask: sends the request, and waits for the answer for up to a number of seconds.
        timeout: how long the cluster may take to answer.
        look_again: asks for the metadata of the cluster within a number of seconds, so that the client forgets former
            leaders, and returns whether the cluster has all partitions of the question; None if the client remembers none.

    Raises:
        KafkaException: if the cluster refuses the request, or does not answer within ``timeout``.
    """
    deadline, pause, look = time.monotonic() + timeout.total_seconds(), _PAUSE, _FIRST_LOOK
    failure: KafkaException | None = None
    reason: KafkaException | None = None

    def rest() -> timedelta:
        return timedelta(seconds=max(0.0, deadline - time.monotonic()))

    try:
        while True:
            is_hasty = rest() < _SHORTEST_ATTEMPT
            try:
                return ask(rest().total_seconds())
            except KafkaException as error:
                failure = error
            is_hopeful = reason_of(failure).code() in _UNSETTLED
            if look_again and reason_of(failure).code() in _OUTDATED and rest() > _PAUSE:
                try:
                    is_hopeful = look_again(min(rest(), look).total_seconds())
                except KafkaException:
                    is_hopeful = True
                    look = min(2 * look, timeout)
            # In a very short time, no answer may come: an earlier one says more.
            if reason is None or not (is_hasty and _is_silence(failure)):
                reason = failure
            if not is_hopeful or rest() <= _PAUSE:
                raise reason
            # Leave some time for the last attempt.
            time.sleep(max(timedelta(), min(pause, rest() - _PAUSE)).total_seconds())
            pause = min(2 * pause, _LONGEST_PAUSE)
    finally:
        # Both know this frame, which would keep the client, with its threads, until it is garbage.
        failure = reason = None


def _is_silence(error: KafkaException) -> bool:
    """Return whether an error says only that no answer came."""
    return reason_of(error).code() == ClientError._TIMED_OUT  # noqa: SLF001 - how the client names it
