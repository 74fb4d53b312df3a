# SPDX-License-Identifier: Apache-2.0
"""Finds what has caused a record or an invocation, and everything that has come of it, in the trace journal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from statefun.engine.address_keys import address_of
from statefun.engine.trace_journal import FAILURE, INVOCATION, NOBODY, RECORD
from statefun.protocol.runtime_pb2 import TraceEntries
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.trace_log import read_traces
from statefun.runtime.rows.trace_entries import TraceEntry, entries_of, trace_table
from statefun.sdk.address import Address
from statefun.sdk.times import from_epoch_millis

_NOBODY = bytes.fromhex(NOBODY)
_ID = pa.binary(8)
MOST_INVOCATIONS = 10_000
"""The largest number of invocations of a trace that are looked for; more cannot be read by a person."""


@attrs.define
class TracedInvocation:
    """An invocation: what has caused it, and what it has caused."""

    span: bytes
    """Its id: 8 bytes."""
    address: Address
    batch: int
    """The micro-batch in which it began."""
    time: datetime
    """When that micro-batch was staged."""
    causes: list[bytes] = attrs.field(factory=list)
    """The ids of the invocations that have sent its messages; several only for a function behind an endpoint."""
    origins: list[str] = attrs.field(factory=list)
    """The ingress records that it has handled, as ``topic/partition/offset``."""
    failures: list[str] = attrs.field(factory=list)
    records: list[tuple[str, str]] = attrs.field(factory=list)
    """The topic and the key of each record that it has sent."""
    effects: list[bytes] = attrs.field(factory=list)
    """The ids of the invocations that its messages have caused."""


@attrs.define
class Trace:
    """Connected invocations."""

    invocations: dict[bytes, TracedInvocation] = attrs.field(factory=dict)
    """The invocations by their ids, in the order of their micro-batches."""
    left_out: int = 0
    """How many entries its micro-batches lack, as their tasks had too many of them."""
    is_cut: bool = False
    """Whether there are more than ``MOST_INVOCATIONS``."""

    def roots(self) -> list[bytes]:
        """Return the ids of the invocations whose causes are outside of the journal."""
        return [
            span
            for span, each in self.invocations.items()
            if not any(cause in self.invocations for cause in each.causes)
        ]


class Traces:
    """The trace journal of a checkpoint; each method reads its files.

    Raises:
        CheckpointError: if a file is damaged.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint

    def of_record(self, place: str) -> set[bytes]:
        """Return the ids of the invocations that have got an ingress record, at ``topic/partition/offset``."""
        for _, _, table in self._tables():
            is_it = pc.and_(pc.equal(table["kind"], INVOCATION), pc.equal(table["text"], place))
            if found := _spans(table.filter(is_it)):
                return found
        return set()

    def of_address(self, key: bytes, until: datetime | None) -> set[bytes]:
        """Return the ids of an address's newest invocations, those of one micro-batch.

        Args:
            key: the key of the address.
            until: the latest time; None for now.
        """
        for _, entries, table in self._tables():
            if until is not None and from_epoch_millis(entries.time) > until:
                continue
            is_it = pc.and_(pc.equal(table["kind"], INVOCATION), pc.equal(table["key"], key))
            if found := _spans(table.filter(is_it)):
                return found
        return set()

    def around(self, spans: set[bytes]) -> Trace:
        """Return the invocations with these ids, all that have caused them, and all that these have caused."""
        causes, first = self._causes(spans)
        trace = Trace()
        known = {
            span for span, parents in causes.items() if not any(each in causes for each in parents)
        }
        for batch, entries, table in self._tables(first):
            if self._add(trace, known, batch, from_epoch_millis(entries.time), table):
                trace.left_out += entries.left_out
            if len(trace.invocations) > MOST_INVOCATIONS:
                trace.is_cut = True
                break
        for span, each in trace.invocations.items():
            for cause in {*each.causes} & trace.invocations.keys():
                trace.invocations[cause].effects.append(span)
        return trace

    def _causes(self, spans: set[bytes]) -> tuple[dict[bytes, set[bytes]], int]:
        """Return the causes of invocations, the causes of these, and so on, each by the id of what it has caused.

        The second item is the first micro-batch that has any of them.
        """
        wanted, found, first = set(spans), dict[bytes, set[bytes]](), 0
        for batch, _, table in self._tables():
            while entries := _entries(table, _places(table, "span", wanted - found.keys())):
                for entry in entries:
                    found.setdefault(entry.span, set()).add(entry.parent)
                wanted |= {entry.parent for entry in entries}
                first = batch
        return found, first

    def _add(
        self, trace: Trace, known: set[bytes], batch: int, time: datetime, table: pa.Table
    ) -> bool:
        """Add what a micro-batch has of the invocations with known ids, and of all that these have caused.

        Returns:
            Whether it has anything of them.
        """
        seen: set[int] = set()
        new = known
        while new:
            rows = _places(table, "parent", new) | _places(table, "span", new)
            entries = _entries(table, rows - seen)
            seen |= rows
            for entry in entries:
                _note(trace, entry, batch, time)
            new = {each.span for each in entries if each.kind == INVOCATION} - known
            known |= new
        return bool(seen)

    def _tables(self, since: int | None = None) -> Iterator[tuple[int, TraceEntries, pa.Table]]:
        for batch, entries in read_traces(self._checkpoint, since):
            yield batch, entries, trace_table(entries.tasks)


def _spans(table: pa.Table) -> set[bytes]:
    return {each.span for each in entries_of(table)}


def _places(table: pa.Table, column: str, ids: set[bytes]) -> set[int]:
    """Return the numbers of the rows that have one of some ids in a column."""
    return set(
        pc.indices_nonzero(pc.is_in(table[column], pa.array([*ids - {_NOBODY}], _ID))).to_pylist()
    )


def _entries(table: pa.Table, rows: set[int]) -> list[TraceEntry]:
    return [*entries_of(table.take(pa.array(sorted(rows), pa.int64())))]


def _note(trace: Trace, entry: TraceEntry, batch: int, time: datetime) -> None:
    """Add an entry to the invocation that it is about; its cause is noted before it."""
    if entry.kind == INVOCATION:
        invocation = trace.invocations.get(entry.span)
        if invocation is None:
            invocation = TracedInvocation(entry.span, address_of(entry.key), batch, time)
            trace.invocations[entry.span] = invocation
        if entry.parent != _NOBODY:
            invocation.causes.append(entry.parent)
        if entry.text:
            invocation.origins.append(entry.text)
        return
    cause = trace.invocations.get(entry.parent)
    if cause is None:
        return
    if entry.kind == FAILURE:
        cause.failures.append(entry.text)
    elif entry.kind == RECORD:
        cause.records.append((entry.text, entry.key.decode(errors="replace")))
