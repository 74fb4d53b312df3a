# SPDX-License-Identifier: Apache-2.0
"""Reports of workers to the driver, over a real connection."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from multiprocessing.connection import Client
from pathlib import Path

import attrs
import pytest
from harness import wait
from local_servers import free_port

from statefun.engine.left_calls import LOST, RESULT, encoded_loss
from statefun.protocol.runtime_pb2 import CallLoss, CallReport, Outcome
from statefun.runtime.calls import call_register, call_reports, call_server
from statefun.runtime.calls.call_register import CallRegister
from statefun.runtime.calls.call_reports import CallReports
from statefun.runtime.calls.call_server import CallServer
from statefun.runtime.calls.call_sockets import shut
from statefun.runtime.calls.worker_calls import calls_of_worker
from statefun.runtime.checkpoint.call_log import CallLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.errors import PlatformError

KEY = b"Ada\0t/f"


def opened(reports: CallReports) -> CallReports:
    """Wait for the connection of a worker."""
    wait(reports.open)
    return reports


def refused(reports: CallReports) -> bool:
    """Return whether a worker cannot connect, and does not try again at once."""
    reports.open()
    wait(lambda: not reports._is_connecting)  # noqa: SLF001 - its thread has ended
    return not reports.open() and not reports._is_connecting  # noqa: SLF001 - as above


def threads() -> set[threading.Thread]:
    """Return the threads that serve or make connections."""
    names = ("statefun call reports", "statefun reports")
    return {each for each in threading.enumerate() if each.name in names}


def staged(register: CallRegister, reports: CallReports, *attempts: str) -> None:
    """Stage a micro-batch that calls have left."""
    calls = [
        Outcome.Detached(address=KEY, attempt=each, worker=reports.worker) for each in attempts
    ]
    register.staged(0, [Outcome(detached=calls)])


def messages(register: CallRegister) -> list[tuple[str, bytes]]:
    """Wait for messages, and return their types and values."""
    wait(lambda: register.readable(0, is_busy=False) > 0)
    return [(each.typename, each.value) for each in register.messages(0, 1)]


def test_a_worker_reports_results(register: CallRegister, server: CallServer) -> None:
    """A result of any size comes to the driver."""
    reports = opened(CallReports(server.address))
    staged(register, reports, "a")
    result = bytes(range(256)) * 100_000

    reports.report(KEY, "a", result)
    reports.wait()

    assert messages(register) == [(RESULT, result)]


def test_a_call_without_a_result_is_lost(register: CallRegister, server: CallServer) -> None:
    """It is made again."""
    reports = opened(CallReports(server.address))
    staged(register, reports, "a")

    reports.report(KEY, "a", None)

    assert messages(register) == [(LOST, encoded_loss("a", has_begun=False))]


def test_a_worker_that_ends_has_lost_its_calls(register: CallRegister, server: CallServer) -> None:
    """The end of the connection is enough to know it."""
    reports = opened(CallReports(server.address))
    staged(register, reports, "a")

    shut(reports._line.connection)  # type: ignore[union-attr] # noqa: SLF001 - as the end of the process does

    assert messages(register) == [(LOST, encoded_loss("a", has_begun=False))]


def test_a_worker_that_ends_in_order_has_lost_its_calls_for_no_reason_of_theirs(
    register: CallRegister, server: CallServer
) -> None:
    """It says so before its connection ends, as Spark may end idle workers and executors at any time."""
    reports = opened(CallReports(server.address))
    staged(register, reports, "a")

    reports.ends().result()
    shut(reports._line.connection)  # type: ignore[union-attr] # noqa: SLF001 - as the end of the process does

    assert messages(register) == [(LOST, encoded_loss("a", has_begun=False, has_ended=False))]


_WORKER = """
import signal, sys, threading, time
from datetime import timedelta
from statefun.engine.running_calls import RunningCall
from statefun.runtime.calls.call_server import CallServerAddress
from statefun.runtime.calls.worker_calls import calls_of_worker, end_in_order

port, key, grace = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), float(sys.argv[3])
calls = calls_of_worker(CallServerAddress("127.0.0.1", port, key, timedelta(seconds=grace)))
signal.signal(signal.SIGHUP, end_in_order)
while not calls.reporting_worker():
    time.sleep(0.01)

async def call(running):
    import asyncio
    running.take(object())
    calls.begin(running, "t/f", timedelta(0))
    while not running.attempt:
        await asyncio.sleep(0.01)
    if running.attempt.endswith("-1"):
        while signal.getsignal(signal.SIGHUP) != signal.SIG_DFL:
            await asyncio.sleep(0.01)
        calls.report(b"Ada\\0t/f", running.attempt, b"result")
    else:
        await asyncio.sleep(600)

