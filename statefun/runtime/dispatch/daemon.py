# SPDX-License-Identifier: Apache-2.0
"""Spark's Python worker daemon, with workers that evaluate our operator on Arrow batches.

Spark starts the module that ``spark.python.daemon.module`` names, and the module forks the workers.
In each worker we watch which functions a task reads: if one of them is our operator, the task gets
``ArrowPath`` in place of Spark's serializer. Everything else stays as Spark has it.
"""

from __future__ import annotations

import importlib
import signal
import socket
import sys
from functools import cache
from typing import Any

from pyspark import daemon

MODULE = __name__ if __name__ != "__main__" else "statefun.runtime.dispatch.daemon"
TESTED = ("4.2.",)
"""The PySpark releases that this module was tested with."""


@cache
def install() -> None:
    """Watch the functions that this worker process reads.

    Spark calls a worker anew for each task of the process, hence the cache: nested
    watches would make every task slower than the one before, and fail in the end.

    The imports are here, after the fork, because some of the modules start threads.
    """
    worker: Any = importlib.import_module("pyspark.worker")
    from pyspark.util import PythonEvalType  # noqa: PLC0415 - see above

    from statefun.runtime.dispatch.arrow_path import ArrowPath  # noqa: PLC0415 - see above
    from statefun.runtime.dispatch.operator import Operator  # noqa: PLC0415 - see above

    read_command, read_udfs = worker.read_command, worker.read_udfs
    operators: list[Operator] = []

    def watched_read_command(serializer: Any, file: Any) -> Any:
        command = read_command(serializer, file)
        if isinstance(command, tuple):
            operator = getattr(command[0], "__self__", None)
            if isinstance(operator, Operator):
                # Ctrl-C in a terminal reaches workers, too. The driver stops the application; here
                # it would be a failure of the running function.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                if operator.arrow:
                    operators.append(operator)
        return command

    def watched_read_udfs(serializer: Any, file: Any, eval_type: int, *confs: Any) -> Any:
        operators.clear()
        evaluation = read_udfs(serializer, file, eval_type, *confs)
        if operators and eval_type == PythonEvalType.SQL_GROUPED_MAP_PANDAS_UDF_WITH_STATE:
            path = ArrowPath(operators[0])
            return (lambda _, batches: batches), None, path, path
        return evaluation

    worker.read_command, worker.read_udfs = watched_read_command, watched_read_udfs


def main() -> None:
    """Run the daemon until Spark closes its input."""
    run_worker: Any = daemon.worker

    def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - as Spark calls it
        if sys.argv[1:] == ["pyspark.worker"]:  # and not one that plans the reading of a source
            install()
        try:
            return int(run_worker(sock, authenticated))
        except ConnectionError:  # Spark has gone; its daemon would print a traceback
            # Since Python 3.13, deleting a file that cannot be flushed prints one, too.
            sys.unraisablehook = lambda _: None
            return 1

    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
