# SPDX-License-Identifier: Apache-2.0
"""Decodes ingress records by users' deserializers.

Deserializers run where functions run. Until then, and in dead letters and retries,
a record's value stays as it was read, under a typename that names the deserializer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from statefun.engine.calls import Call, batch_of, failed_message, ingress_record
from statefun.engine.failures import FailedMessage
from statefun.engine.origin import key_of
from statefun.module.topic_routes import RECORDS, Deserializer
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.sdk.deadline import Alarm
from statefun.sdk.errors import ValueDecodeError
from statefun.sdk.invocation_batch import FailedInvocation
from statefun.sdk.raised import class_name, deserializer_failed, traceback_of
from statefun.sdk.record import KafkaRecord
from statefun.sdk.types import TypedValue, encoded


class Deserialized(NamedTuple):
    """A call that is ready for its function, and the messages that could not be decoded."""

    call: Call | None
    """None if no message is left, because all have failed or were left out."""
    failed: list[FailedMessage]


def is_record(typename: str) -> bool:
    """Return whether a value is a record that a deserializer has not read yet."""
    return typename.startswith(RECORDS)


Find = Callable[[str, str], Deserializer | None]
"""Finds a deserializer by its name and the topic of a record."""


def deserialized(call: Call, find: Find) -> Deserialized:
    """Replace the records among the messages of ``call`` by decoded values."""
    invocations = call.batch.invocations
    if not any(is_record(invocation.argument.typename) for invocation in invocations):
        return Deserialized(call, [])
    kept, failed = {}, []
    for index, invocation in enumerate(invocations):
        value: TypedValue | None = invocation.argument
        if is_record(invocation.argument.typename):
            try:
                with Alarm(call.function.timeout, call.batch.target) as alarm:
                    alarm.begin()
                    value = _value(call, index, find)
            except BaseException as error:  # noqa: BLE001 - users' code may raise any exception
                failed.append(failed_message(_failure(call, index, error), call))
                continue
        if value is not None:
            kept[index] = invocation._replace(argument=value)
    if not kept:
        return Deserialized(None, failed)
    rows = [call.rows[index] for index in kept]
    retried = {
        place: call.retried[index] for place, index in enumerate(kept) if index in call.retried
    }
    batch = batch_of(call.group, call.batch.target, [*kept.values()], rows, retried)
    originals = [invocations[index].argument for index in kept]
    return Deserialized(
        Call(call.group, call.key, call.function, batch, rows, retried, originals), failed
    )


def _value(call: Call, index: int, find: Find) -> TypedValue | None:
    """Return the decoded value of a record; None to leave the record out."""
    typename, content = call.batch.invocations[index].argument
    name = typename.removeprefix(RECORDS)
    origin = call.record(index)
    deserializer = None if origin is None else find(name, origin.topic)
    if deserializer is None or origin is None:
        raise ValueDecodeError(f"there is no deserializer {name} any more that could read it")
    value = deserializer.read(_kafka_record(call, origin, content))
    return None if value is None else encoded(value, deserializer.value_type)


def _kafka_record(call: Call, origin: RecordOrigin, content: bytes | None) -> KafkaRecord:
    topic, partition, offset, timestamp, headers = ingress_record(origin)
    key = key_of(origin, call.batch.target.id.encode())
    return KafkaRecord(key, content, topic, partition, offset, timestamp, headers)


def _failure(call: Call, index: int, error: BaseException) -> FailedInvocation:
    name = call.batch.invocations[index].argument.typename.removeprefix(RECORDS)
    failure = deserializer_failed(name, call.batch.target, error)
    return FailedInvocation(index, failure, class_name(error), traceback_of(error))
