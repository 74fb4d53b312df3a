# SPDX-License-Identifier: Apache-2.0
"""Finds the trace of a record or an address, and prints it as a tree."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from confluent_kafka import TopicPartition

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
from statefun.runtime.stored.traces import MOST_INVOCATIONS, Trace, TracedInvocation, Traces
from statefun.sdk.errors import CheckpointError, ConfigurationError
from statefun.sdk.printable import printable

_RECORD = re.compile(r"([\w.-]+)/(\d{1,9})/(\d{1,18})")
_PARENT = re.compile(rb"00-[0-9a-f]{32}-([0-9a-f]{16})-[0-9a-f]{2}")


def found_trace(options: argparse.Namespace) -> tuple[Trace, set[bytes]]:
    """Return the trace that the options of ``statefun trace`` name, and the ids of the invocations that they name.

    Raises:
        StatefunError: if the checkpoint or the record cannot be read, or has no trace.
    """
    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        traces = Traces(checkpoint)
        has_any = bool(checkpoint.child(TRACES).names())
        spans = _spans(traces, checkpoint, options) if has_any else set()
        trace = traces.around(spans) if spans else Trace()
    if not trace.invocations:
        raise CheckpointError(
            f"{checkpoint.shown} has no trace of {options.what}: traces are noted with spark.statefun.trace-journal, "
            "and the oldest ones are deleted; messages of a trace that is not sampled are not noted"
        )
    return trace, spans


def trace_lines(trace: Trace, asked: set[bytes]) -> Iterator[str]:
    """Yield the lines of a tree, with a mark at the invocations that were asked for."""
    yield from _tree(trace, asked)
    if trace.left_out:
        yield f"its micro-batches had too many entries; {trace.left_out:,} of them are left out"
    if trace.is_cut:
        yield f"only the first {MOST_INVOCATIONS:,} invocations are shown"


def trace_json(trace: Trace) -> list[dict[str, Any]]:
    """Return all invocations of a trace for JSON."""
    return [_as_json(each) for each in trace.invocations.values()]


def _spans(traces: Traces, checkpoint: Folder, options: argparse.Namespace) -> set[bytes]:
    """Return the ids of the invocations that an option names."""
    place = _RECORD.fullmatch(options.what)
    if place is None:
        address = parsed_address(options.what, KnownValues.of(checkpoint, None))
        return traces.of_address(address_key(address), options.at)
    if found := traces.of_record(options.what):
        return found
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
        KafkaError: if a cluster does not answer.
    """
    parts: Sequence[KafkaEgress | KafkaIngress] = (*module.egresses, *module.ingresses)
    for part in parts:
        admin = admin_for(part.label, part.address, part.properties)
        topics = cluster_metadata(part.label, part.address, admin, TIMEOUT).topics
        if topic not in topics or partition not in topics[topic].partitions:
            continue
        start = TopicPartition(topic, partition, offset)
        for message in read_committed(part.label, part.address, part.properties, [start], TIMEOUT):
            if message.offset() == offset:
                return list(cast("Any", message.headers()) or ())
            break
    raise ConfigurationError(
        f"no cluster of the module files has the record {topic}/{partition}/{offset}"
    )


def _tree(trace: Trace, asked: set[bytes]) -> Iterator[str]:
    """Yield the lines of a tree; an invocation with several causes is shown in full below the first one."""
    shown: set[bytes] = set()
    for root in trace.roots():
        yield from trace.invocations[root].origins or ["a message whose cause is not noted"]
        yield from _branch(trace, root, asked, shown)


def _branch(trace: Trace, root: bytes, asked: set[bytes], shown: set[bytes]) -> Iterator[str]:
    stack = [(root, "", True)]
    while stack:
        span, indent, is_last = stack.pop()
        each = trace.invocations[span]
        mark = "  <--" if span in asked else ""
        again = "  (see above)" if span in shown else ""
        place = f"batch {each.batch}, {each.time.isoformat(' ', 'milliseconds')}"
        address = printable(str(each.address))
        yield f"{indent}{'└─ ' if is_last else '├─ '}{address}  {place}{again}{mark}"
        if again:
            continue
        shown.add(span)
        below = indent + ("   " if is_last else "│  ")
        leaves = [f"failed: {text.splitlines()[0]}" for text in each.failures]
        leaves += [
            f"record to {topic}" + (f", key {key}" if key else "") for topic, key in each.records
        ]
        for number, leaf in enumerate(leaves, 1):
            is_end = number == len(leaves) and not each.effects
            yield f"{below}{'└─ ' if is_end else '├─ '}{printable(leaf)}"
        children = list(dict.fromkeys(each.effects))
        stack += [(child, below, number == 0) for number, child in enumerate(reversed(children))]


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
