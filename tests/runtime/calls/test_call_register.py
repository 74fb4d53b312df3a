# SPDX-License-Identifier: Apache-2.0
"""The driver's register of calls that have left, as an inbox."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.chaos import Chaos
from simulation.disk import Disk, MemoryFolder

from statefun.engine.left_calls import LOST, RESULT, encoded_loss
from statefun.protocol.runtime_pb2 import CallLoss, CallReport, Outcome
from statefun.runtime.calls import call_register
from statefun.runtime.calls.call_register import CallRegister
from statefun.runtime.checkpoint import call_log
from statefun.runtime.checkpoint.call_log import CallLog
from statefun.runtime.checkpoint.folder import Folder

KEY = b"Ada\0t/f"


def outcome(*attempts: str, worker: str = "w") -> Outcome:
    """Return the outcome of a task with calls that have left."""
    calls = [Outcome.Detached(address=KEY, attempt=name, worker=worker) for name in attempts]
    return Outcome(detached=calls)


def runs_on() -> bool:
    """Return that a worker has not ended."""
    return False


def report(attempt: str, result: bytes = b"result") -> CallReport:
    """Return what a worker reports."""
    return CallReport(address=KEY, attempt=attempt, result=result)


def read(register: CallRegister, after: int = 0) -> list[tuple[str, bytes]]:
    """Read what is there: types and values."""
    last = register.readable(after, is_busy=False)
    return [(each.typename, each.value) for each in register.messages(after, last)]


def new_register(checkpoint: Path, last: int = 0) -> CallRegister:
    """Return the register of a run with a worker."""
    register = CallRegister(CallLog(Folder.at(checkpoint)), last)
    register.connected("w")
    return register


@pytest.fixture
def register(tmp_path: Path) -> CallRegister:
    """Return the register of the first run."""
    return new_register(tmp_path)


def test_a_result_is_read_once_it_is_reported_and_its_batch_is_staged(
    register: CallRegister,
) -> None:
    """A report may come before its micro-batch is staged; it is read after that."""
    register.report("w", report("w-early"), runs_on)
    before = read(register)
    register.staged(0, [outcome("w-early", "late")])
    between = read(register)
    register.report("w", report("late", b"other"), runs_on)

    assert (before, between) == ([], [(RESULT, b"result")])
    assert read(register) == [(RESULT, b"result"), (RESULT, b"other")]
    assert register.count == 0


def test_a_second_report_of_a_call_is_ignored(register: CallRegister) -> None:
    """Only the first report of a call becomes a message."""
    register.staged(1, [outcome("a")])

    register.report("w", report("a"), runs_on)
    register.report("w", report("a", b"again"), runs_on)
    register.staged(2, [])

    assert read(register) == [(RESULT, b"result")]


def test_reports_of_calls_that_do_not_count_are_forgotten(register: CallRegister) -> None:
    """A task that was tried again has made calls of which no outcome speaks."""
    register.report("w", report("w-of a failed attempt"), runs_on)

    register.staged(3, [outcome("a")])
    register.staged(4, [outcome("w-of a failed attempt")])

    assert read(register) == []


def test_the_calls_of_a_worker_that_ends_are_lost(register: CallRegister) -> None:
    """Its calls are reported as lost, and those of other workers are not."""
    register.connected("other")
    register.staged(5, [outcome("a"), outcome("b", worker="other")])

    register.disconnected("w")

    assert read(register) == [(LOST, encoded_loss("a", has_begun=False))]
    assert register.is_pending()


def test_a_call_is_lost_whose_worker_has_ended_before_its_batch_was_staged(
    register: CallRegister,
) -> None:
    """Nobody would report about it."""
    register.disconnected("w")

    register.staged(6, [outcome("a")])

    assert read(register) == [(LOST, encoded_loss("a", has_begun=False))]


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_broken_network_blames_nobody_also_before_the_batch_is_staged(
    register: CallRegister, batches: int
) -> None:
    """The worker may go on, and let calls leave until it notices that the connection has failed."""
    register.disconnected("w", has_ended=False)
    for batch in range(batches):
        register.staged(batch, [])

    register.staged(batches, [outcome("a")])

    assert read(register) == [(LOST, encoded_loss("a", has_begun=False, has_ended=False))]


def test_a_loss_says_whether_the_call_had_begun_again(register: CallRegister) -> None:
    """The report that it has begun may come before its micro-batch is staged."""
    register.report("w", CallReport(attempt="early", begun=True), runs_on)
    register.staged(7, [outcome("early", "late", "waiting")])
    register.report("w", CallReport(attempt="late", begun=True), runs_on)
    before = read(register)

    register.disconnected("w")

    assert before == []
    assert read(register) == [
        (LOST, encoded_loss("early", has_begun=True)),
        (LOST, encoded_loss("late", has_begun=True)),
        (LOST, encoded_loss("waiting", has_begun=False)),
    ]


def test_a_loss_says_nothing_about_a_call_in_company_or_behind_a_broken_network(
    register: CallRegister,
) -> None:
    """Such a call may be innocent."""
    register.connected("other")
    register.staged(8, [outcome("a"), outcome("b", worker="other")])
    for name in ("a", "b"):
        register.report("w", CallReport(attempt=name, begun=True), runs_on)
    register.report("w", CallReport(attempt="a", accompanied=True), runs_on)

    register.disconnected("w")
    register.disconnected("other", has_ended=False)

    assert read(register) == [
        (LOST, encoded_loss("a", has_begun=False)),
        (LOST, encoded_loss("b", has_begun=False, has_ended=False)),
    ]


@pytest.mark.parametrize("is_staged", [True, False])
def test_a_loss_with_a_worker_that_ends_in_order_blames_nobody(
    register: CallRegister, *, is_staged: bool
) -> None:
    """It may have ended before the micro-batch that its calls have left is staged."""
    if is_staged:
        register.staged(0, [outcome("a")])
        register.report("w", CallReport(attempt="a", begun=True), runs_on)
    register.ends("w")
    register.disconnected("w")
    if not is_staged:
        register.staged(0, [outcome("a")])

    assert read(register) == [(LOST, encoded_loss("a", has_begun=False, has_ended=False))]


def test_some_ends_in_order_during_calls_of_an_address_count_as_one_loss(
    register: CallRegister,
) -> None:
    """The system may have killed the executors for the memory that the calls take; a result excuses the earlier ones."""
    is_counted = []
    for number in range(13):
        name, worker = f"{number}", f"w{number}"
        register.connected(worker)
        register.staged(number, [outcome(name, worker=worker)])
        if number == 5:
            register.report("w", report(name), runs_on)
            continue
        register.ends(worker)
        register.disconnected(worker)
        ((typename, value),) = read(register, number)
        assert typename == LOST
        is_counted.append(CallLoss.FromString(value).ended)

    assert is_counted == [*[False] * 3, True, False, *[False] * 3, True, *[False] * 3]


@pytest.mark.parametrize("leaves", [True, False])
def test_a_call_that_is_made_again_is_excused_anew_once_it_has_ended(
    register: CallRegister, *, leaves: bool
) -> None:
    """It may end within its micro-batch, and then brings no result; until it ends, each fourth orderly end counts."""
    is_counted = []
    for number in range(8):
        worker = f"w{number}"
        register.connected(worker)
        register.staged(2 * number, [outcome(f"{number}", worker=worker)])
        register.forget(number)  # it has left the micro-batch that has read of the loss before
        register.ends(worker)
        register.disconnected(worker)
        ((_, value),) = read(register, number)
        is_counted.append(CallLoss.FromString(value).ended)
        if not leaves:
            register.staged(2 * number + 1, [])
            register.forget(number + 1)

    assert is_counted == ([*[False] * 3, True] * 2 if leaves else [False] * 8)


def test_a_worker_that_has_ended_in_order_does_not_hide_the_one_that_ends_the_query(
    register: CallRegister, tmp_path: Path
) -> None:
    """The next run counts the losses of the first worker that has ended for another reason."""
    register.connected("idle")
    register.staged(0, [outcome("a")])
    register.ends("idle")
    register.disconnected("idle")
    register.disconnected("w")
    register.close(has_failed=True)

    assert read(new_register(tmp_path)) == [(LOST, encoded_loss("a", has_begun=False))]


def test_numbers_go_on_where_an_earlier_run_has_planned_to_read(tmp_path: Path) -> None:
    """What an earlier run has planned to read is gone, and new messages have further numbers."""
    register = new_register(tmp_path, 7)
    register.staged(9, [outcome("a")])
    register.report("w", report("a"), runs_on)

    assert register.messages(5, 7) == []
    assert [each.number for each in register.messages(7, 8)] == [8]


def test_read_messages_are_forgotten(register: CallRegister) -> None:
    """What is forgotten is not read again, and pending no more."""
    register.staged(10, [outcome("a")])
    register.report("w", report("a"), runs_on)

    register.forget(1)

    assert not register.is_pending()
    assert register.messages(0, 1) == []


def test_a_worker_waits_while_too_many_results_wait(register: CallRegister) -> None:
    """A report waits until a micro-batch has read earlier ones."""
    register.staged(11, [outcome("large", "next")])
    register.report("w", report("large", bytes(call_register._MOST_BYTES)), runs_on)  # noqa: SLF001 - its limit
    done = threading.Event()

    def send() -> None:
        register.report("w", report("next"), runs_on)
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    was_done = done.wait(0.05)
    register.forget(1)
    thread.join()

    assert (was_done, done.is_set()) == (False, True)
    assert register.readable(1, is_busy=False) == 2


def test_a_call_has_its_name_until_a_micro_batch_has_read_its_result(
    register: CallRegister,
) -> None:
    """A run that is stopped waits for it: else the call would be made again."""
    register.staged(12, [outcome("a", "b")])

    register.report("w", report("a"), runs_on)
    before = register.names()
    register.forget(1)

    assert (before, register.names()) == ({"a", "b"}, {"b"})


def test_the_next_run_makes_the_calls_again_that_this_one_leaves(
    register: CallRegister, tmp_path: Path
) -> None:
    """It reports them to their addresses as lost, unless a committed micro-batch has read their results."""
    lost = [(LOST, encoded_loss("a", has_begun=False, has_ended=False))]

    register.staged(0, [])
    register.close()
    nothing = read(new_register(tmp_path))
    register.staged(1, [outcome("a")])
    register.close()
    under_way = read(new_register(tmp_path))
    register.report("w", report("a"), runs_on)
    register.close()
    ended = read(new_register(tmp_path))
    register.forget(1)
    register.close()
    over = read(new_register(tmp_path))

    assert (nothing, under_way, ended, over) == ([], lost, lost, [])


def test_a_run_is_pending_until_it_has_made_the_calls_of_earlier_runs_again(
    register: CallRegister, tmp_path: Path
) -> None:
    """A bounded run waits for them; a run that ends earlier leaves them to the next one."""
    register.staged(0, [outcome("a")])
    second = new_register(tmp_path)
    second.close()
    third = new_register(tmp_path, 1)

    numbers = [each.number for each in third.messages(1, third.readable(1, is_busy=False))]
    before = third.is_pending()
    third.staged(2, [outcome("again")])
    third.forget(2)

    assert (numbers, before, third.names()) == ([2], True, {"again"})
    third.report("w", report("again"), runs_on)
    third.forget(3)
    assert not third.is_pending()


def losses_of_next_run(tmp_path: Path) -> list[CallLoss]:
    """Return what a further run reports to addresses first."""
    return [CallLoss.FromString(value) for _, value in read(new_register(tmp_path))]


def test_losses_count_over_runs_if_a_worker_has_ended_the_query(
    register: CallRegister, tmp_path: Path
) -> None:
    """Workers that end after the first one may have ended with the query; nobody is blamed for them."""
    register.connected("other")
    register.staged(1, [outcome("a", "b"), outcome("c", worker="other")])
    register.report("w", CallReport(attempt="a", begun=True), runs_on)
    register.disconnected("w")
    register.disconnected("other")
    register.close(has_failed=True)

    losses = {each.attempt: (each.ended, each.begun) for each in losses_of_next_run(tmp_path)}

    assert losses == {"a": (True, True), "b": (True, False), "c": (False, False)}
    assert {each.attempt for each in losses_of_next_run(tmp_path) if each.ended} == {"a", "b"}


def test_early_reports_take_room_until_their_batch_is_staged(register: CallRegister) -> None:
    """Those of attempts that do not count are dropped then, and those of other connections at once."""
    large = bytes(call_register._MOST_BYTES // 2)  # noqa: SLF001 - its limit
    register.staged(1, [outcome("w-0")])
    register.report("w", report("w-0"), runs_on)
    for name in ("w-1", "w-1", "former-1", "w-of a failed attempt"):
        register.report("w", report(name, large), runs_on)
    thread = threading.Thread(target=register.report, args=("w", report("w-2"), runs_on))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()

    register.staged(2, [outcome("w-1", "w-2")])
    thread.join()

    assert register.readable(2, is_busy=False) == 3
    register.forget(3)
    assert register._bytes == 0  # noqa: SLF001 - all room is free


def test_early_reports_hold_up_nothing_while_no_result_can_be_read(register: CallRegister) -> None:
    """No micro-batch might be staged, with which they leave."""
    large = bytes(call_register._MOST_BYTES)  # noqa: SLF001 - its limit
    register.staged(1, [outcome("w-1")])
    register.report("w", report("w-of a failed attempt", large), runs_on)
    register.report("w", report("w-1"), runs_on)

    assert read(register) == [(RESULT, b"result")]


@contextmanager
def ended_while_its_report_waits(register: CallRegister) -> Iterator[threading.Thread]:
    """Let worker ``w`` end while its report waits for room, and be noticed; reports wait no more after the block.

    It has call ``a``, and worker ``other`` has call ``b``.
    """
    register.connected("other")
    register.staged(1, [outcome("large", "next", "a"), outcome("b", worker="other")])
    register.report("w", report("large", bytes(call_register._MOST_BYTES)), runs_on)  # noqa: SLF001 - its limit
    is_noticed = threading.Event()

    def has_ended() -> bool:
        is_noticed.set()
        return True

    def serve() -> None:
        register.report("w", report("next"), has_ended)
        register.disconnected("w")

    thread = threading.Thread(target=serve)
    thread.start()
    is_noticed.wait()
    yield thread
    register.end_waiting()
    thread.join()


def test_a_worker_whose_report_waits_hides_no_other_one(
    register: CallRegister, tmp_path: Path
) -> None:
    """It has ended before a micro-batch that was staged: the query went on, until another worker has ended."""
    with ended_while_its_report_waits(register) as thread:
        register.staged(2, [])
        thread.join(0.2)  # it looks again
        register.disconnected("other")
    register.close(has_failed=True)

    assert {each.attempt for each in losses_of_next_run(tmp_path) if each.ended} == {"a", "b"}


def test_a_worker_that_ends_while_its_report_waits_has_ended_first(
    register: CallRegister, tmp_path: Path
) -> None:
    """It may have ended the query, with which other workers end; reports wait no more when the run is over."""
    with ended_while_its_report_waits(register):
        register.disconnected("other")
    register.close(has_failed=True)

    assert {each.attempt for each in losses_of_next_run(tmp_path) if each.ended} == {"a"}


def test_nobody_is_blamed_for_a_worker_without_calls_that_ends_the_query(
    register: CallRegister, tmp_path: Path
) -> None:
    """A plain function may be the reason; workers that end in earlier micro-batches are not."""
    register.connected("idle")
    register.connected("other")
    register.staged(1, [outcome("a", worker="other"), outcome("b")])
    register.disconnected("other")
    register.staged(2, [])
    register.disconnected("idle")
    register.disconnected("w")
    register.close(has_failed=True)

    assert {each.attempt: each.ended for each in losses_of_next_run(tmp_path)} == {
        "a": True,
        "b": False,
    }


def test_losses_of_a_run_that_is_stopped_do_not_count_in_the_next_one(
    register: CallRegister, tmp_path: Path
) -> None:
    """Who stops an application may end its workers first."""
    register.staged(1, [outcome("a")])
    register.disconnected("w")
    register.close()

    assert not any(each.ended for each in losses_of_next_run(tmp_path))


def test_a_loss_that_was_read_is_not_reported_again(register: CallRegister, tmp_path: Path) -> None:
    """A committed micro-batch has counted it: then the first unread one counts."""
    register.connected("other")
    register.staged(1, [outcome("a"), outcome("b", worker="other")])
    register.disconnected("w")
    register.staged(2, [])
    register.forget(1)
    register.disconnected("other")
    register.close(has_failed=True)

    assert [(each.attempt, each.ended) for each in losses_of_next_run(tmp_path)] == [("b", True)]


def test_losses_stay_in_the_log_until_they_are_read(register: CallRegister, tmp_path: Path) -> None:
    """Snapshots of the log have them, too."""
    register.staged(1, [outcome("a")])
    register.disconnected("w")
    register.close(has_failed=True)
    with patch.object(call_log, "_LOG_LENGTH", 1):
        new_register(tmp_path).staged(2, [outcome("b")])

    losses = {each.attempt: each.ended for each in losses_of_next_run(tmp_path)}

    assert losses == {"a": True, "b": False}


def test_a_call_that_asks_hears_whether_it_has_left_a_staged_batch(register: CallRegister) -> None:
    """It may ask before and after; a call of a task that does not count is refused, and a lost worker hears nothing."""
    answers: dict[str, bool] = {}
    register.ask("w", "early", partial(answers.__setitem__, "early"))
    register.ask("w", "of a failed attempt", partial(answers.__setitem__, "of a failed attempt"))
    register.connected("other")
    register.ask("other", "gone", partial(answers.__setitem__, "gone"))
    register.disconnected("other")
    before = dict(answers)
    register.staged(1, [outcome("early", "late")])
    register.ask("w", "late", partial(answers.__setitem__, "late"))

    assert before == {}
    assert answers == {"early": True, "of a failed attempt": False, "late": True}


class Runs:
    """Runs on one checkpoint, one after the other, whose calls leave, end and are lost."""

    def __init__(self, random: Random) -> None:
        chaos = Chaos(0)
        chaos.active = False
        self._random = random
        self.checkpoint = MemoryFolder("/c", Disk(), chaos)
        self._after = self._batch = 0
        self._numbers = count(1)
        self.under_way: set[str] = set()
        """The calls that the states of addresses have, by their names."""
        self.begin()

    def begin(self) -> None:
        """Begin another run; the former one may have planned to read more results than were read."""
        self._after += self._random.randint(0, 2)
        self.register = CallRegister(CallLog(self.checkpoint), self._after)
        self._workers: list[str] = []
        self._running: dict[str, str] = {}
        self._told: set[str] = set()
        self.connect()

    def connect(self) -> None:
        """Let a worker connect."""
        self._workers.append(f"w{next(self._numbers)}")
        self.register.connected(self._workers[-1])

    def leave(self) -> None:
        """Let calls leave a micro-batch; some have ended before it is staged, or their worker has."""
        self._batch += 1
        worker = self._random.choice(self._workers)
        names = [f"{worker}-{next(self._numbers)}" for _ in range(self._random.randint(1, 3))]
        self._running |= dict.fromkeys(names, worker)
        if self._random.random() < 0.3:
            self.report()
        if self._random.random() < 0.2:
            self.lose()
        self.register.staged(self._batch, [outcome(*names, worker=worker)])
        self.under_way.update(names)

    def report(self) -> None:
        """Let a worker report the result of a call, perhaps twice."""
        if self._running:
            name = self._random.choice([*self._running])
            for _ in range(self._random.randint(1, 2)):
                worker = name.rpartition("-")[0]
                self.register.report(worker, report(name, name.encode()), runs_on)
            del self._running[name]

    def lose(self) -> None:
        """Let a worker end with all of its calls."""
        worker = self._workers.pop(self._random.randrange(len(self._workers)))
        self._running = {name: each for name, each in self._running.items() if each != worker}
        self.register.disconnected(worker)
        self.connect()

    def read(self) -> None:
        """Commit a micro-batch that reads what is there: no call is heard of twice in a run."""
        last = self.register.readable(self._after, is_busy=False)
        for message in self.register.messages(self._after, last):
            is_lost = message.typename == LOST
            name = CallLoss.FromString(message.value).attempt if is_lost else message.value.decode()
            assert name not in self._told
            self._told.add(name)
            self.under_way.discard(name)
        self._after = last
        self.register.forget(last)

    def finish(self) -> None:
        """End all workers, and read what that causes."""
        for worker in self._workers:
            self.register.disconnected(worker)
        self.read()
        self.register.close()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["leave", "leave", "report", "lose", "read", "begin"]), max_size=40),
    st.randoms(use_true_random=False),
)
def test_each_address_hears_of_its_call(steps: list[str], random: Random) -> None:
    """Whatever ends and when: a call that no committed micro-batch has ended is reported by the present run."""
    with patch.object(call_log, "_LOG_LENGTH", 3), patch.object(call_log, "_MOST_ENDED", 2):
        runs = Runs(random)
        for step in steps:
            getattr(runs, step)()
            assert runs.under_way <= CallLog(runs.checkpoint).recover().keys()
        runs.finish()

    assert not runs.under_way
    assert not runs.register.is_pending()
    assert not CallLog(runs.checkpoint).recover()
