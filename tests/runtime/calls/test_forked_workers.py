# SPDX-License-Identifier: Apache-2.0
"""A worker that has forked processes of its own, such as those of a ProcessPoolExecutor, and is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from statefun.engine.left_calls import LOST
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.calls.call_register import CallRegister
from statefun.runtime.calls.call_server import CallServer

KEY = b"Ada\0t/f"

_WORKER = """
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from statefun.runtime.calls.call_server import CallServerAddress
from statefun.runtime.calls.worker_calls import calls_of_worker

calls = calls_of_worker(CallServerAddress("127.0.0.1", int(sys.argv[1]), bytes.fromhex(sys.argv[2]), timedelta(0)))
while not (worker := calls.reporting_worker()):
    time.sleep(0.01)
pool = sys.argv[3] == "True" and ProcessPoolExecutor(1, multiprocessing.get_context("fork"))  # Linux's default until Python 3.14
child = pool.submit(os.getpid).result() if pool else 2**22
print(worker, child, flush=True)
time.sleep(600)
"""


_FORKED_MEANWHILE = """
import os, socket, sys, time
from datetime import timedelta
from statefun.runtime.calls.call_server import CallServerAddress
from statefun.runtime.calls.worker_calls import calls_of_worker

connect, children = socket.socket.connect, []

def connect_slowly(self, address):
    connect(self, address)
    if not children:
        child = os.fork()
        if not child:
            time.sleep(600)
            os._exit(0)
        children.append(child)

socket.socket.connect = connect_slowly
calls = calls_of_worker(CallServerAddress("127.0.0.1", int(sys.argv[1]), bytes.fromhex(sys.argv[2]), timedelta(0)))
while not (worker := calls.reporting_worker()):
    time.sleep(0.01)
print(worker, children[0], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("program", "forks"), [(_WORKER, False), (_WORKER, True), (_FORKED_MEANWHILE, True)]
)
def test_the_calls_of_a_killed_worker_are_lost_although_its_children_live_on(
    register: CallRegister, server: CallServer, program: str, *, forks: bool
) -> None:
    """Otherwise nobody makes them again before the application is restarted, and their addresses wait."""
    arguments = [str(server.address.port), server.address.key.hex(), str(forks)]
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker, child = process.stdout.readline().split()
        call = Outcome.Detached(address=KEY, attempt=f"{worker}-1", worker=worker)
        register.staged(0, [Outcome(detached=[call])])
        process.send_signal(signal.SIGKILL)
        process.wait()
        try:
            end = time.monotonic() + 35  # longer than TCP takes to notice that a machine is gone
            while not register.readable(0, is_busy=False) and time.monotonic() < end:
                time.sleep(0.1)
        finally:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
    assert [each.typename for each in register.messages(0, 1)] == [LOST]
