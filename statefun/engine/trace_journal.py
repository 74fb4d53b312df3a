# SPDX-License-Identifier: Apache-2.0
"""Notes which message has caused which invocation, and which invocation has sent which record.

Messages carry W3C's Trace Context (https://www.w3.org/TR/trace-context/), of which this module uses the header
``traceparent``: ``00-<trace id>-<parent id>-<flags>``. Each invocation gets an id of its own (a *span*), which is the
parent id in all messages and records that it sends. So the journal needs no entry for a message: the invocation at
which the message arrives names the invocation that has sent it.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from statefun.engine.calls import Call
from statefun.engine.span_details import NO_ENTRY, CallWatch, SpanDetails
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.invocation_batch import FailedInvocation, Invocation, InvocationBatch
from statefun.sdk.printable import printable

INVOCATION: Final = 0
"""The kind of an entry for an invocation: its parent is the invocation that has sent the message."""
RECORD: Final = 1
"""The kind of an entry for a record of an egress: its parent is the invocation that has sent the record."""
FAILURE: Final = 2
"""The kind of an entry for a failure: its parent is the invocation that has failed."""
NOBODY: Final = "0" * 16
"""The id where there is no invocation."""
MOST_ENTRIES: Final = 250_000
"""The largest number of entries of a task, which go through the driver; further ones are left out, and counted."""
MOST_ENTRY_BYTES: Final = 32 * 1024 * 1024
"""The largest size of the keys and texts of a task's entries."""
_HEADER: Final = "traceparent="
_IDS: Final = "(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
"""The pattern for the id of a trace, the id of the parent, and flags: an id of zeros is none."""
_IN_TRACE: Final = re.compile(
    f"^{_HEADER}(?:(00)|(?!00|ff)[0-9a-f]{{2}})-{_IDS}(?(1)|(?:-.*)?)$", re.MULTILINE
)
"""The pattern for a header of version 00, or of a later version, which may have further parts."""
_IN_RECORD: Final = re.compile(f"(00)-{_IDS}".encode())
_TRACE: Final = 2
_PARENT: Final = 3
_FLAGS: Final = 4
_MOST_CHARACTERS: Final = 300
"""The largest length of the text about a failure."""
_MASK: Final = (1 << 64) - 1
_CHECKSUMS: Final = 1 << 32
"""How many checksums there are."""
_BLOCK: Final = 1000
"""How many ids are made at once."""
_make_invocation: Final = partial(tuple.__new__, Invocation)
_make_batch: Final = partial(tuple.__new__, InvocationBatch)


