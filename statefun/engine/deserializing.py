# SPDX-License-Identifier: Apache-2.0
"""Decodes the values of ingress records by users' deserializers.

Deserializers run in the workers, as functions do. Before they run, and in dead letters and retries, a
record has the value that was read from its topic, and a flag says that this value is not decoded.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

from statefun.engine.calls import Call, batch_of, failed_message, ingress_record
from statefun.engine.failures import FailedMessage
from statefun.engine.origin import key_of
from statefun.engine.record_routes import RecordRoutes
from statefun.engine.row_flags import REPLAYED
from statefun.module.topic_routes import Deserializer
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.sdk.deadline import Alarm
from statefun.sdk.encoding import encoded
from statefun.sdk.errors import ValueDecodeError
from statefun.sdk.invocation_batch import FailedInvocation, Invocation
from statefun.sdk.raised import class_name, deserializer_failed, traceback_of
from statefun.sdk.record import KafkaRecord
from statefun.sdk.types import TypedValue

_make_invocation: Final = partial(tuple.__new__, Invocation)


class Deserialized(NamedTuple):
    """A call whose records are decoded, and the messages that could not be decoded."""

    call: Call | None
    """The call of the function; None if no message remains for it, as all have failed or were dropped."""
    failed: list[FailedMessage]


def deserialized(call: Call, routes: RecordRoutes) -> Deserialized:
    """Decode the values of the records among the messages of ``call``."""
    invocations = call.batch.invocations
    if not any(map(call.was_encoded, range(len(invocations)))):
        return Deserialized(call, [])  # other addresses of the rows have such records
    ready: list[Invocation] = []
    kept: list[int] = []
    failed: list[FailedMessage] = []
    for index, invocation in enumerate(invocations):
        if call.was_encoded(index):
            try:
                value = _value(call, index, routes)
            except BaseException as error:  # noqa: BLE001 - users' code may raise any exception
                failed.append(failed_message(_failure(call, index, routes, error), call))
                continue
            if value is None:
                continue
            ready.append(_make_invocation((invocation.caller, value, invocation.trace)))
        else:
            ready.append(invocation)
        kept.append(index)
    if not ready:
        return Deserialized(None, failed)
    rows, retried = call.rows, call.retried
    if len(ready) < len(invocations):
        rows = [rows[index] for index in kept]
        retried = {place: retried[index] for place, index in enumerate(kept) if index in retried}
    originals = [invocations[index].argument for index in kept]
    batch = batch_of(call.group, call.batch.target, ready, rows, retried)
    return Deserialized(
        Call(call.group, call.key, call.function, batch, rows, retried, originals), failed
    )


def _value(call: Call, index: int, routes: RecordRoutes) -> TypedValue | None:
    """Return the decoded value of a record; None to drop the record."""
    deserializer = _of_content(call, index, routes)
    if deserializer is None or deserializer.read_content is None:
        with Alarm(call.function.timeout, call.batch.target) as alarm:
            alarm.begin()
            return _value_of_record(call, index, routes)
    argument = call.batch.invocations[index].argument
    content = _content(argument)
    if content is None:
        return argument
    return encoded(deserializer.read_content(content), deserializer.value_type)


def _content(argument: Any) -> bytes | None:
    """Return the value of a record; None for a tombstone, although the value is declared as bytes."""
    return argument.value  # type: ignore[no-any-return] # see above


def _of_content(call: Call, index: int, routes: RecordRoutes) -> Deserializer | None:
    """Return the deserializer of the route that a record's row names; None if there is none.

    It is also None for a retried or replayed record, whose route is in the record's origin.
    """
    if index in call.retried:
        return None
    row, columns = call.rows[index], call.group.columns
    number = columns.routes()[row]
    if number is None or columns.flags[row] & REPLAYED:
        return None
    route = routes.by_number.get(int(number))
    return None if route is None else route.deserializer


def _value_of_record(call: Call, index: int, routes: RecordRoutes) -> TypedValue | None:
    """Return the decoded value of a record, whose deserializer gets all parts of the record; None to drop it."""
    origin = call.record(index)
    route = None if origin is None else routes.route_of(origin)
    if origin is None or route is None or route.deserializer is None:
        undecodable = "the message" if origin is None else f"records of topic {origin.topic}"
        raise ValueDecodeError(
            f"module.yaml no longer declares a deserializer for {undecodable}; declare it again"
        )
    argument = call.batch.invocations[index].argument
    content = _content(argument)
    if content is None and not route.deserializer.takes_tombstones:
        return argument
    value = route.deserializer.read(_kafka_record(call, origin, content))
    return None if value is None else encoded(value, route.deserializer.value_type)


def _kafka_record(call: Call, origin: RecordOrigin, content: bytes | None) -> KafkaRecord:
    topic, partition, offset, timestamp, headers = ingress_record(origin)
    key = key_of(origin, call.batch.target.id.encode())
    return KafkaRecord(key, content, topic, partition, offset, timestamp, headers)


def _failure(
    call: Call, index: int, routes: RecordRoutes, error: BaseException
) -> FailedInvocation:
    origin = call.record(index)
    route = None if origin is None else routes.route_of(origin)
    deserializer = None if route is None else route.deserializer
    name = (
        call.batch.invocations[index].argument.typename
        if deserializer is None
        else deserializer.name
    )
    failure = deserializer_failed(name, call.batch.target, error)
    return FailedInvocation(index, failure, class_name(error), traceback_of(error))
