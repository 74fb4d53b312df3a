# SPDX-License-Identifier: Apache-2.0
"""``statefun.run()``: what an application's program ends with."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType, TracebackType

from py4j.protocol import Py4JError

from statefun.runtime.application import Application
from statefun.runtime.session import spark_conf
from statefun.runtime.settings import PREFIX, Settings, running_script
from statefun.runtime.summary import Summary
from statefun.sdk.errors import EngineError, StatefunError
from statefun.sdk.functions import StatefulFunctions, default_functions
from statefun.spec.loader import load_module_files
from statefun.spec.model import KafkaEgress, KafkaIngress

logger = logging.getLogger("statefun")


def run(  # noqa: PLR0913 - every setting has a keyword
    module: str | Path | Sequence[str | Path] | None = None,
    checkpoint: str | Path | None = None,
    *,
    checkpoint_lock: str | None = None,
    trigger: timedelta | None = None,
    available_now: bool | None = None,
    records_per_batch: int | None = None,
    state_partitions: int | None = None,
    async_concurrency: int | None = None,
    immediate_messages: int | None = None,
    egress_lanes: int | None = None,
    dispatch: str | None = None,
    kafka_timeout: timedelta | None = None,
    debug: bool | None = None,
    functions: StatefulFunctions = default_functions,
    components: Sequence[KafkaIngress | KafkaEgress] = (),
) -> Summary:
    """Run the registered functions on Spark, as the module files say.

    An argument that is not given comes from Spark's configuration: ``available_now`` from
    ``spark.statefun.available-now``, and the others accordingly. Errors of statefun end the
    program with their message alone.

    Args:
        module: the module file, or several; ``module.yaml`` beside the program if not given.
        checkpoint: a local folder or the URI of one that Spark and pyarrow both reach, where
            state and progress live; ``.statefun/<program>`` beside the program if not given.
        checkpoint_lock: ``file`` (default) keeps a second driver off a local checkpoint, and refuses
            others; ``none`` relies on you: of two drivers on a checkpoint, either may lose and
            repeat what the other one has done.
        trigger: time between the starts of micro-batches; as soon as possible if not given.
        available_now: process what is in the topics now and return, instead of running on.
        records_per_batch: how many records a micro-batch takes from each ingress at most
            (default 100,000).
        state_partitions: into how many parts the state is divided, from a checkpoint's first
            start on; as many as there are cores if not given.
        async_concurrency: how many addresses of coroutine functions a worker runs side by side
            (default 1,000).
        immediate_messages: how many messages of an address, to itself and to functions without
            state, may be delivered in the micro-batch that sends them (default 1,000); further
            ones come in the next.
        egress_lanes: into how many parts (default 1) an egress's records are divided, by the
            state partition of their sender; more than one are published by Spark tasks, side
            by side (``spark.statefun.egress.lanes``).
        dispatch: ``arrow`` (default) or ``pandas``, Spark's own and slower way to call functions.
        kafka_timeout: how long to try to reach Kafka at start (default 15 seconds).
        debug: show Spark's log, and the causes of errors.
        functions: the registry to run, the one of ``@function`` if not given.
        components: ingresses and egresses that are declared in Python, beside the module files';
            with any, there need not be a ``module.yaml``.

    Returns:
        What was done, once everything is processed (``available_now``).

    Raises:
        StatefunError: what went wrong, with a stable code.
    """
    script = running_script()
    if script is not None:
        sys.excepthook = _show
    conf = spark_conf()
    settings = Settings.resolve(
        conf,
        script,
        module=module,
        checkpoint=checkpoint,
        checkpoint_lock=checkpoint_lock,
        trigger=trigger,
        available_now=available_now,
        records_per_batch=records_per_batch,
        state_partitions=state_partitions,
        async_concurrency=async_concurrency,
        immediate_messages=immediate_messages,
        egress_lanes=egress_lanes,
        dispatch=dispatch,
        kafka_timeout=kafka_timeout,
        debug=debug,
    )
    if settings.debug:
        sys.excepthook = sys.__excepthook__
    _show_log(debug=settings.debug)
    modules = settings.modules
    if components and module is None and f"{PREFIX}module" not in conf:
        modules = tuple(path for path in modules if path.exists())
    declared = load_module_files(modules, components=components)
    application = Application(declared, functions, settings)
    with _signals_interrupt(application, debug=settings.debug):
        try:
            summary = application.run()
        except (Py4JError, ConnectionError) as error:
            raise EngineError(
                "Spark has stopped; start again to continue from the last committed batch"
            ) from error
    logger.info(
        "done: %d invocations in %d batches, %d records published",
        summary.invocations,
        summary.batches,
        summary.egress_records,
    )
    if summary.next_timer is not None:
        logger.info(
            "timers wait for the next run; the first is due at %s",
            summary.next_timer.astimezone().isoformat(" ", "seconds"),
        )
    return summary


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print what concerns the user: the message of an error of ours, nothing on Ctrl-C."""
    if isinstance(error, StatefunError):
        for text in filter(None, (error.details.rstrip(), f"statefun: {error}")):
            print(text, file=sys.stderr)  # noqa: T201 - the program's last words
    elif isinstance(error, KeyboardInterrupt):
        print(  # noqa: T201 - the program's last words
            "statefun: stopped; start again to continue from the last committed batch",
            file=sys.stderr,
        )
    else:
        sys.__excepthook__(kind, error, trace)


def _show_log(*, debug: bool) -> None:
    """Show the log on the terminal, unless the program has set logging up its own way."""
    root = logging.getLogger("statefun")
    if root.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("statefun: %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug else logging.INFO)


@contextmanager
def _signals_interrupt(application: Application, *, debug: bool) -> Iterator[None]:
    """Let SIGTERM stop the application the way Ctrl-C does, and both without a stack trace."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if not debug:
            _silence_interrupted_call()
        # What is raised is lost if a finalizer happens to run just then.
        application.stop()
        raise KeyboardInterrupt

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, interrupt)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not one of the program's
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silence_interrupted_call() -> None:
    """Keep py4j from logging, with the root logger itself, which call was interrupted."""
    root = logging.getLogger()
    root.addFilter(lambda record: record.module != "java_gateway")
    if not root.handlers:
        root.addHandler(logging.NullHandler())  # or logging would add one that prints
