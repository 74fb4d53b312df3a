# SPDX-License-Identifier: Apache-2.0
"""Spark's Python worker daemon, whose workers call the application's functions with Arrow batches.

Spark starts this module, because ``spark.python.daemon.module`` names it; the daemon forks the workers. Each
worker checks which Python function Spark evaluates in a task. If it is an :class:`Operator`, the module
``arrow_path`` evaluates it; Spark evaluates all other functions as usual.
"""

from __future__ import annotations

import signal
import sys
from functools import cache, partial

from statefun.engine.call_limits import shared_turn
from statefun.runtime.spark_internals.worker import (
    BatchEvaluation,
    handle_end_of_daemon,
    preload,
    run_daemon,
    watch_functions,
)

MODULE = __name__ if __name__ != "__main__" else "statefun.runtime.dispatch.daemon"

PRELOADED = ("statefun.engine.dispatcher", "statefun.engine.call_loop")
"""The modules that the daemon imports before it forks; none of them starts a thread."""
PRELOADED_ON_LINUX = ("pandas", "statefun.runtime.dispatch.arrow_path")
"""Further modules that the daemon imports where a fork keeps them usable; this saves each worker half a second of CPU.

pyarrow imports pandas, if it is installed, when it makes its first array of Python objects. Spark sets
``OMP_NUM_THREADS``, so numpy starts no thread; jemalloc, a part of pyarrow, starts its thread again after a fork.
Libraries of macOS cannot be used after a fork.
"""


@cache
def install() -> None:
    """Make this worker process evaluate each :class:`Operator` with the module ``arrow_path``.

    This function is called before each task of the process. Its decorator ``cache`` lets only the first call install
    anything: with each further installation, tasks would become slower, and fail in the end.

    The imports are here, after the fork, because some of the modules start threads.
    """
    from statefun.runtime.calls.worker_calls import end_in_order  # noqa: PLC0415 - see above
    from statefun.runtime.dispatch.arrow_path import evaluate  # noqa: PLC0415 - see above
    from statefun.runtime.dispatch.operator import Operator  # noqa: PLC0415 - see above

    def evaluation_of(function: object) -> BatchEvaluation | None:
        operator = getattr(function, "__self__", None)
        if not isinstance(operator, Operator):
            return None
        # Ctrl-C in a terminal reaches workers, too. The driver stops the application; here it
        # would be a failure of the running function.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return partial(evaluate, operator) if operator.arrow else None

    watch_functions(evaluation_of)
    handle_end_of_daemon(end_in_order)


def linger() -> None:
    """Before this process ends, wait for its long calls, which go on after their micro-batches."""
    from statefun.runtime.calls.worker_calls import wait_for_calls  # noqa: PLC0415 - as above

    wait_for_calls()


if __name__ == "__main__":
    preload((*PRELOADED, *(PRELOADED_ON_LINUX if sys.platform == "linux" else ())))
    shared_turn()
    run_daemon(install, linger)
