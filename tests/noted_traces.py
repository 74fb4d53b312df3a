# SPDX-License-Identifier: Apache-2.0
"""Trace journals with any entries."""

from __future__ import annotations

from collections.abc import Sequence

from statefun.engine.address_keys import address_key
from statefun.engine.trace_journal import TraceJournal
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.trace_log import TraceLog, trace_entries
from statefun.runtime.rows.trace_entries import trace_stream
from statefun.sdk.address import Address

Entry = tuple[int, int, int, str, str]
"""The kind of an entry, the number of its invocation and that of the cause (0 for none), the id of an address, and a text."""


def noted(folder: Folder, *batches: Sequence[Entry]) -> None:
    """Write the journal of some micro-batches into a checkpoint, and commit them."""
    log = TraceLog(folder, 10**9)
    for batch, entries in enumerate(batches):
        journal = TraceJournal()
        for kind, span, parent, id_, text in entries:
            journal.kinds.append(kind)
            journal.spans.append(f"{span:016x}")
            journal.parents.append(f"{parent:016x}")
            journal.keys.append(address_key(Address("t/f", id_)))
            journal.texts.append(text)
        log.add(batch, trace_entries([Outcome(traces=trace_stream(journal))], batch))
    folder.child("commits").write(f"{len(batches)}", b"v1\n{}")


def span(number: int) -> bytes:
    """Return the id of an invocation."""
    return number.to_bytes(8, "big")
