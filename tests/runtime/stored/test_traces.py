# SPDX-License-Identifier: Apache-2.0
"""The trees of random programs, whose messages say themselves where they come from."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noted_traces import noted, span

from statefun import (
    Context,
    KafkaEgressMessage,
    Message,
    OnFailure,
    StatefulFunctions,
    StringType,
    ValueSpec,
    message_builder,
)
from statefun.engine.address_keys import address_key
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import BatchClock, SystemClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.program import Program
from statefun.engine.sinks import Sink
from statefun.engine.trace_journal import INVOCATION, RECORD, TraceJournal
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.trace_log import TraceLog, trace_entries
from statefun.runtime.rows.trace_entries import trace_stream
from statefun.runtime.stored import traces as traces_module
from statefun.runtime.stored.traces import Trace, Traces
from statefun.sdk.address import Address

TYPES = ("t/kept", "t/free", "t/waits")
DEPTH = 4
Tree = tuple[str, int, bool, tuple[Any, ...]]
"""The address of an invocation, how many records it has sent, whether it has failed, and the trees of what it has caused."""
Row = tuple[bytes, bytes | None, str, bytes, str | None, int | None]
"""The target, the caller, the typename, the value, the trace, and the offset of a record."""


def chance(path: str, what: str, of: int) -> int:
    """Return a number below ``of`` that depends on a path alone."""
    return zlib.crc32(f"{path} {what}".encode()) % of


def children(path: str) -> list[Address]:
    """Return the addresses to which the invocation at a path sends messages; none if it fails."""
    if path.count(".") == DEPTH or fails(path):
        return []
    number = chance(path, "children", 4)
    return [
        Address(TYPES[chance(f"{path}.{n}", "type", 3)], f"a{chance(f'{path}.{n}', 'id', 3)}")
        for n in range(number)
    ]


def fails(path: str) -> bool:
    """Return whether the invocation at a path fails."""
    return chance(path, "fails", 9) == 0


def records(path: str) -> int:
    """Return how many records the invocation at a path sends."""
    return 0 if fails(path) else chance(path, "records", 3)


def expected(path: str, address: Address) -> Tree:
    """Return the tree below the invocation at a path."""
    below = (expected(f"{path}.{n}", each) for n, each in enumerate(children(path)))
    return str(address), records(path), fails(path), tuple(sorted(below))


def found(trace: Trace, span: bytes) -> Tree:
    """Return the same tree as the journal has it."""
    each = trace.invocations[span]
    below = (found(trace, effect) for effect in each.effects)
    return str(each.address), len(each.records), bool(each.failures), tuple(sorted(below))


def program() -> Program:
    """Return functions with state, without state, and of coroutines, which all do what paths say."""
    functions = StatefulFunctions()

    def act(ctx: Context, message: Message) -> None:
        path = message.as_string()
        for n, target in enumerate(children(path)):
            ctx.send(message_builder(target.typename, target.id, str_value=f"{path}.{n}"))
        for _ in range(chance(path, "records", 3)):
            ctx.send(KafkaEgressMessage("t/out", topic="out", key=path, value=b""))
        if fails(path):
            raise ValueError(path)

    async def wait(ctx: Context, message: Message) -> None:
        act(ctx, message)

    specs = [ValueSpec("v", StringType)]
    functions.register("t/kept", act, specs, on_failure=OnFailure.SKIP)
    functions.register("t/free", act, on_failure=OnFailure.SKIP)
    functions.register("t/waits", wait, on_failure=OnFailure.SKIP)
    return Program(functions, {"t/out": Sink.for_kafka()})


def run(folder: Folder, firsts: Sequence[Address], most: int = 10**9) -> None:
    """Run micro-batches until no message is left; each of the first messages is a record of topic ``in``."""
    log, clock = TraceLog(folder, most), SystemClock()
    encode = StringType.serializer().serialize
    rows: list[Row] = [
        (address_key(each), None, StringType.typename, bytes(encode(f"{n}")), None, n)
        for n, each in enumerate(firsts)
    ]
    for batch in itertools.count():
        if not rows:
            return
        journal, effects = TraceJournal(), Effects()
        dispatcher = Dispatcher(
            program(),
            BatchClock(clock, clock.now()),
            batch=batch,
            delivered_up_to=batch - 1,
            concurrency=3,
            immediate=10,
            journal=journal,
        )
        for _ in dispatcher.dispatch(groups(sorted(rows, key=itemgetter(0))), effects):
            pass
        log.add(batch, trace_entries([Outcome(traces=trace_stream(journal))], clock.now()))
        folder.child("commits").write(f"{batch}", b"v1\n{}")
        rows = [
            (*row[:5], None)
            for piece in effects.messages.take()
            for row in zip(*piece, strict=True)
        ]


def groups(rows: Sequence[Row]) -> list[Group]:
    """Return the groups of sorted rows."""

    def cell(name: str, row: int) -> Any:
        place = rows[row][5]
        if place is None:
            return None
        return {"topic": "in", "partition": 0, "offset": place, "timestamp": 0, "route": 0}.get(
            name
        )

    columns = Columns(
        [row[1] for row in rows],
        [row[2] for row in rows],
        [row[3] for row in rows],
        [row[4] for row in rows],
        [0] * len(rows),
        cell=cell,
    )
    found = []
    for key, own in groupby(range(len(rows)), lambda row: rows[row][0]):
        numbers = [*own]
        found.append(Group(key, columns, numbers[0], numbers[-1] + 1, AddressValues(None)))
    return found


FIRSTS = [Address("t/kept", f"b{number}") for number in range(10)]


def size(tree: Tree) -> int:
    """Return how many invocations a tree has."""
    return 1 + sum(map(size, tree[3]))


LARGEST = max(range(10), key=lambda number: size(expected(f"{number}", FIRSTS[number])))
"""The number of the record among ``FIRSTS`` that causes the most invocations."""

addresses = st.builds(
    lambda typename, id_: Address(typename, id_),  # noqa: PLW0108 - Hypothesis would give more arguments
    st.sampled_from(TYPES),
    st.sampled_from(["a0", "a1", "b"]),
)


@settings(deadline=None)
@given(st.lists(addresses, min_size=1, max_size=6))
def test_the_tree_of_a_record_is_the_true_one(firsts: list[Address]) -> None:
    """Addresses, records and failures of all that a record has caused, and nothing of others."""
    with TemporaryDirectory() as name:
        folder = Folder.at(Path(name))
        run(folder, firsts)
        for number, first in enumerate(firsts):
            trace = Traces(folder).around(Traces(folder).of_record(f"in/0/{number}"))
            (root,) = trace.roots()

            assert found(trace, root) == expected(f"{number}", first)
            assert trace.invocations[root].origins == [f"in/0/{number}"]
            assert not trace.is_cut


def test_any_invocation_of_a_trace_shows_all_of_it(tmp_path: Path) -> None:
    """The newest one of an address leads to the record that has caused it."""
    folder = Folder.at(tmp_path)
    run(folder, FIRSTS)
    traces = Traces(folder)
    whole = traces.around(traces.of_record(f"in/0/{LARGEST}"))
    assert len(whole.invocations) > 3

    for each in whole.invocations:
        assert traces.around({each}).invocations.keys() == whole.invocations.keys()
    last = [*whole.invocations.values()][-1]
    now = datetime.now(timezone.utc)
    assert traces.of_address(address_key(last.address), now)
    assert not traces.of_address(
        address_key(last.address), datetime(2020, 1, 1, tzinfo=timezone.utc)
    )
    assert not traces.of_address(b"nobody\0t/kept", None)
    assert not traces.of_record("in/0/10")


def numbers(trace: Trace) -> list[int]:
    """Return the numbers of the invocations of a trace."""
    return [int.from_bytes(each, "big") for each in trace.invocations]


def test_an_invocation_behind_an_endpoint_has_several_causes(tmp_path: Path) -> None:
    """It leads to all of them, and each of them leads to it and to what it has caused."""
    folder = Folder.at(tmp_path)
    noted(
        folder,
        [(INVOCATION, 1, 0, "one", "in/0/1"), (INVOCATION, 2, 0, "two", "in/0/2")],
        [
            (INVOCATION, 3, 1, "remote", ""),
            (INVOCATION, 3, 2, "remote", ""),
            (INVOCATION, 3, 2, "remote", ""),
            (INVOCATION, 3, 0, "remote", "in/0/3"),
            (INVOCATION, 4, 0, "other", "in/0/4"),
        ],
        [(INVOCATION, 5, 3, "last", ""), (RECORD, 0, 3, "out", "out")],
    )
    traces = Traces(folder)

    for number in (3, 5):
        trace = traces.around({span(number)})
        assert sorted(numbers(trace)) == [1, 2, 3, 5]
        assert trace.roots() == [span(1), span(2)]
        remote = trace.invocations[span(3)]
        assert remote.causes == [span(1), span(2)]
        assert remote.origins == ["in/0/3"]
        assert (remote.effects, len(remote.records)) == ([span(5)], 1)
        assert [trace.invocations[span(each)].effects for each in (1, 2)] == [[span(3)]] * 2
    assert numbers(traces.around(traces.of_record("in/0/1"))) == [1, 3, 5]
    assert numbers(traces.around({span(4)})) == [4]


def test_a_record_may_be_handled_in_several_micro_batches(tmp_path: Path) -> None:
    """By two functions, one of which fails and is called again, while the other one is not."""
    folder = Folder.at(tmp_path)
    noted(
        folder,
        [(INVOCATION, 1, 0, "one", "in/0/0"), (INVOCATION, 2, 0, "two", "in/0/0")],
        [(INVOCATION, 3, 1, "one", "in/0/0")],
    )
    traces = Traces(folder)

    assert numbers(traces.around(traces.of_record("in/0/0"))) == [1, 2, 3]


def test_headers_from_elsewhere_may_claim_anything(tmp_path: Path) -> None:
    """Invocations that cause themselves or each other are shown all the same."""
    folder = Folder.at(tmp_path)
    noted(
        folder,
        [(INVOCATION, 1, 1, "own", "in/0/0")],
        [
            (INVOCATION, 2, 3, "a", "in/0/1"),
            (INVOCATION, 3, 2, "b", ""),
            (INVOCATION, 4, 3, "c", ""),
        ],
        [(INVOCATION, 5, 6, "later", "in/0/2"), (RECORD, 0, 77, "out", "out")],
        [(INVOCATION, 6, 5, "later", "")],
    )
    traces = Traces(folder)

    own = traces.around(traces.of_record("in/0/0"))
    assert (numbers(own), own.roots()) == ([1], [span(1)])
    each_other = traces.around(traces.of_record("in/0/1"))
    assert (numbers(each_other), each_other.roots()) == ([2, 3, 4], [span(2)])
    for number in (5, 6):
        later = traces.around({span(number)})
        assert (numbers(later), later.roots()) == ([5, 6], [span(5)])


def test_a_wide_trace_is_cut_where_nobody_can_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way to what was asked for is there, and then as many of the others as there is room for."""
    monkeypatch.setattr(traces_module, "MOST_INVOCATIONS", 100)
    folder = Folder.at(tmp_path)
    noted(
        folder,
        [(INVOCATION, 1, 0, "root", "in/0/0")],
        [(INVOCATION, 10 + number, 1, f"{number}", "") for number in range(2000)],
        [(INVOCATION, 5000, 10 + 1999, "last", ""), (INVOCATION, 5001, 10, "last", "")],
    )
    traces = Traces(folder)

    for number in (1, 5000):
        trace = traces.around({span(number)})
        assert trace.is_cut
        assert len(trace.invocations) == 100
        assert span(number) in trace.invocations
        assert trace.roots() == [span(1)]
    most = traces.around({span(10 + number) for number in range(2000)})
    assert most.is_cut
    assert len(most.invocations) == 51  # half of them are the newest ones that were asked for
    monkeypatch.setattr(traces_module, "MOST_INVOCATIONS", 2003)
    assert not traces.around({span(1)}).is_cut
    assert len(traces.around({span(5000)}).invocations) == 2003


def test_a_long_trace_is_cut_far_from_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end shows what has caused it last, and its beginning what has come of it first."""
    monkeypatch.setattr(traces_module, "MOST_INVOCATIONS", 100)
    chain = [[(INVOCATION, 1 + number, number, "a", "")] for number in range(300)]
    folder = Folder.at(tmp_path)
    noted(folder, *chain[:150], [each for one in chain[150:] for each in one])
    traces = Traces(folder)

    first, middle, last = (traces.around({span(number)}) for number in (1, 200, 300))

    assert numbers(first) == [*range(1, 101)]
    assert numbers(middle) == [*range(151, 251)]
    assert numbers(last) == [*range(251, 301)]
    assert first.is_cut
    assert middle.is_cut
    assert last.is_cut