print(*(left.attempt for left in calls.run([call, call], 2)), calls._reports.worker, flush=True)
time.sleep(600)
"""


def test_a_worker_whose_daemon_ends_says_so_and_gives_its_calls_some_time(
    register: CallRegister, server: CallServer
) -> None:
    """One call ends in time and has its result; the other one is lost, and is not the reason."""
    port, key = str(server.address.port), server.address.key.hex()
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, port, key, "3"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first, second, worker = process.stdout.readline().split()
        calls = [
            Outcome.Detached(address=KEY, attempt=each, worker=worker) for each in (first, second)
        ]
        register.staged(0, [Outcome(detached=calls)])
        process.send_signal(signal.SIGHUP)

    wait(lambda: register.readable(0, is_busy=False) == 2)
    assert [(each.typename, each.value) for each in register.messages(0, 2)] == [
        (RESULT, b"result"),
        (LOST, encoded_loss(second, has_begun=False, has_ended=False)),
    ]
    assert process.returncode == -signal.SIGHUP


def test_a_worker_reports_that_a_call_has_begun_again(
    register: CallRegister, server: CallServer
) -> None:
    """Such a report is no result, and comes before the worker's end."""
    reports = opened(CallReports(server.address))
    staged(register, reports, "a")

    reports.begun("a")
    reports.wait()
    shut(reports._line.connection)  # type: ignore[union-attr] # noqa: SLF001 - as the end of the process does

    assert messages(register) == [(LOST, encoded_loss("a", has_begun=True))]


def test_a_call_that_waits_hears_that_its_batch_is_staged(
    register: CallRegister, server: CallServer
) -> None:
    """If the connection ends before, the call is given up."""
    reports = opened(CallReports(server.address))
    first, second = reports.left("a"), reports.left("b")
    reports.wait()
    call = Outcome.Detached(address=KEY, attempt="a", worker=reports.worker)
    wait(lambda: len(register._asked) == 2)  # noqa: SLF001 - the driver knows of both

    register.staged(0, [Outcome(detached=[call])])
    answers = first.result(), second.result()
    third = reports.left("c")
    server.close()

    assert answers == (True, False)
    assert not third.result()
    wait(lambda: not reports.worker)
    assert not reports.left("d").result()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say that a peer has gone")
def test_the_last_reports_of_a_worker_that_ends_the_query_are_read(
    server: CallServer, register: CallRegister, tmp_path: Path
) -> None:
    """The register is closed after that, so that the next run knows which calls were lost."""
    address = (server.address.host, server.address.port)
    with Client(address, authkey=server.address.key) as connection:
        connection.send_bytes(b"worker")
        connection.recv_bytes()
        call = Outcome.Detached(address=KEY, attempt="a", worker="worker")
        register.staged(0, [Outcome(detached=[call])])
        with register._changed:  # noqa: SLF001 - the driver is slow to read
            connection.send_bytes(CallReport(attempt="a", begun=True).SerializeToString())
            connection.close()
            closing = threading.Thread(target=server.close, kwargs={"has_failed": True})
            closing.start()
        closing.join()

    log = CallLog(Folder.at(tmp_path))
    log.recover()
    assert log.losses == {"a": CallLoss(attempt="a", begun=True, ended=True)}


def test_a_stranger_is_refused(register: CallRegister, server: CallServer) -> None:
    """Without the key of the run nobody can report, or find out more than that."""
    strangers = CallReports(attrs.evolve(server.address, key=b"guessed"))

    assert refused(strangers)

    # One that says nothing at all holds nobody up.
    with socket.create_connection((server.address.host, server.address.port)):
        reports = opened(CallReports(server.address))
        staged(register, reports, "a")
        reports.report(KEY, "a", b"result")
        assert messages(register) == [(RESULT, b"result")]


def test_a_report_that_is_none_ends_its_connection(
    register: CallRegister, server: CallServer
) -> None:
    """The driver goes on."""
    address = (server.address.host, server.address.port)
    with Client(address, authkey=server.address.key) as connection:
        connection.send_bytes(b"worker")
        connection.recv_bytes()
        connection.send_bytes(b"\xff\xff no report")
        with pytest.raises(EOFError):
            connection.recv_bytes()

    assert opened(CallReports(server.address)).worker


def test_a_driver_that_is_gone_lets_no_call_leave(server: CallServer) -> None:
    """A worker that cannot report keeps its calls in their micro-batches."""
    server.close()

    assert refused(CallReports(server.address))


