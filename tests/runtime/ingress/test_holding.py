# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.chaos import Chaos
from simulation.disk import Disk, MemoryFolder

from statefun import Context, Message, StatefulFunctions
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import write_framed
from statefun.runtime.ingress import holding
from statefun.runtime.ingress.holding import (
    MOST_WAITING_BYTES,
    WAITING,
    WaitingGauge,
    take_back_waiting,
    waiting_after,
    write_waiting,
)
from statefun.sdk.errors import CheckpointError


def _adding(size: int) -> list[Outcome]:
    return [Outcome(waiting_bytes={"t/slow": size, "t/other": 0})]


def test_no_records_are_read_while_too_much_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The total counts over restarts; one log line of each run says so, and another one when records are read again."""
    folder = Folder.at(tmp_path / "checkpoint")
    gauge = WaitingGauge(folder)
    gauge.add(0, _adding(MOST_WAITING_BYTES // 2) * 2)
    assert not gauge.is_holding
    WaitingGauge(folder).add(1, _adding(2))
    for run in (1, 2):
        gauge = WaitingGauge(folder)
        assert gauge.is_holding
        gauge.add(2 * run, _adding(0))
        gauge.add(2 * run + 1, _adding(-1))
    assert not gauge.is_holding
    assert [line.partition(" bytes of messages wait")[0] for line in caplog.messages] == [
        *[f"{MOST_WAITING_BYTES + 2:,}"] * 2,
        f"{MOST_WAITING_BYTES + 1:,}",
        f"{MOST_WAITING_BYTES:,}",
    ]
    assert caplog.text.count("most of the newest ones for t/slow; no records are read") == 3


def test_a_batch_that_is_repeated_counts_once(tmp_path: Path) -> None:
    """After a crash before its commit, the repeated batch replaces the count of the first attempt."""
    folder = Folder.at(tmp_path / "checkpoint")
    for size in (MOST_WAITING_BYTES, 0, MOST_WAITING_BYTES - 1):
        WaitingGauge(folder).add(7, _adding(size))
    gauge = WaitingGauge(folder)
    gauge.add(8, _adding(1))
    assert not gauge.is_holding
    gauge.add(9, _adding(1))
    assert gauge.is_holding


def test_messages_are_counted_as_their_size_is(tmp_path: Path) -> None:
    """A repeated micro-batch counts once, one that is dropped not at all."""
    folder = Folder.at(tmp_path / "checkpoint")
    for messages in (5, 0, 3):
        WaitingGauge(folder).add(7, [Outcome(waiting_messages=messages)])
    counts = [WaitingGauge(folder).messages]
    WaitingGauge(folder).add(8, [Outcome(waiting_messages=-2)])
    counts.append(WaitingGauge(folder).messages)
    take_back_waiting(folder, 7)

    assert [*counts, WaitingGauge(folder).messages] == [3, 1, 3]


def test_a_batch_that_is_dropped_does_not_count(tmp_path: Path) -> None:
    """The next batch may have its number; a count of a committed batch stays."""
    folder = Folder.at(tmp_path / "checkpoint")
    WaitingGauge(folder).add(7, _adding(MOST_WAITING_BYTES - 1))
    WaitingGauge(folder).add(8, _adding(MOST_WAITING_BYTES))
    take_back_waiting(folder, 7)
    take_back_waiting(folder, 7)
    WaitingGauge(folder).add(9, _adding(2))
    take_back_waiting(folder, 9)
    assert WaitingGauge(folder).is_holding


def test_a_copy_has_the_count_after_its_micro_batch(tmp_path: Path) -> None:
    """A micro-batch that was not committed does not count, and the copy's micro-batches are numbered anew."""
    folder, copy = Folder.at(tmp_path / "checkpoint"), Folder.at(tmp_path / "copy")
    waiting = [Outcome(waiting_bytes={"t/slow": MOST_WAITING_BYTES + 1}, waiting_messages=3)]
    ended = [Outcome(waiting_bytes={"t/slow": -2}, waiting_messages=-2)]
    WaitingGauge(folder).add(2, waiting)
    WaitingGauge(folder).add(3, ended)  # and the process ends before the commit

    write_waiting(copy, json.loads(json.dumps(waiting_after(folder, 2))))

    gauge = WaitingGauge(copy)
    assert (gauge.messages, gauge.is_holding) == (3, True)
    take_back_waiting(copy, 1)
    gauge.add(2, ended)
    assert (gauge.messages, gauge.is_holding) == (1, False)


