# SPDX-License-Identifier: Apache-2.0
"""The driver's register of calls that have left, as an inbox."""

from __future__ import annotations

import threading

from statefun.engine.left_calls import LOST, RESULT, encoded_loss
from statefun.protocol.runtime_pb2 import CallReport, Outcome
from statefun.runtime.calls import call_register
from statefun.runtime.calls.call_register import CallRegister

KEY = b"Ada\0t/f"


def outcome(*attempts: str, worker: str = "w") -> Outcome:
    """Return the outcome of a task with calls that have left."""
    calls = [Outcome.Detached(address=KEY, attempt=name, worker=worker) for name in attempts]
    return Outcome(detached=calls)


def report(attempt: str, result: bytes = b"result") -> CallReport:
    """Return what a worker reports."""
    return CallReport(address=KEY, attempt=attempt, result=result)


def read(register: CallRegister, after: int = 0) -> list[tuple[str, bytes]]:
    """Read what is there: types and values."""
    last = register.readable(after, is_busy=False)
    return [(each.typename, each.value) for each in register.messages(after, last)]


def connected() -> CallRegister:
    """Return a register with a worker."""
    register = CallRegister()
    register.connected("w")
    return register


def test_a_result_is_read_once_it_is_reported_and_its_batch_is_staged() -> None:
    """A report may come before its micro-batch is staged; it is read after that."""
    register = connected()

    register.report(report("early"))
    before = read(register)
    register.staged([outcome("early", "late")])
    between = read(register)
    register.report(report("late", b"other"))

    assert (before, between) == ([], [(RESULT, b"result")])
    assert read(register) == [(RESULT, b"result"), (RESULT, b"other")]
    assert register.count == 0


def test_a_second_report_of_a_call_is_ignored() -> None:
    """Only the first report of a call becomes a message."""
    register = connected()
    register.staged([outcome("a")])

    register.report(report("a"))
    register.report(report("a", b"again"))
    register.staged([])

    assert read(register) == [(RESULT, b"result")]


def test_reports_of_calls_that_do_not_count_are_forgotten() -> None:
    """A task that was tried again has made calls of which no outcome speaks."""
    register = connected()
    register.report(report("of a failed attempt"))

    register.staged([outcome("a")])
    register.staged([outcome("of a failed attempt")])

    assert read(register) == []


def test_the_calls_of_a_worker_that_ends_are_lost() -> None:
    """Its calls are reported as lost, and those of other workers are not."""
    register = connected()
    register.connected("other")
    register.staged([outcome("a"), outcome("b", worker="other")])

    register.disconnected("w")

    assert read(register) == [(LOST, encoded_loss("a", has_begun=False))]
    assert register.is_pending()


def test_a_call_is_lost_whose_worker_has_ended_before_its_batch_was_staged() -> None:
    """Nobody would report about it."""
    register = connected()
    register.disconnected("w")

    register.staged([outcome("a")])

    assert read(register) == [(LOST, encoded_loss("a", has_begun=False))]


def test_a_loss_says_whether_the_call_had_begun_again() -> None:
    """The report that it has begun may come before its micro-batch is staged."""
    register = connected()
    register.report(CallReport(attempt="early", begun=True))
    register.staged([outcome("early", "late", "waiting")])
    register.report(CallReport(attempt="late", begun=True))
    before = read(register)

    register.disconnected("w")

    assert before == []
    assert read(register) == [
        (LOST, encoded_loss("early", has_begun=True)),
        (LOST, encoded_loss("late", has_begun=True)),
        (LOST, encoded_loss("waiting", has_begun=False)),
    ]


def test_numbers_go_on_where_an_earlier_run_has_planned_to_read() -> None:
    """What an earlier run has planned to read is gone, and new messages have further numbers."""
    register = CallRegister(7)
    register.connected("w")
    register.staged([outcome("a")])
    register.report(report("a"))

    assert register.messages(5, 7) == []
    assert [each.number for each in register.messages(7, 8)] == [8]


def test_read_messages_are_forgotten() -> None:
    """What is forgotten is not read again, and pending no more."""
    register = connected()
    register.staged([outcome("a")])
    register.report(report("a"))

    register.forget(1)

    assert not register.is_pending()
    assert register.messages(0, 1) == []


def test_a_worker_waits_while_too_many_results_wait() -> None:
    """A report waits until a micro-batch has read earlier ones."""
    register = connected()
    register.staged([outcome("large", "next")])
    register.report(report("large", bytes(call_register._MOST_BYTES)))  # noqa: SLF001 - its limit
    done = threading.Event()

    def send() -> None:
        register.report(report("next"))
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    was_done = done.wait(0.05)
    register.forget(1)
    thread.join()

    assert (was_done, done.is_set()) == (False, True)
    assert register.readable(1, is_busy=False) == 2


def test_a_call_has_its_name_until_a_micro_batch_has_read_its_result() -> None:
    """A run that is stopped waits for it: else the call would be made again."""
    register = connected()
    register.staged([outcome("a", "b")])

    register.report(report("a"))
    before = register.names()
    register.forget(1)

    assert (before, register.names()) == ({"a", "b"}, {"b"})
