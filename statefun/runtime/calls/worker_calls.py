# SPDX-License-Identifier: Apache-2.0
"""The calls of a worker process that go on after their micro-batches, until the process ends.

Spark orders a worker to end if the worker was idle for long, or if its executor ends; in the second case, the worker's
daemon sends it a SIGHUP. This is an orderly end: the worker reports it to the driver, and gives its calls some time.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import wait as wait_for
from functools import cache
from typing import NamedTuple

from statefun.engine.call_limits import Company
from statefun.engine.call_loop import LeavingCalls
from statefun.runtime.calls.call_reports import CallReports
from statefun.runtime.calls.call_server import HANDSHAKE, CallServerAddress

MOST_CALLS = 10_000
"""The largest number of calls in a worker process that go on after their micro-batches have ended."""


class _CallsOfRun(NamedTuple):
    """The calls of a run in this process, and the object that sends reports about them."""

    calls: LeavingCalls
    reports: CallReports


_runs: dict[CallServerAddress, _CallsOfRun] = {}
"""Runs of one Spark session share its workers."""


def calls_of_worker(server: CallServerAddress) -> LeavingCalls:
    """Return the object that runs calls of this process and reports about them to the driver of a run."""
    run = _runs.get(server)
    if run is None:
        for other in [each for each, its in _runs.items() if not its.calls.is_connected]:
            del _runs[other]  # that run has ended, and nobody waits for its reports
        reports = CallReports(server)
        run = _runs[server] = _CallsOfRun(
            LeavingCalls(reports, MOST_CALLS, company_of_worker()), reports
        )
    return run.calls


@cache
def company_of_worker() -> Company:
    """Return the object that decides which calls run at the same time in this process; all runs share it."""
    return Company()


def wait_for_calls() -> None:
    """Wait until all calls of this process have ended and are reported; then report that the process ends."""
    _wait()
    _say_goodbye()


def end_in_order(number: int, _frame: object) -> None:
    """Handle the signal with which the daemon ends this process: let the process end after its calls.

    The process at once reports its orderly end to the driver, since it may be killed at any time from then on. It ends
    when its calls have ended, or when the longest grace of its runs is over; if no driver listens, it ends at once.
    """
    signal.signal(number, signal.SIG_DFL)
    # The main thread may run the event loop: the calls go on only if it does, too.
    threading.Thread(target=_finish, args=(number,), name="statefun end", daemon=True).start()


def _finish(number: int) -> None:
    """Report the end of the process, wait for its calls, and let the signal that it has got end the process."""
    _say_goodbye()
    graces = [server.grace for server, run in [*_runs.items()] if run.calls.is_connected]
    if graces:
        waiting = threading.Thread(target=_wait, daemon=True)
        waiting.start()
        waiting.join(max(graces).total_seconds())
    os.kill(os.getpid(), number)


def _wait() -> None:
    for run in [*_runs.values()]:
        run.calls.wait()


def _say_goodbye() -> None:
    wait_for([run.reports.ends() for run in [*_runs.values()]], HANDSHAKE.total_seconds())