def test_a_worker_notices_at_once_that_the_driver_is_gone(
    register: CallRegister, server: CallServer
) -> None:
    """Its next call does not leave, instead of being lost; what it still reports is for nobody."""
    reports = opened(CallReports(server.address))

    server.close()
    wait(lambda: not reports.worker)
    reports.report(KEY, "a", b"result")
    reports.wait()

    assert refused(reports)


def test_reports_that_cannot_be_sent_are_logged_together(
    server: CallServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker with many calls does not write a line for each of them."""
    reports = opened(CallReports(server.address))
    with reports._changed:  # noqa: SLF001 - the worker notices the end of the connection later
        shut(reports._line.connection)  # type: ignore[union-attr] # noqa: SLF001 - as a failure does
        for number in range(1000):
            reports.report(KEY, str(number), b"result")
    reports.wait()

    def lines() -> list[str]:
        return [each for each in caplog.messages if "could not be sent" in each]

    wait(lambda: bool(lines()))
    (line,) = lines()
    assert line.startswith("1,000 reports about calls could not be sent to the driver: ")


def test_no_further_call_leaves_while_too_many_results_wait_to_be_sent(
    register: CallRegister, server: CallServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has no room for them, and takes none until a micro-batch has read others."""
    monkeypatch.setattr(call_register, "_MOST_BYTES", 1)
    monkeypatch.setattr(call_reports, "_MOST_UNSENT", 20_000_000)
    reports = opened(CallReports(server.address))
    staged(register, reports, *"abcdefgh")
    for name in "abcdefgh":  # sockets may hold one or two of them
        reports.report(KEY, name, bytes(10_000_000))
    wait(lambda: register.readable(0, is_busy=False) == 1)

    assert not reports.open()
    for number in range(1, 9):
        wait(lambda: register.readable(number - 1, is_busy=False) == number)  # noqa: B023 - waits at once
        register.forget(number)
    wait(reports.open)


def test_neither_side_keeps_threads_of_a_run_that_has_ended(register: CallRegister) -> None:
    """Driver and workers may live on, and begin other runs."""
    before = threads()  # those of other tests may still end
    for _ in range(3):
        server = CallServer(register, "127.0.0.1")
        reports = opened(CallReports(server.address))
        assert threads() - before
        server.close()
        wait(lambda reports=reports: not reports.worker)  # type: ignore[misc]

    wait(lambda: threads() <= before)


def test_a_port_that_is_set_serves_one_run_after_the_other(register: CallRegister) -> None:
    """The port is free as soon as a server is closed; meanwhile, another server is refused with one sentence."""
    port = free_port()
    for _ in range(3):
        server = CallServer(register, "127.0.0.1", port=port)
        assert server.address.port == port
        with pytest.raises(PlatformError) as caught:
            CallServer(register, "127.0.0.1", port=port)
        assert caught.value.message == (
            f"the driver cannot listen at 127.0.0.1, port {port}, for reports about long calls: Address already in use; "
            "give spark.statefun.call-port another port, or 0 for any free one"
        )
        reports = opened(CallReports(server.address))
        server.close()
        wait(lambda reports=reports: not reports.worker)  # type: ignore[misc]


def test_runs_that_share_a_worker_keep_their_connections(
    register: CallRegister, server: CallServer
) -> None:
    """Micro-batches of two runs may come in turn; a run that has ended is forgotten."""
    other = CallServer(register, "127.0.0.1")
    calls = {}
    for each in (server.address, other.address):
        calls[each] = calls_of_worker(each)
        wait(calls[each]._reports.open)  # noqa: SLF001 - as a call does that may leave

    assert {each: calls_of_worker(each) for each in calls} == calls

    other.close()
    wait(lambda: not calls[other.address].is_connected)
    assert calls_of_worker(attrs.evolve(server.address, port=1)) not in calls.values()
    assert calls_of_worker(server.address) is calls[server.address]
    assert calls_of_worker(other.address) is not calls[other.address]


def test_a_stranger_that_says_nothing_is_sent_away(
    server: CallServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each would keep a thread and a file of the driver."""
    monkeypatch.setattr(call_server, "HANDSHAKE", timedelta(milliseconds=50))
    with socket.create_connection((server.address.host, server.address.port)) as stranger:
        challenge = stranger.recv(1000)
        rest = stranger.recv(1000)

    assert challenge
    assert rest == b""


def test_a_driver_may_listen_on_an_address_of_ipv6(register: CallRegister) -> None:
    """Spark writes it in brackets."""
    try:
        server = CallServer(register, "[::1]")
    except OSError:
        pytest.skip("this machine has no IPv6")
    reports = opened(CallReports(server.address))
    server.close()

    wait(lambda: not reports.worker)
