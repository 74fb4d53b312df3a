# SPDX-License-Identifier: Apache-2.0
"""Finds what has caused a record or an invocation, and everything that has come of it, in the trace journal."""

from __future__ import annotations

import bisect
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
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
_FEW_ROWS = 1000
"""In so many entries, ids are looked up with a dictionary at once."""
_FEW_LOOKUPS = 20
"""How often ids are looked up in more entries before a dictionary is made, which takes longer than a lookup."""


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
        """Return the ids of invocations whose causes are not in the trace: they have caused all others in it.

        If invocations seem to cause each other, as headers from elsewhere may claim, the first one is a root.
        """
        below: set[bytes] = set()
        found = []
        for has_causes in (False, True):
            for span, each in self.invocations.items():
                if span in below or has_causes != any(c in self.invocations for c in each.causes):
                    continue
                found.append(span)
                stack = [span]
                while stack:
                    one = stack.pop()
                    if one not in below:
                        below.add(one)
                        stack += self.invocations[one].effects
        return found


class Traces:
    """The trace journal of a checkpoint; each method reads its files.

    Raises:
        CheckpointError: if a file is damaged.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint

    def of_record(self, place: str) -> set[bytes]:
        """Return the ids of the invocations that have got an ingress record, at ``topic/partition/offset``.

        The functions of a record may handle it in several micro-batches, as one of them may fail, or have to wait.
        """
        found: set[bytes] = set()
        for part in self._parts():
            table = part.table
            is_it = pc.and_(pc.equal(table["kind"], INVOCATION), pc.equal(table["text"], place))
            found |= {entry.span for entry in entries_of(table.filter(is_it))}
        return found

    def of_address(self, key: bytes, until: datetime | None) -> set[bytes]:
        """Return the ids of an address's newest invocations, those of one micro-batch.

        Args:
            key: the key of the address.
            until: the latest time; None for now.
        """
        for part in self._parts():
            table = part.table
            is_it = pc.and_(pc.equal(table["kind"], INVOCATION), pc.equal(table["key"], key))
            rows: defaultdict[int, list[int]] = defaultdict(list)
            for row in pc.indices_nonzero(is_it).to_pylist():
                if until is None or from_epoch_millis(part.micro_batch_of(row).time) <= until:
                    rows[part.batch_of(row)].append(row)
            if rows:
                return {entry.span for entry in part.entries(rows[max(rows)])}
        return set()

    def around(self, spans: set[bytes]) -> Trace:
        """Return the invocations with these ids, all that have caused them, and all that any of these has caused.

        If there are too many, the causes are kept that are nearest to the given invocations.
        """
        trace = Trace()
        causes, first = self._causes(spans, trace)
        growth = _Growth(trace, causes)
        for part in self._parts(first):
            growth.add(part)
            if growth.is_over():
                break
        for span, each in trace.invocations.items():
            each.causes = [*dict.fromkeys(each.causes)]
            for cause in trace.invocations.keys() & each.causes:
                trace.invocations[cause].effects.append(span)
        return trace

    def _causes(self, spans: set[bytes], trace: Trace) -> tuple[set[bytes], int]:
        """Return the ids of those invocations that the journal has, of their causes, of the causes of these, and so on.

        The second item is the first micro-batch that has any of them. If there are too many, the trace is marked so.
        """
        wanted, found, first = set(spans), set[bytes](), sys.maxsize
        for part in self._parts():
            while rows := part.rows("span", wanted):
                entries = part.entries(rows)
                first = min(first, part.batch_of(min(rows)))
                for entry in reversed(entries):
                    if len(found) >= MOST_INVOCATIONS // 2 and entry.span not in found:
                        trace.is_cut = True
                        return found, first
                    found.add(entry.span)
                wanted = (wanted | {entry.parent for entry in entries}) - found - {_NOBODY}
            if not wanted:
                break
        return found, first

    def _parts(self, since: int | None = None) -> Iterator[_Part]:
        return map(_Part, read_traces(self._checkpoint, since))


class _Growth:
    """Adds invocations to a trace, and everything that they have caused, some micro-batches at a time.

    Args:
        trace: the trace.
        causes: the ids of the invocations that must be in the trace, even if that leaves no room for others.
    """

    def __init__(self, trace: Trace, causes: set[bytes]) -> None:
        self._trace = trace
        self._causes = causes
        self._known = set(causes)
        self._room = MOST_INVOCATIONS - len(causes)
        """How many further invocations have a place."""

    def is_over(self) -> bool:
        """Return whether no further micro-batch can add an invocation."""
        return self._room < 0 and self._causes <= self._trace.invocations.keys()

    def add(self, part: _Part) -> None:
        """Add the entries that some micro-batches have about known invocations and about what these have caused."""
        seen: set[int] = set()
        new = self._known
        while new:
            rows = (part.rows("parent", new) | part.rows("span", new)) - seen
            seen |= rows
            spans = {
                entry.span
                for row, entry in zip(sorted(rows), part.entries(rows), strict=True)
                if self._note(entry, part.micro_batch_of(row))
            }
            new = spans - self._known
            self._known |= new
        self._trace.left_out += part.left_out(seen)

    def _note(self, entry: TraceEntry, batch: TraceEntries) -> bool:
        """Add an entry of a micro-batch; return whether it is about an invocation that is part of the trace."""
        if entry.kind != INVOCATION:
            _note(self._trace, entry, batch)
            return False
        if entry.span not in self._trace.invocations and entry.span not in self._causes:
            self._room -= 1
            if self._room < 0:
                self._trace.is_cut = True
                return False
        _note(self._trace, entry, batch)
        return True


class _Part:
    """The entries of some consecutive micro-batches, numbered from 0; the number of an entry is called its row.

    Args:
        batches: the micro-batches, in order.
    """

    def __init__(self, batches: Sequence[TraceEntries]) -> None:
        tables = [trace_table(each.tasks) for each in batches]
        self._batches = batches
        self._starts = [0, *itertools.accumulate(table.num_rows for table in tables)]
        self._lookups: Counter[str] = Counter()
        self._indexes: dict[str, dict[bytes, list[int]]] = {}
        self.table: pa.Table = pa.concat_tables(tables).combine_chunks()

    def micro_batch_of(self, row: int) -> TraceEntries:
        """Return all entries of the micro-batch that has the entry with the number ``row``."""
        return self._batches[bisect.bisect_right(self._starts, row) - 1]

    def batch_of(self, row: int) -> int:
        """Return the number of the micro-batch that has the entry with the number ``row``."""
        return self.micro_batch_of(row).batch

    def left_out(self, rows: set[int]) -> int:
        """Return how many entries are missing in the micro-batches that have the entries ``rows``."""
        found = {self.batch_of(row): self.micro_batch_of(row).left_out for row in rows}
        return sum(found.values())

    def entries(self, rows: Iterable[int]) -> list[TraceEntry]:
        """Return the entries with the numbers ``rows``, in the order of these numbers."""
        return [*entries_of(self.table.take(pa.array(sorted(rows), pa.int64())))]

    def rows(self, column: str, ids: set[bytes]) -> set[int]:
        """Return the numbers of the entries that have one of ``ids`` in a column."""
        self._lookups[column] += 1
        if self._lookups[column] <= _FEW_LOOKUPS and self.table.num_rows > _FEW_ROWS:
            wanted = pa.array([*ids - {_NOBODY}], _ID)
            return set(pc.indices_nonzero(pc.is_in(self.table[column], wanted)).to_pylist())
        index = self._indexes.get(column)
        if index is None:
            index = self._indexes[column] = {}
            for row, id_ in enumerate(self.table[column].to_pylist()):
                index.setdefault(id_, []).append(row)
            index.pop(_NOBODY, None)
        return {row for id_ in index.keys() & ids for row in index[id_]}


def _note(trace: Trace, entry: TraceEntry, batch: TraceEntries) -> None:
    """Add an entry of a micro-batch to its invocation; failures and records come after the entry of the invocation."""
    if entry.kind == INVOCATION:
        invocation = trace.invocations.get(entry.span)
        if invocation is None:
            time = from_epoch_millis(batch.time)
            invocation = TracedInvocation(entry.span, address_of(entry.key), batch.batch, time)
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