def test_a_hold_that_a_dropped_batch_has_ended_names_functions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those whose messages take the most."""
    folder = Folder.at(tmp_path / "checkpoint")
    WaitingGauge(folder).add(7, _adding(MOST_WAITING_BYTES + 1))
    WaitingGauge(folder).add(8, _adding(-2))
    take_back_waiting(folder, 7)
    caplog.clear()

    assert WaitingGauge(folder).is_holding
    assert "most of the newest ones for t/slow; no records" in caplog.text


def test_the_functions_of_a_batch_that_is_dropped_are_not_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the batch that takes its number are."""
    folder = Folder.at(tmp_path / "checkpoint")
    WaitingGauge(folder).add(0, [Outcome(waiting_bytes={"t/dropped": MOST_WAITING_BYTES + 1})])
    take_back_waiting(folder, -1)
    caplog.clear()
    WaitingGauge(folder).add(0, _adding(MOST_WAITING_BYTES + 1))
    assert "newest ones for t/slow; no records" in caplog.text


def test_a_damaged_count_is_refused(tmp_path: Path) -> None:
    """A damaged file is an error, as any other file of a checkpoint."""
    folder = Folder.at(tmp_path / "checkpoint")
    WaitingGauge(folder).add(1, _adding(5))
    path = tmp_path / "checkpoint" / WAITING
    path.write_bytes(path.read_bytes().replace(b"5", b"6"))
    with pytest.raises(CheckpointError, match=r"waiting\.json"):
        WaitingGauge(folder)


def test_a_count_that_was_read_is_on_the_disk() -> None:
    """The process that wrote the file may have ended before it was on the disk."""
    for seed in range(10):
        chaos, disk = Chaos(seed), Disk()
        chaos.active = False
        folder, path = MemoryFolder("/c", disk, chaos), f"/c/{WAITING}"
        WaitingGauge(folder).add(3, _adding(7))
        disk.name(path, disk.files.pop(path))
        WaitingGauge(folder).add(3, _adding(7))  # writes nothing new
        disk.lose_power(chaos.random, 0)
        assert path in disk.files


def test_messages_of_a_renamed_function_are_counted_once(tmp_path: Path) -> None:
    """They began to wait under its former name, and wait no longer under its present one."""
    folder, functions = Folder.at(tmp_path), StatefulFunctions()
    functions.bind("t/new", renamed_from=["t/old"])(lambda _context, _message: None)
    WaitingGauge(folder).add(1, [Outcome(waiting_bytes={"t/old": 7})])
    gauge = WaitingGauge(folder)
    assert gauge.may_be_overtaken(functions, 2)
    gauge.add(2, [Outcome(waiting_bytes={"t/new": -7})])
    assert not gauge.may_be_overtaken(functions, 3)


def test_messages_of_functions_that_are_never_called_immediately_are_not_overtaken(
    tmp_path: Path,
) -> None:
    """Coroutine functions get all messages through the outbox."""
    functions = StatefulFunctions()

    @functions.bind("t/slow")
    async def slow(_context: Context, _message: Message) -> None:
        pass

    gauge = WaitingGauge(Folder.at(tmp_path))
    gauge.add(1, _adding(7))
    assert not gauge.may_be_overtaken(functions, 3)


def test_a_count_of_another_form_is_refused(tmp_path: Path) -> None:
    """The error names the file."""
    folder = Folder.at(tmp_path)
    write_framed(folder, WAITING, b'{"batch": 1, "before": 0, "after": 5}')
    with pytest.raises(CheckpointError, match=r"waiting\.json"):
        WaitingGauge(folder)


