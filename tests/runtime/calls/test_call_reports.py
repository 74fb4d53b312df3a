# SPDX-License-Identifier: Apache-2.0
"""Reports of workers to the driver, over a real connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from multiprocessing.connection import Client

import attrs
import pytest
from harness import wait

from statefun.engine.left_calls import LOST, RESULT
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.calls.call_register import CallRegister
from statefun.runtime.calls.call_reports import CallReports
from statefun.runtime.calls.call_server import CallServer

KEY = b"Ada\0t/f"


@pytest.fixture
def register() -> CallRegister:
    """Return an empty register."""
    return CallRegister()


@pytest.fixture
def server(register: CallRegister) -> Iterator[CallServer]:
    """Serve the register."""
    server = CallServer(register, "run", "127.0.0.1")
    yield server
    server.close()


def staged(register: CallRegister, reports: CallReports, attempt: str) -> None:
    """Stage a micro-batch that a call has left."""
    call = Outcome.Detached(address=KEY, attempt=attempt, worker=reports.worker)
    register.staged([Outcome(detached=[call])])


def messages(register: CallRegister) -> list[tuple[str, bytes]]:
    """Wait for messages, and return their types and values."""
    wait(lambda: register.readable(0, is_busy=False) > 0)
    return [(each.typename, each.value) for each in register.messages(0, 1)]


def test_a_worker_reports_results(register: CallRegister, server: CallServer) -> None:
    """A result of any size comes to the driver."""
    reports = CallReports(server.address)
    assert reports.open()
    staged(register, reports, "a")
    result = bytes(range(256)) * 100_000

    reports.report(KEY, "a", result)
    reports.wait()

    assert messages(register) == [(RESULT, result)]


def test_a_call_without_a_result_is_lost(register: CallRegister, server: CallServer) -> None:
    """It is made again."""
    reports = CallReports(server.address)
    reports.open()
    staged(register, reports, "a")

    reports.report(KEY, "a", None)

    assert messages(register) == [(LOST, b"a")]


def test_a_worker_that_ends_has_lost_its_calls(register: CallRegister, server: CallServer) -> None:
    """The end of the connection is enough to know it."""
    reports = CallReports(server.address)
    reports.open()
    staged(register, reports, "a")

    reports._connection.close()  # type: ignore[union-attr] # noqa: SLF001 - as the end of the process does

    assert messages(register) == [(LOST, b"a")]


def test_a_stranger_is_refused(register: CallRegister, server: CallServer) -> None:
    """Without the key of the run nobody can report, or find out more than that."""
    strangers = CallReports(attrs.evolve(server.address, key=b"guessed"))

    assert not strangers.open()

    # One that says nothing at all holds nobody up.
    with socket.create_connection((server.address.host, server.address.port)):
        reports = CallReports(server.address)
        assert reports.open()
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

    assert CallReports(server.address).open()


def test_a_driver_that_is_gone_lets_no_call_leave(server: CallServer) -> None:
    """A worker that cannot report keeps its calls in their micro-batches."""
    server.close()

    assert not CallReports(server.address).open()
