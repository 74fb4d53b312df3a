# SPDX-License-Identifier: Apache-2.0
"""Log records and printed lines in Python workers."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import pytest

from statefun.runtime.dispatch.worker_logs import LogLevels

WORKER = """\
import logging, sys
from statefun import Address, StatefulFunctions
from statefun.runtime.dispatch.worker_logs import LogLevels
from statefun.sdk.invocation import invoke
from statefun.sdk.invocation_batch import Invocation, InvocationBatch
from statefun.sdk.types import TypedValue

functions = StatefulFunctions()

@functions.bind("test.fns/log")
def log(ctx, message):
    logging.info("hidden")
    logging.getLogger("shown").debug("text")
    logging.warning("of %s", ctx.address.id)
    ctx.logger.warning("failed", code=3)

as_json = sys.argv[1] == "json"
LogLevels({"root": logging.WARNING, "shown": logging.DEBUG}, as_json).apply(7)
message = Invocation(None, TypedValue("a/b", b""), None)
batch = InvocationBatch(Address("test.fns/log", "Ada"), {}, [message])
invoke(functions.for_typename("test.fns/log"), batch)
LogLevels({"root": logging.WARNING}, as_json).apply(8)
logging.warning("outside")
"""
PRINTING = """\
import sys
from statefun.runtime.dispatch.worker_logs import LogLevels
LogLevels({"root": 30}).apply(0)
for number in range(300):
    print(*[sys.argv[1]] * 100)
"""


KEEPING = """\
import logging
from statefun.runtime.dispatch import worker_logs
levels = worker_logs.LogLevels({"root": logging.WARNING}, for_driver=True)
levels.apply(7)
for number in range(3):
    logging.warning("line %d \\udcff", number)
print(worker_logs.take_lines(), worker_logs.take_lines())
for number in range(3):
    logging.warning("x" * 100_000)
taken = worker_logs.take_lines()
print(len(taken), taken[-1])
logging.warning("again")
print(worker_logs.take_lines())
worker_logs.LogLevels({"root": logging.WARNING}).apply(8)
logging.warning("only here")
print(worker_logs.take_lines())
"""


def lines_of_worker(log_format: str) -> list[str]:
    """Return what a worker logs."""
    worker = subprocess.run(
        [sys.executable, "-c", WORKER, log_format],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return worker.stderr.splitlines()


def test_records_name_the_address_and_the_micro_batch() -> None:
    """Levels are those of the program; outside of calls there is no address."""
    assert lines_of_worker("text") == [
        "DEBUG test.fns/log/Ada (batch 7) shown: text",
        "WARNING test.fns/log/Ada (batch 7) root: of Ada",
        "WARNING test.fns/log/Ada (batch 7): failed code=3",
        "WARNING root: outside",
    ]


def test_workers_log_json_on_demand() -> None:
    """Each line is an object."""
    *_, of_ada, failed, outside = map(json.loads, lines_of_worker("json"))

    assert [of_ada[key] for key in ("message", "id", "batch")] == ["of Ada", "Ada", 7]
    assert failed["fields"] == {"code": 3}
    assert "id" not in outside


def test_a_driver_elsewhere_gets_the_lines_of_a_task() -> None:
    """They are in the standard error as well, and not too many for the outcome of a task."""
    worker = subprocess.run(
        [sys.executable, "-c", KEEPING],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )

    first, many, again, none = worker.stdout.splitlines()
    lines = [f"WARNING root: line {number} \\udcff" for number in range(3)]
    assert first == f"{lines} []"
    assert many == "3 1 further lines are in the standard error of an executor"
    assert again == "['WARNING root: again']"
    assert none == "[]"
    assert [each for each in worker.stderr.splitlines() if "line" in each] == lines
    assert worker.stderr.endswith("WARNING root: only here\n")


def test_lines_of_several_workers_do_not_mix() -> None:
    """The workers share a pipe, in which each line stays whole."""
    read, write = os.pipe()
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", PRINTING, letter],
            stdout=write,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "YES"},
        )
        for letter in "abc"
    ]
    os.close(write)
    with os.fdopen(read) as pipe:
        lines = pipe.read().splitlines()

    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert len(lines) == 900
    assert set(lines) == {" ".join([letter] * 100) for letter in "abc"}


def test_the_levels_of_a_program_are_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The levels of the root logger and of all loggers that are not left out."""
    monkeypatch.setattr(logging.getLogger("test.payments"), "level", logging.DEBUG)
    monkeypatch.setattr(logging.getLogger("test_left.out"), "level", logging.ERROR)

    levels = LogLevels.of_program(leave_out=["test_left"]).by_logger

    assert levels["test.payments"] == logging.DEBUG
    assert levels["root"] == logging.getLogger().level
    assert "test_left.out" not in levels
