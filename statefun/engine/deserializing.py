# SPDX-License-Identifier: Apache-2.0
"""Decodes the values of ingress records by users' deserializers.

Deserializers run in the workers, as functions do. Before they run, and in dead letters and retries, a
record has the value that was read from its topic, and a flag says that this value is not decoded.
"""

from __future__ import annotations

from typing import NamedTuple

from statefun.engine.calls import Call, batch_of, failed_message, ingress_record
from statefun.engine.failures import FailedMessage
from statefun.engine.origin import key_of
from statefun.engine.record_routes import RecordRoutes
from statefun.module.topic_routes import TopicRoute
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.sdk.deadline import Alarm
from statefun.sdk.encoding import encoded
from statefun.sdk.errors import ValueDecodeError
from statefun.sdk.invocation_batch import FailedInvocation
from statefun.sdk.raised import class_name, deserializer_failed, traceback_of
from statefun.sdk.record import KafkaRecord
from statefun.sdk.types import TypedValue


class Deserialized(NamedTuple):
    """A call whose records are decoded, and the messages that could not be decoded."""

    call: Call | None
    """The call of the function; None if no message remains for it, as all have failed or were dropped."""
    failed: list[FailedMessage]


def deserialized(call: Call, routes: RecordRoutes) -> Deserialized:
    """Decode the values of the records among the messages of ``call``."""
    invocations = call.batch.invocations
    records = frozenset(filter(call.was_encoded, range(len(invocations))))
    if not records:
        return Deserialized(call, [])
    ready, failed = {}, []
    for index, invocation in enumerate(invocations):
        value: TypedValue | None = invocation.argument
        if index in records:
            origin = call.record(index)
            route = None if origin is None else routes.route_of(origin)
            try:
                with Alarm(call.function.timeout, call.batch.target) as alarm:
                    alarm.begin()
                    value = _value(call, index, origin, route)
            except BaseException as error:  # noqa: BLE001 - users' code may raise any exception
                failed.append(failed_message(_failure(call, index, route, error), call))
                continue
        if value is not None:
            ready[index] = invocation._replace(argument=value)
    if not ready:
        return Deserialized(None, failed)
    rows = [call.rows[index] for index in ready]
    retried = {
        place: call.retried[index] for place, index in enumerate(ready) if index in call.retried
    }
    batch = batch_of(call.group, call.batch.target, [*ready.values()], rows, retried)
    originals = [invocations[index].argument for index in ready]
    return Deserialized(
        Call(call.group, call.key, call.function, batch, rows, retried, originals), failed
    )


def _value(
    call: Call, index: int, origin: RecordOrigin | None, route: TopicRoute | None
) -> TypedValue | None:
    """Return the decoded value of a record; None to drop the record."""
    if origin is None or route is None or route.deserializer is None:
        undecodable = "the message" if origin is None else f"records of topic {origin.topic}"
        raise ValueDecodeError(
            f"module.yaml no longer declares a deserializer for {undecodable}; declare it again"
        )
    argument = call.batch.invocations[index].argument
    content: bytes | None = argument.value
    if content is None and not route.deserializer.takes_tombstones:
        return argument
    value = route.deserializer.read(_kafka_record(call, origin, content))
    return None if value is None else encoded(value, route.deserializer.value_type)


def _kafka_record(call: Call, origin: RecordOrigin, content: bytes | None) -> KafkaRecord:
    topic, partition, offset, timestamp, headers = ingress_record(origin)
    key = key_of(origin, call.batch.target.id.encode())
    return KafkaRecord(key, content, topic, partition, offset, timestamp, headers)


def _failure(
    call: Call, index: int, route: TopicRoute | None, error: BaseException
) -> FailedInvocation:
    deserializer = None if route is None else route.deserializer
    name = (
        call.batch.invocations[index].argument.typename
        if deserializer is None
        else deserializer.name
    )
    failure = deserializer_failed(name, call.batch.target, error)
    return FailedInvocation(index, failure, class_name(error), traceback_of(error))