def test_functions_with_names_without_end_are_counted_by_namespace(tmp_path: Path) -> None:
    """All names are written at each change, so they are only so many; and nothing waits after all were delivered."""
    folder = Folder.at(tmp_path)
    names = [f"t/invented-{number}" for number in range(1500)]
    plain = StatefulFunctions()
    plain.bind("t/plain")(lambda _context, _message: None)
    gauge = WaitingGauge(folder)
    for batch, name in enumerate([*names, "t/plain", *names[:10]]):
        gauge.add(batch, [Outcome(waiting_bytes={name: 7})])

    sizes = waiting_after(folder, 10_000)["sizes"]
    assert len(sizes) == 1001
    assert (sizes["t/invented-3"], sizes["t/*"]) == (14, 501 * 7)
    assert gauge.may_be_overtaken(plain, 10_000)

    for batch, name in enumerate([*names[:10], "t/plain", *reversed(names)], 10_000):
        gauge.add(batch, [Outcome(waiting_bytes={name: -7})])
        gauge = WaitingGauge(folder)
    assert waiting_after(folder, 20_000)["sizes"] == {}
    assert not gauge.may_be_overtaken(plain, 20_000)


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=1), max_size=12
    ),
    st.randoms(use_true_random=False),
)
def test_a_count_by_namespace_is_exact(added: list[dict[str, int]], random: Random) -> None:
    """In whatever order messages come and go: the total is the size of those that wait."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(holding, "_MOST_NAMES", 2)
        gauge, waiting = WaitingGauge(Folder.at(Path(folder))), Counter[str]()
        for batch, sizes in enumerate(added):
            growth = Counter({f"t/{name}": size for name, size in sizes.items()})
            for name, size in waiting.items():
                if random.random() < 0.5:
                    growth[name] -= size
            waiting.update(growth)
            gauge.add(batch, [Outcome(waiting_bytes=growth)])
            counted = waiting_after(Folder.at(Path(folder)), batch)["sizes"]
            assert sum(counted.values()) == sum(waiting.values())
            assert all(size > 0 for name, size in counted.items() if name != "t/*")
            assert counted.get("t/*", 0) >= 0
            assert len(counted) <= 3


def test_a_micro_batch_without_waiting_messages_costs_nothing(tmp_path: Path) -> None:
    """However many wait: the file is not written, and no name is looked at."""
    folder, names = Folder.at(tmp_path), [f"t/{number}" for number in range(100)]
    gauge = WaitingGauge(folder)
    gauge.add(1, [Outcome(waiting_bytes=dict.fromkeys(names, 7))])
    functions = StatefulFunctions()
    asked: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions, "find", asked.append)
        for batch in range(2, 5):
            assert gauge.may_be_overtaken(functions, batch)
            (tmp_path / WAITING).unlink(missing_ok=True)
            gauge.add(batch, [Outcome(waiting_bytes={"t/3": 0})])
    assert sorted(asked) == sorted(names)
    assert not (tmp_path / WAITING).exists()


def test_renamed_functions_hide_no_message_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their messages may be counted under one name and taken from another: then nobody knows whose messages wait."""
    monkeypatch.setattr(holding, "_MOST_NAMES", 1)
    functions = StatefulFunctions()

    @functions.bind("t/new", renamed_from=["t/old"])
    async def renamed(_context: Context, _message: Message) -> None:
        pass

    functions.bind("t/plain")(lambda _context, _message: None)
    gauge = WaitingGauge(Folder.at(tmp_path))
    for batch, waiting in enumerate([{"t/old": 100}, {"t/plain": 100}, {"t/new": -100}]):
        gauge.add(batch, [Outcome(waiting_bytes=waiting)])
        assert gauge.may_be_overtaken(functions, batch + 1) == (batch > 0)
    gauge.add(3, [Outcome(waiting_bytes={"t/plain": -100})])
    assert not gauge.may_be_overtaken(functions, 4)
