# SPDX-License-Identifier: Apache-2.0
"""``statefun trace``: shows what has caused a record or an invocation, and what has come of it, as a tree."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from confluent_kafka import TopicPartition

from statefun.console.argument_types import argument
from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.engine.address_keys import address_key
from statefun.inspect.checkpoint_options import add_checkpoint, usable
from statefun.inspect.state_listing import parsed_address
from statefun.inspect.validation import declared_module, program_and_modules
from statefun.module.model import KafkaEgress, KafkaIngress, Module
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.kafka.client import admin_for, cluster_metadata, read_committed
from statefun.runtime.letters.dead_letters import TIMEOUT
from statefun.runtime.letters.letter_filter import parse_moment
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.traces import MOST_INVOCATIONS, Trace, TracedInvocation, Traces
from statefun.sdk.errors import CheckpointError, ConfigurationError
from statefun.sdk.printable import printable

_RECORD = re.compile(r"([\w.-]+)/(\d{1,9})/(\d{1,18})")
_PARENT = re.compile(rb"00-[0-9a-f]{32}-([0-9a-f]{16})-[0-9a-f]{2}")


def add_arguments(trace: CommandParser) -> None:
    """Add the arguments of ``statefun trace`` to its parser."""
    add_checkpoint(trace)
    trace.add_argument(
        "what",
        metavar="RECORD|ADDRESS",
        help="a record of an ingress, of an egress or of the dead letters as TOPIC/PARTITION/OFFSET; or an address, whose "
        "newest invocation is meant",
    )
    trace.add_argument(
        "--at",
        type=argument(_moment),
        metavar="TIME",
        help="the newest invocation of the address until then: 2026-05-04T12:30 in UTC, or a duration before now, such "
        "as 90min, 12h, 7d",
    )
    trace.add_argument(
        "--module",
        type=Path,
        action="append",
        help="a module file (default: module.yaml in this folder), or a program that declares its egresses, for records "
        "of egresses; may be repeated",
    )
    trace.add_json()


def _moment(text: str) -> datetime:
    return parse_moment(text, datetime.now(timezone.utc))


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun trace``; an application may run with the checkpoint meanwhile.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the checkpoint or the record cannot be read, or has no trace.
    """
    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        traces = Traces(checkpoint)
        spans = _spans(traces, checkpoint, options)
        trace = traces.around(spans) if spans else Trace()
    if not trace.invocations:
        raise CheckpointError(
            f"{checkpoint.shown} has no trace of {options.what}: traces are noted with spark.statefun.trace-journal, "
            "and the oldest ones are deleted; messages of a trace that is not sampled are not noted"
        )
    if options.json:
        print_json([_as_json(each) for each in trace.invocations.values()])
        return
    for line in _tree(trace, spans):
        print(line)
    if trace.left_out:
        print(f"its micro-batches had too many entries; {trace.left_out:,} of them are left out")
    if trace.is_cut:
        print(f"only the first {MOST_INVOCATIONS:,} invocations are shown")


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
