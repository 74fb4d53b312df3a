# SPDX-License-Identifier: Apache-2.0
"""A call that has run alone to its end, and the end of its process right after that."""

from __future__ import annotations

import subprocess
import sys

import pytest
from harness import wait

from statefun.engine.left_calls import LOST, RESULT
from statefun.protocol.runtime_pb2 import CallLoss, Outcome
from statefun.runtime.calls.call_register import CallRegister
from statefun.runtime.calls.call_server import CallServer
from statefun.runtime.checkpoint.inbox import AcceptedMessage

KEY = b"x\0t/long"

_WORKER = """
import asyncio, os, sys, threading, time
from datetime import timedelta
from statefun import Context, IntType, Message, StatefulFunctions, StringType, ValueSpec
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.left_calls import MOST_LOST
from statefun.engine.program import Program
from statefun.runtime.calls.call_server import CallServerAddress
from statefun.runtime.calls.worker_calls import calls_of_worker
from statefun.testing.message_rows import MessageRow, columns_of
from statefun.testing.micro_batch import StoppedClock

port, key, size = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), int(sys.argv[3])
calls = calls_of_worker(CallServerAddress("127.0.0.1", port, key, timedelta(0)))
while not calls.reporting_worker():
    time.sleep(0.01)
functions, may_end, has_begun = StatefulFunctions(), threading.Event(), threading.Event()

@functions.bind("t/long", [ValueSpec("text", StringType)])
async def long(ctx: Context, _message: Message) -> None:
    has_begun.set()
    await asyncio.to_thread(may_end.wait)
    ctx.storage.text = "x" * size

@functions.bind("t/plain")
def plain(_ctx: Context, _message: Message) -> None:
    os._exit(1)  # as a crash of a library does

def run(row, lost=0):
    dispatcher = Dispatcher(
        Program(functions, {}), BatchClock(StoppedClock(1_000_000), 1_000_000), batch=1,
        delivered_up_to=0, concurrency=10, immediate=0, runner=calls,
    )
    values = AddressValues(None)
    values.count_lost(lost)
    with calls.plain_calls():
        list(dispatcher.dispatch([Group(row.target, columns_of([row]), 0, 1, values)], Effects()))
    return dispatcher.summary()

[left] = run(MessageRow(b"x\\0t/long", None, StringType.typename, b""), MOST_LOST - 1).detached
print(left.attempt, left.worker, flush=True)
has_begun.wait()
threading.Timer(0.2, may_end.set).start()
run(MessageRow(b"y\\0t/plain", None, StringType.typename, b""))
"""


_SLOW_NETWORK = """
import time
from multiprocessing.connection import Connection
send_bytes = Connection.send_bytes

def send_later(self, content):
    time.sleep(0.1)
    send_bytes(self, content)

Connection.send_bytes = send_later
"""
_NEVER_ENDS = """
import statefun.engine.call_limits
from datetime import timedelta
statefun.engine.call_limits.MOST_ALONE = timedelta(seconds=1)
"""


_KILLED = """
from statefun.engine import left_calls

def killed(*_args):  # as the system does if the copies of a large result take all memory
    os._exit(1)

left_calls.encoded_result = killed
"""


def last_report(
    register: CallRegister, server: CallServer, program: str, size: int
) -> AcceptedMessage:
    """Run a worker to its end; return what its call's address gets."""
    port, key = str(server.address.port), server.address.key.hex()
    with subprocess.Popen(
        [sys.executable, "-c", program, port, key, str(size)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        attempt, worker = process.stdout.readline().split()
        call = Outcome.Detached(address=KEY, attempt=attempt, worker=worker)
        register.staged(0, [Outcome(detached=[call])])
    assert process.returncode == 1
    wait(lambda: register.readable(0, is_busy=False) == 1)
    [report] = register.messages(0, 1)
    return report


@pytest.mark.parametrize("size", [10, 20 * 1024 * 1024])
def test_a_call_that_has_ended_is_not_blamed_for_a_plain_function_that_waited_for_it(
    register: CallRegister, server: CallServer, size: int
) -> None:
    """The plain function ends the process; the call that had run alone was over before it began."""
    report = last_report(register, server, _SLOW_NETWORK + _WORKER, size)

    assert report.typename == RESULT or not CallLoss.FromString(report.value).begun


def test_a_call_that_is_alone_no_longer_is_not_blamed(
    register: CallRegister, server: CallServer
) -> None:
    """The minute is over, so a plain function begins, and ends the process at once."""
    program = _SLOW_NETWORK + _NEVER_ENDS + _WORKER.replace("Timer(0.2,", "Timer(600,")
    report = last_report(register, server, program, 1)

    assert (report.typename, CallLoss.FromString(report.value).begun) == (LOST, False)


def test_a_call_whose_result_ends_the_process_is_blamed(
    register: CallRegister, server: CallServer
) -> None:
    """Otherwise it would end a worker again and again, with all other calls there."""
    first, last = _WORKER.split("[left] = ")
    report = last_report(register, server, f"{first}{_KILLED}[left] = {last}", 1)

    assert (report.typename, CallLoss.FromString(report.value).begun) == (LOST, True)
