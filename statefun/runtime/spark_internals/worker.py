# SPDX-License-Identifier: Apache-2.0
"""Changes how Spark's Python worker evaluates functions, and runs the daemon that forks workers.

Based on ``pyspark/daemon.py`` and ``pyspark/worker.py`` of Spark 4.0.2, 4.1.2 and 4.2.0. The daemon calls ``worker`` in each
process that it forks, and ``worker`` calls ``read_udfs`` for each task, which returns the parts that
evaluate the task: a function, a profiler or None, a deserializer and a serializer. For each function of the
task, ``read_udfs`` calls ``read_command``, which returns the function and its type. After each task, the daemon
calls ``gc.collect``.

A forked process has none of the daemon's threads: so a module that depends on threads of its own is imported after the
fork.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout, suppress
from functools import cache, partial
from types import FrameType, SimpleNamespace
from typing import IO, Any

from pyspark import daemon

BatchEvaluation = Callable[[Iterator[Any]], Iterator[Any]]
"""A function that converts Arrow batches from Spark to result batches."""

_ARGUMENTS = ["pyspark.worker"]
"""The command-line arguments of a daemon whose workers run tasks; other daemons plan sources in Python."""


_COLLECTIONS = (10_000, 10, 10)
"""The thresholds of Python's garbage collector in workers: it runs less often than by default.

The collector finds hardly any garbage among messages; with Python's default thresholds, it took a quarter of
the CPU time of calls to endpoints."""
_YOUNG = 0
"""The generation of objects whose garbage is collected after each task: the youngest one.

Older objects, such as those of long calls, are examined less often, as their number grows."""


def preload(modules: Iterable[str]) -> None:
    """Import Spark's worker and further modules before the daemon forks, so that workers begin sooner.

    The workers also share the memory of these modules, as their garbage collectors leave the modules' objects alone.
    If a module cannot be imported, the first task fails with the reason, which Spark reports better than the end of
    its daemon.

    Args:
        modules: the names of the further modules; none of them may depend on a thread that it starts, which
            a fork would lose.
    """
    # Spark reads the daemon's port from its standard output.
    with suppress(Exception), redirect_stdout(sys.stderr):
        for name in (*_ARGUMENTS, *modules):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def run_daemon(prepare: Callable[[], None], end: Callable[[], None] = lambda: None) -> None:
    """Run the daemon until Spark closes its input.

    Args:
        prepare: called before each task, in each process that was forked for tasks.
        end: called in such a process before it ends, because Spark has no more tasks for it: Spark ends
            all workers that were idle for a minute.
    """
    module: Any = daemon
    run_worker = module.worker

    def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - as Spark calls it
        if sys.argv[1:] == _ARGUMENTS:
            prepare()
            gc.set_threshold(*_COLLECTIONS)
        try:
            code = int(run_worker(sock, authenticated))
        except ConnectionError:  # Spark has ended; its daemon would print a traceback
            # Since Python 3.13, deleting a file that cannot be flushed prints one, too.
            sys.unraisablehook = lambda _: None
            return 1
        _freeze_objects()
        if sys.argv[1:] == _ARGUMENTS and (code or not os.environ.get("SPARK_REUSE_WORKER")):
            end()
        return code

    module.worker = worker
    # The daemon collects all garbage after each task, and would examine all objects of long calls each time.
    module.gc = SimpleNamespace(collect=partial(gc.collect, _YOUNG))
    module.manager()


def handle_end_of_daemon(handler: Callable[[int, FrameType | None], None]) -> None:
    """Call a handler when this worker process has to end because its daemon ends; the handler decides when it ends.

    The daemon sends SIGHUP to its workers then; each worker resets the signal before each task. Call this in the main
    thread, in a process that was forked for tasks.
    """

    def set_handler(number: int, other: Any) -> None:
        if number != signal.SIGHUP:
            signal.signal(number, other)

    signal.signal(signal.SIGHUP, handler)
    module: Any = daemon
    module.signal = SimpleNamespace(**(vars(signal) | {"signal": set_handler}))


@cache
def _freeze_objects() -> None:
    """Exclude from garbage collection all objects that exist after a worker's first task.

    Among them are modules and the application's functions, which live as long as the process.
    """
    gc.collect()
    gc.freeze()


def watch_functions(evaluation_of: Callable[[object], BatchEvaluation | None]) -> None:
    """Replace Spark's evaluation of certain functions in this worker process; must be called only once.

    Args:
        evaluation_of: is called with each function that a task of any operator runs, and returns the
            evaluation that replaces Spark's, or None if Spark evaluates the function.
    """
    worker: Any = importlib.import_module("pyspark.worker")
    from pyspark.util import PythonEvalType  # noqa: PLC0415 - after the fork

    read_command, read_udfs = worker.read_command, worker.read_udfs
    evaluations: list[BatchEvaluation] = []

    def watched_read_command(serializer: Any, file: Any) -> Any:
        command = read_command(serializer, file)
        if isinstance(command, tuple):
            evaluation = evaluation_of(command[0])
            if evaluation is not None:
                evaluations.append(evaluation)
        return command

    def watched_read_udfs(serializer: Any, file: Any, eval_type: int, *confs: Any) -> Any:
        evaluations.clear()
        sparks = read_udfs(serializer, file, eval_type, *confs)
        if evaluations and eval_type == PythonEvalType.SQL_GROUPED_MAP_PANDAS_UDF_WITH_STATE:
            stream = _ArrowStream(evaluations[0])
            return (lambda _, batches: batches), None, stream, stream
        return sparks

    worker.read_command, worker.read_udfs = watched_read_command, watched_read_udfs


class _ArrowStream:
    """Replaces Spark's serializer of a task; evaluates the task's batches while it writes the results."""

    def __init__(self, evaluation: BatchEvaluation) -> None:
        # After the fork.
        from pyspark.sql.pandas import serializers  # noqa: PLC0415

        self._serializers: Any = serializers
        self._evaluation = evaluation

    def load_stream(self, stream: IO[bytes]) -> Iterator[Any]:
        """Read Arrow batches from Spark."""
        batches: Iterator[Any] = self._serializers.ArrowStreamSerializer().load_stream(stream)
        return batches

    def dump_stream(self, batches: Iterator[Any], stream: IO[bytes]) -> None:
        """Evaluate Arrow batches one at a time, and write the results to Spark."""
        results = self._results(batches, stream)
        self._serializers.ArrowStreamSerializer().dump_stream(results, stream)

    def _results(self, batches: Iterator[Any], stream: IO[bytes]) -> Iterator[Any]:
        """Yield the results; before the first one, write the mark that tells Spark to expect results, not an error."""
        for number, result in enumerate(self._evaluation(batches)):
            if number == 0:
                begin = self._serializers.SpecialLengths.START_ARROW_STREAM
                self._serializers.write_int(begin, stream)
            yield result
