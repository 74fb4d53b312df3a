# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.reporting.problem_logs import EndpointLog, FailureLog
from statefun.runtime.reporting.summary import Summary


def failed(kind: str, text: str, count: int = 1) -> Outcome:
    """Return the outcome of a task that has skipped messages."""
    outcome = Outcome(skipped=count)
    outcome.examples.add(kind=kind, what="skipped", text=text, count=count)
    return outcome


def test_each_kind_of_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The first failure of a kind at once, later failures together after a while."""
    now = [0.0]
    summary = Summary()
    log = FailureLog(summary, lambda: now[0])
    log.add(failed("a", "one"))
    log.add(failed("b", "two", 2))
    log.log()
    log.add(failed("a", "three"))
    log.add(failed("a", "four"))
    log.add(failed("c", "five"))
    log.log()
    now[0] = 11
    log.log()
    log.add(failed("a", "six"))
    log.log(at_once=True)
    assert [line.removeprefix("messages not handled: ") for line in caplog.messages] == [
        "1 skipped; such as: one",
        "2 skipped; such as: two",
        "1 skipped; such as: five",
        "2 skipped; such as: three",
        "1 skipped; such as: six",
    ]
    assert summary.skipped == 7


def test_of_very_many_kinds_some_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Clients may invent names of functions: the others are counted in one line after a while, or at the end."""
    now = [0.0]
    summary = Summary()
    log = FailureLog(summary, lambda: now[0])
    for second in range(20):
        now[0] = second
        for number in range(100):
            log.add(failed(f"{second}/{number}", "not there"))
        log.log()
    log.log(at_once=True)
    further = [line for line in caplog.messages if "further" in line]
    assert (
        further
        == [
            "messages not handled: 950 further lines left out; the metrics count all failures by function"
        ]
        * 2
    )
    assert len(caplog.messages) - len(further) == 2 * 50
    assert summary.skipped == 2000


def test_a_kind_that_is_left_out_counts_once_in_an_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However often it fails."""
    now = [0.0]
    log = FailureLog(Summary(), lambda: now[0])
    for second in range(12):
        now[0] = second
        for number in range(60):
            log.add(failed(f"{number}", "not there"))
        log.log()
    further = [line for line in caplog.messages if "further" in line]
    assert further == [
        "messages not handled: 10 further lines left out; the metrics count all failures by function"
    ]


def circuit_of(worker: str, problem: str = "") -> Outcome:
    """Return the outcome of a task with a worker's report about an endpoint."""
    outcome = Outcome()
    outcome.circuits.add(endpoint="http://it", problem=problem, worker=worker)
    return outcome


def test_an_unreachable_endpoint_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """It can be reached again when no worker says otherwise."""
    summary = Summary()
    log = EndpointLog(summary)
    for worker in ("a", "b", "a"):
        log.add(circuit_of(worker, "is down"))
    assert summary.endpoints_down == 1
    log.add(circuit_of("a"))
    assert summary.endpoints_down == 1
    log.add(circuit_of("c"))
    log.add(circuit_of("b"))
    assert summary.endpoints_down == 0
    assert [record.message for record in caplog.records] == [
        "endpoint http://it is down; messages to its functions wait until it can be reached",
        "endpoint http://it can be reached again",
    ]


def test_of_very_many_endpoints_some_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Clients may invent hosts: the others are counted in a line each about those that are down and up."""
    now = [0.0]
    log = EndpointLog(Summary(), lambda: now[0])
    for problem in ("is down", ""):
        outcome = Outcome()
        for number in range(60):
            outcome.circuits.add(endpoint=f"http://{number}", problem=problem, worker="a")
        log.add(outcome)
    log.look(at_once=True)
    assert sorted(caplog.messages[100:]) == [
        "10 further endpoints can be reached again",
        "10 further endpoints cannot be reached; messages to their functions wait",
    ]


def test_the_last_report_of_a_worker_expires() -> None:
    """The worker may have ended."""
    now = [0.0]
    summary = Summary()
    log = EndpointLog(summary, lambda: now[0])
    log.add(circuit_of("a", "is down"))
    now[0] = 500
    log.look()
    assert summary.endpoints_down == 1
    now[0] = 601
    log.look()
    assert summary.endpoints_down == 0


def test_two_threads_may_report_at_the_same_time(caplog: pytest.LogCaptureFixture) -> None:
    """The run's thread and the query's thread find that endpoints are up; each is logged once."""
    now = [0.0]
    summary = Summary()
    log = EndpointLog(summary, lambda: now[0])
    for endpoint in ("http://a", "http://b"):
        outcome = Outcome()
        outcome.circuits.add(endpoint=endpoint, problem="is down", worker="a")
        log.add(outcome)
    now[0] = 700
    caplog.clear()

    def look_in_another_thread(record: logging.LogRecord) -> bool:
        if threading.current_thread() is threading.main_thread():
            with ThreadPoolExecutor(1) as threads:
                threads.submit(log.look).result()
        return True

    logger = logging.getLogger("statefun")
    logger.addFilter(look_in_another_thread)
    try:
        log.look()
    finally:
        logger.removeFilter(look_in_another_thread)

    assert sorted(caplog.messages) == [
        "endpoint http://a can be reached again",
        "endpoint http://b can be reached again",
    ]
    assert summary.endpoints_down == 0
