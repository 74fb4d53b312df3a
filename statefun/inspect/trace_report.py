# SPDX-License-Identifier: Apache-2.0
"""Finds the trace of a record or an address, and prints it as a tree."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from confluent_kafka import Message, TopicPartition

from statefun.engine.address_keys import address_key
from statefun.inspect.checkpoint_options import usable
from statefun.inspect.state_listing import parsed_address
from statefun.inspect.validation import declared_module, program_and_modules
from statefun.module.model import KafkaEgress, KafkaIngress, Module
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.trace_log import TRACES
from statefun.runtime.kafka.client import admin_for, cluster_metadata, read_committed
from statefun.runtime.letters.dead_letters import TIMEOUT
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.traces import Trace, TracedInvocation, Traces
from statefun.sdk.errors import CheckpointError, ConfigurationError, KafkaError
from statefun.sdk.printable import printable

_PLACE = re.compile(r"(.+)/([0-9]{1,9})/([0-9]{1,18})", re.DOTALL)
"""The place of a record; the topic of a file's records is a path."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
"""The names that Kafka allows."""
_DEEPEST = 30
"""The level of the tree from which on lines are not indented any further."""
_MOST_LEAVES = 100
"""The largest number of an invocation's failures and records that are shown."""
_PARENT = re.compile(rb"00-[0-9a-f]{32}-([0-9a-f]{16})-[0-9a-f]{2}")


def found_trace(options: argparse.Namespace) -> tuple[Trace, set[bytes]]:
    """Return the trace that the options of ``statefun trace`` name, and the ids of the invocations that they name.

    Raises:
        StatefunError: if the checkpoint or the record cannot be read, or has no trace.
    """
    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        traces, known = Traces(checkpoint), KnownValues.of(checkpoint, None)
        has_any = bool(checkpoint.child(TRACES).names())
        spans = _spans(traces, known, options) if has_any else set()
        trace = traces.around(spans) if spans else Trace()
    for each in trace.invocations.values():
        each.address = known.present(each.address)
    if not trace.invocations:
        raise CheckpointError(
            f"{checkpoint.shown} has no trace of {printable(options.what)}: traces are noted with spark.statefun.trace-journal, "
            "and the oldest ones are deleted; messages of a trace that is not sampled are not noted"
        )
    return trace, spans


def trace_lines(trace: Trace, asked: set[bytes]) -> Iterator[str]:
    """Yield the lines of a tree, with a mark at the invocations that were asked for."""
    yield from _tree(trace, asked)
    if trace.left_out:
        yield f"its micro-batches had too many entries; {trace.left_out:,} of them are left out"
    if trace.is_cut:
        yield f"there are more than the {len(trace.invocations):,} invocations that are shown"


def trace_json(trace: Trace, asked: set[bytes]) -> dict[str, Any]:
    """Return a trace for JSON, with the ids of the invocations that were asked for."""
    return {
        "asked": sorted(span.hex() for span in asked),
        "invocations": [_as_json(each) for each in trace.invocations.values()],
        "is_cut": trace.is_cut,
        "left_out": trace.left_out,
    }


def _spans(traces: Traces, known: KnownValues, options: argparse.Namespace) -> set[bytes]:
    """Return the ids of the invocations that an option names."""
    place = _PLACE.fullmatch(options.what)
    is_of_kafka = place is not None and _TOPIC.fullmatch(place[1]) is not None
    if is_of_kafka and options.at is not None:
        raise ConfigurationError(
            f"--at is for an address, and {options.what} is a record: leave --at out"
        )
    if place is not None and (found := traces.of_record(options.what)):
        return found
    if place is None or not is_of_kafka:
        address = parsed_address(options.what, known)
        return traces.of_address(address_key(address), options.at)
    module = declared_module(*program_and_modules(options.module or []))
    headers = _headers(module, place[1], int(place[2]), int(place[3]))
    for name, value in headers:
        if name == "traceparent" and (parent := _PARENT.fullmatch(value or b"")):
            return {bytes.fromhex(parent[1].decode())}
    raise ConfigurationError(f"record {options.what} has no header traceparent, and so no trace")


def _headers(module: Module, topic: str, partition: int, offset: int) -> Sequence[tuple[str, Any]]:
    """Return the headers of a record in one of the clusters of a module.

    Raises:
        ConfigurationError: if none of them has the record.
        KafkaError: if a cluster does not answer, and no other one has the record.
    """
    parts: Sequence[KafkaEgress | KafkaIngress] = (*module.egresses, *module.ingresses)
    failures: dict[str, KafkaError] = {}
    for part in parts:
        if part.address in failures:
            continue
        try:
            message = _record(part, TopicPartition(topic, partition, offset))
        except KafkaError as error:
            failures[part.address] = error
            continue
        if message is not None:
            return list(cast("Any", message.headers()) or ())
    for failure in failures.values():
        raise failure
    raise ConfigurationError(
        f"no cluster of the module files has the record {topic}/{partition}/{offset}"
    )


def _record(part: KafkaEgress | KafkaIngress, place: TopicPartition) -> Message | None:
    """Return the record at a place in the cluster of an ingress or egress; None if it is not there."""
    admin = admin_for(part.label, part.address, part.properties)
    topics = cluster_metadata(part.label, part.address, admin, TIMEOUT).topics
    if place.topic not in topics or place.partition not in topics[place.topic].partitions:
        return None
    messages = read_committed(part.label, part.address, part.properties, [place], TIMEOUT)
    message = next(messages, None)
    return message if message is not None and message.offset() == place.offset else None


def _tree(trace: Trace, asked: set[bytes]) -> Iterator[str]:
    """Yield the lines of a tree; an invocation with several causes is shown in full below the first one."""
    shown: set[bytes] = set()
    for root in trace.roots():
        origins = trace.invocations[root].origins or ["a message whose cause is not noted"]
        yield from map(printable, origins)
        yield from _branch(trace, root, asked, shown)


def _branch(trace: Trace, root: bytes, asked: set[bytes], shown: set[bytes]) -> Iterator[str]:
    stack = [(root, "", True, 1)]
    while stack:
        span, indent, is_last, level = stack.pop()
        each = trace.invocations[span]
        mark = "  <--" if span in asked else ""
        again = "  (see above)" if span in shown else ""
        place = f"batch {each.batch}, {each.time.isoformat(' ', 'milliseconds')}"
        # A long chain would take pages for its indentation alone.
        depth = f"(level {level}) " if level > _DEEPEST else ""
        address = printable(str(each.address))
        yield f"{indent}{'└─ ' if is_last else '├─ '}{depth}{address}  {place}{again}{mark}"
        if again:
            continue
        shown.add(span)
        below = indent if level >= _DEEPEST else indent + ("   " if is_last else "│  ")
        leaves = _leaves(each)
        for number, leaf in enumerate(leaves, 1):
            is_end = number == len(leaves) and not each.effects
            yield f"{below}{'└─ ' if is_end else '├─ '}{printable(leaf)}"
        children = list(dict.fromkeys(each.effects))
        stack += [
            (child, below, number == 0, level + 1)
            for number, child in enumerate(reversed(children))
        ]


def _leaves(each: TracedInvocation) -> list[str]:
    """Return what an invocation has done besides messages: its failures and its records, as far as there are not too many."""
    leaves = [f"failed: {text}" for text in each.failures]
    leaves += [
        f"record to {topic}" + (f", key {key}" if key else "") for topic, key in each.records
    ]
    if len(leaves) > _MOST_LEAVES:
        leaves[_MOST_LEAVES:] = [f"and {len(leaves) - _MOST_LEAVES:,} further records"]
    return leaves


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