class TraceJournal:
    """Gives the invocations of one task their ids, and collects entries about invocations, records and failures.

    Each of the lists has an item for each entry.

    Args:
        share: the share of the ingress records without a trace that begin one, from 0 to 1.
        most: the largest number of entries.
        most_bytes: the largest size of all keys and texts of the entries together, in bytes and characters.
        details: collects what spans need besides the entries; None if no spans are made.
    """

    def __init__(
        self,
        share: float = 1.0,
        most: int = MOST_ENTRIES,
        most_bytes: int = MOST_ENTRY_BYTES,
        details: SpanDetails | None = None,
    ) -> None:
        self.details = details
        self._share = share
        self._most = most
        self._free = most_bytes
        self.kinds: list[int] = []
        self.spans: list[str] = []
        """The ids of the invocations; ``NOBODY`` for entries of other kinds."""
        self.parents: list[str] = []
        """The ids of the invocations that are the causes; ``NOBODY`` for a record that is part of no trace yet."""
        self.keys: list[bytes] = []
        """The keys of the called addresses, or of the records."""
        self.texts: list[str] = []
        """Where an ingress record is, to which topic a record goes, or how an invocation has failed."""
        self.left_out = 0
        """How many entries are left out, as there are too many."""
        self._ids = ""
        self._next = 0
        """The place of the next id in ``_ids``, which has many of them."""
        self._trace = os.urandom(8).hex()

    def begin(self, call: Call) -> None:
        """Give the invocations of a call their ids: what they send from now on has them.

        An ingress record without a trace may begin one. Other messages without a trace, and messages of a trace that is
        not sampled, stay as they are. All messages of a call behind an endpoint get the same id, as a reply does not
        say which of them has caused which effect.
        """
        invocations = cast("list[Invocation]", call.batch.invocations)
        common = self._new_id() if call.function.transport is not None else ""
        joint: str | None = None
        entries = []
        for index in range(len(invocations)):
            caller, argument, trace = invocations[index]
            parent = _IN_TRACE.search(trace) if trace else None
            place = "" if caller else _place(call, index)
            if trace is not None and parent is not None:
                if not _is_sampled(parent):
                    entries.append(NO_ENTRY)
                    continue
                cause, span, id_ = parent[_PARENT], common or self._new_id(), parent[_TRACE]
                trace = _continued(trace, parent, span)
            else:
                if caller is not None or not self._begins(place):
                    entries.append(NO_ENTRY)
                    continue
                cause, span = NOBODY, common or self._new_id()
                id_ = f"{self._trace}{span}"
                trace = _with_header(f"00-{id_}-{span}-01", trace)
            joint = joint or trace
            invocations[index] = _make_invocation((caller, argument, trace))
            entries.append(self._add(INVOCATION, span, cause, call.key, place, id_))
        if common and joint is not None:
            for index in range(len(invocations)):
                caller, argument, _ = invocations[index]
                invocations[index] = _make_invocation((caller, argument, joint))
        if self.details is not None:
            self._watch(self.details, call, entries, is_joint=bool(common))

    def _watch(
        self, details: SpanDetails, call: Call, entries: list[int], *, is_joint: bool
    ) -> None:
        """Let the call note when its invocations begin and end.

        The invocations of a joint call (behind an endpoint) begin and end together: only the first one that has an
        entry is noted.
        """
        traces = [each[2] for each in call.batch.invocations]
        if is_joint:
            first = next((n for n, each in enumerate(entries) if each != NO_ENTRY), 0)
            traces, entries = [traces[first]], [entries[first]]
        call.batch = _make_batch((*call.batch[:-1], CallWatch(details, traces, entries)))

    def end(self, call: Call, records: Sequence[Any], failures: Sequence[FailedInvocation]) -> None:
        """Note the records and the failures of a call."""
        for each in records:
            record = cast("KafkaEgressMessage", each)
            for name, value in record.headers:
                if name == "traceparent":
                    sender = _IN_RECORD.fullmatch(value or b"")
                    if sender is not None and _is_sampled(sender):
                        cause, key = sender[_PARENT].decode(), record.key or ""
                        trace = sender[_TRACE].decode()
                        self._add(RECORD, NOBODY, cause, key.encode(), record.topic, trace)
                    break
        for failed in failures:
            own = _IN_TRACE.search(call.batch.invocations[failed.index].trace or "")
            if own is not None and _is_sampled(own):
                text = printable(f"{failed.cause}: {failed.error}", _MOST_CHARACTERS)
                self._add(FAILURE, NOBODY, own[_PARENT], call.key, text, own[_TRACE])

    def _begins(self, place: str) -> bool:
        """Return whether the message from an ingress begins a trace; the result is the same in each attempt.

        A message that is not from a record of a topic has no place: it always begins a trace, unless ``share`` is 0.
        """
        return zlib.crc32(place.encode()) < self._share * _CHECKSUMS

    def _new_id(self) -> str:
        if self._next == len(self._ids):
            self._ids, self._next = _new_ids(), 0
        start = self._next
        self._next = start + 16
        return self._ids[start : start + 16]

    def _add(  # noqa: PLR0913, PLR0917 - the parts of an entry
        self, kind: int, span: str, parent: str, key: bytes, text: str, trace: str
    ) -> int:
        """Add an entry, unless there are too many; return its number, or -1."""
        number, size = len(self.kinds), len(key) + len(text)
        if number >= self._most or size > self._free:
            self.left_out += 1
            return NO_ENTRY
        self._free -= size
        self.kinds.append(kind)
        self.spans.append(span)
        self.parents.append(parent)
        self.keys.append(key)
        self.texts.append(text)
        if self.details is not None:
            self.details.add(trace)
        return number


def _is_sampled(header: re.Match[Any]) -> bool:
    return bool(int(header[_FLAGS], 16) & 1)


def _continued(trace: str, parent: re.Match[str], span: str) -> str:
    """Return the headers of a trace with another parent id.

    Args:
        trace: the headers.
        parent: the valid header ``traceparent`` among them.
        span: the new parent id.
    """
    if parent[1] is None or trace.count(_HEADER) > 1:
        return _with_header(f"00-{parent[_TRACE]}-{span}-01", trace)
    return f"{trace[: parent.start(_PARENT)]}{span}{trace[parent.end(_PARENT) :]}"


def _with_header(header: str, trace: str | None) -> str:
    """Return the headers of a trace, with ``header`` in place of each ``traceparent``."""
    lines = trace.split("\n") if trace else []
    others = [line for line in lines if not line.startswith(_HEADER)]
    return "\n".join([f"{_HEADER}{header}", *others])


def _new_ids() -> str:
    """Return many ids: a random number and those that follow it, since consecutive numbers compress well."""
    first = int.from_bytes(os.urandom(8), "big")
    return b"".join(((first + n) & _MASK).to_bytes(8, "big") for n in range(_BLOCK)).hex()


def _place(call: Call, index: int) -> str:
    """Return topic, partition and offset of the record that has become a message; empty if no record has."""
    again = call.retried.get(index)
    if again is not None:
        if not again.HasField("record"):
            return ""
        record = again.record
        return f"{record.topic}/{record.partition}/{record.offset}"
    cell, row = call.group.columns.cell, call.rows[index]
    topic = cell("topic", row)
    return (
        "" if topic is None else f"{topic}/{int(cell('partition', row))}/{int(cell('offset', row))}"
    )
