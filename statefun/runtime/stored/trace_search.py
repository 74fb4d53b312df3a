# SPDX-License-Identifier: Apache-2.0
"""Finds the trace of a record or of an address, and converts traces for JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from confluent_kafka import Message, TopicPartition

from statefun.engine.address_keys import address_key
from statefun.module.model import KafkaEgress, KafkaIngress, Module
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.trace_log import TRACES
from statefun.runtime.kafka.client import admin_for, cluster_metadata, read_committed
from statefun.runtime.letters.dead_letters import TIMEOUT
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.traces import Trace, TracedInvocation, Traces
from statefun.sdk.address import Address
from statefun.sdk.errors import CheckpointError, ConfigurationError, KafkaError
from statefun.sdk.printable import printable

_PLACE = re.compile(r"(.+)/([0-9]{1,9})/([0-9]{1,18})", re.DOTALL)
"""The place of a record; the topic of a file's records is a path."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
"""The names that Kafka allows."""
_PARENT = re.compile(rb"00-[0-9a-f]{32}-([0-9a-f]{16})-[0-9a-f]{2}")


class FoundTrace(NamedTuple):
    """A trace, and the invocations in it that were asked for."""

    trace: Trace
    asked: set[bytes]
    """The ids of the invocations that were asked for."""


class TraceSearch:
    """Finds traces in the journal of a checkpoint.

    Args:
        checkpoint: the checkpoint.
        known: knows the names of functions.
        module: returns the ingresses and egresses in whose clusters records are looked up.
    """

    def __init__(
        self, checkpoint: Folder, known: KnownValues, module: Callable[[], Module]
    ) -> None:
        self._checkpoint = checkpoint
        self._known = known
        self._traces = Traces(checkpoint)
        self._module = module

    def is_record(self, what: str) -> bool:
        """Return whether a text is the place of a record, ``topic/partition/offset``, and no address.

        If the topic has a name that Kafka does not allow, the text is a record only if the journal has that record,
        such as a record of a file, whose topic is the file's path.
        """
        place = _PLACE.fullmatch(what)
        if place is None:
            return False
        return _TOPIC.fullmatch(place[1]) is not None or bool(self._traces.of_record(what))

    def of_record(self, place: str) -> FoundTrace:
        """Return the trace of a record of an ingress, of an egress or of the dead letters.

        Args:
            place: the record as ``topic/partition/offset``.

        Raises:
            CheckpointError: if the journal has no trace of the record, or is damaged.
            ConfigurationError: if there is no such record, or it has no trace.
            KafkaError: if a cluster does not answer, and no other one has the record.
        """
        spans: set[bytes] = set()
        if self._has_any():
            spans = self._traces.of_record(place) or {self._sender(place)}
        return self._around(spans, place)

    def of_address(self, address: Address, until: datetime | None) -> FoundTrace:
        """Return the trace of the newest invocation of an address.

        Args:
            address: the address.
            until: the latest time of the invocation; None for now.

        Raises:
            CheckpointError: if the journal has no trace of the address, or is damaged.
        """
        key = address_key(address)
        spans = self._traces.of_address(key, until) if self._has_any() else set()
        return self._around(spans, str(address))

    def _has_any(self) -> bool:
        return bool(self._checkpoint.child(TRACES).names())

    def _around(self, spans: set[bytes], what: str) -> FoundTrace:
        trace = self._traces.around(spans) if spans else Trace()
        for each in trace.invocations.values():
            each.address = self._known.present(each.address)
        if not trace.invocations:
            raise CheckpointError(
                f"{self._checkpoint.shown} has no trace of {printable(what)}: traces are noted with "
                "spark.statefun.trace-journal, and the oldest ones are deleted; messages of a trace that is not "
                "sampled are not noted"
            )
        return FoundTrace(trace, spans)

    def _sender(self, place: str) -> bytes:
        """Return the id of the invocation that has sent a record, as the record's headers say."""
        for name, value in self._headers(place):
            if name == "traceparent" and (parent := _PARENT.fullmatch(value or b"")):
                return bytes.fromhex(parent[1].decode())
        raise ConfigurationError(f"record {place} has no header traceparent, and so no trace")

    def _headers(self, place: str) -> Sequence[tuple[str, Any]]:
        """Return the headers of a record in one of the clusters of the module."""
        found = _PLACE.fullmatch(place)
        if found is None or _TOPIC.fullmatch(found[1]) is None:
            raise ConfigurationError(f"no record of the journal is {printable(place)}")
        wanted = TopicPartition(found[1], int(found[2]), int(found[3]))
        module = self._module()
        parts: Sequence[KafkaEgress | KafkaIngress] = (*module.egresses, *module.ingresses)
        failures: dict[str, KafkaError] = {}
        for part in parts:
            if part.address in failures:
                continue
            try:
                message = _record(part, wanted)
            except KafkaError as error:
                failures[part.address] = error
                continue
            if message is not None:
                return list(cast("Any", message.headers()) or ())
        for failure in failures.values():
            raise failure
        raise ConfigurationError(f"no cluster of the module files has the record {place}")


def _record(part: KafkaEgress | KafkaIngress, place: TopicPartition) -> Message | None:
    """Return the record at a place in the cluster of an ingress or egress; None if it is not there."""
    admin = admin_for(part.label, part.address, part.properties)
    topics = cluster_metadata(part.label, part.address, admin, TIMEOUT).topics
    if place.topic not in topics or place.partition not in topics[place.topic].partitions:
        return None
    ranges = {(place.topic, place.partition): (place.offset, None)}
    messages = read_committed(part.label, part.address, part.properties, ranges, TIMEOUT)
    message = next(messages, None)
    return message if message is not None and message.offset() == place.offset else None


def trace_json(found: FoundTrace) -> dict[str, Any]:
    """Return a trace for JSON, with the ids of the invocations that were asked for."""
    trace, asked = found
    return {
        "asked": sorted(span.hex() for span in asked),
        "invocations": [_as_json(each) for each in trace.invocations.values()],
        "is_cut": trace.is_cut,
        "left_out": trace.left_out,
    }


def _as_json(each: TracedInvocation) -> dict[str, Any]:
    return {
        "id": each.span.hex(),
        "address": str(each.address),
        "batch": each.batch,
        "time": each.time.isoformat(),
        "causes": [cause.hex() for cause in each.causes],
        "records_in": each.origins,
        "failures": each.failures,
        "records_out": [{"topic": topic, "key": key} for topic, key in each.records],
    }
