# SPDX-License-Identifier: Apache-2.0
"""``statefun.run()``, the last call of an application's program, which runs the application."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType

from pyspark.errors import PySparkException

from statefun.module.loader import load_module_files
from statefun.module.model import KafkaEgress, KafkaIngress
from statefun.runtime.dispatch.main_program import end_on_worker
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.settings import SETTINGS_PREFIX, Settings, running_script
from statefun.runtime.spark.session import shows_terminal
from statefun.runtime.spark.shipping import lacks_statefun
from statefun.runtime.spark.signals import exit_code_of_interrupt, signals_interrupt
from statefun.runtime.spark_internals.error_texts import first_words
from statefun.runtime.spark_internals.jvm import JvmError, spark_conf
from statefun.runtime.spark_internals.logs import silent_connections
from statefun.runtime.spark_internals.versions import check_release
from statefun.runtime.terminal.status_line import LogHandler, StatusLine
from statefun.sdk.errors import ConfigurationError, DefinitionError, EngineError, StatefunError
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions, default_functions
from statefun.sdk.log_lines import JsonLines

logger = logging.getLogger("statefun")

_EX_CONFIG = 78
"""The exit code for an error of the program or its settings, as in ``sysexits.h``: another start would meet it again."""


def run(  # noqa: PLR0913 - every setting has a keyword
    module: str | Path | Sequence[str | Path] | None = None,
    checkpoint: str | Path | None = None,
    *,
    checkpoint_lock: str | None = None,
    trigger: timedelta | None = None,
    available_now: bool | None = None,
    final_watermark: bool | None = None,
    records_per_batch: int | None = None,
    state_partitions: int | None = None,
    async_concurrency: int | None = None,
    immediate_messages: int | None = None,
    egress_lanes: int | None = None,
    dispatch: str | None = None,
    kafka_timeout: timedelta | None = None,
    on_unregistered: OnFailure | str | None = None,
    shutdown_grace: timedelta | None = None,
    call_port: int | None = None,
    admin: str | int | None = None,
    admin_tokens: str | Path | None = None,
    trace_journal: str | int | None = None,
    trace_share: float | None = None,
    otlp_endpoint: str | None = None,
    log_format: str | None = None,
    quiet: bool | None = None,
    debug: bool | None = None,
    functions: StatefulFunctions = default_functions,
    components: Sequence[KafkaIngress | KafkaEgress] = (),
) -> Summary:
    """Run the registered functions on Spark, with the ingresses and egresses of the module files.

    An argument that is not given comes from Spark's configuration: ``available_now`` from
    ``spark.statefun.available-now``, and each other argument from the key of its name. Errors of statefun end the
    program with one line of text, without a traceback.

    Args:
        module: the module file, or several; ``module.yaml`` in the program's folder if not given.
        checkpoint: a local folder, or the URI of a folder that Spark and pyarrow both reach, where
            state and progress live; ``.statefun/<program>`` in the program's folder if not given.
        checkpoint_lock: ``file`` (default) locks the checkpoint, so that no second driver can use it, and needs a
            checkpoint that is local, in an S3-compatible store or in HDFS; with ``none``, you must make sure that there
            is only one driver: of two drivers on a checkpoint, each may lose or repeat effects of the other one.
        trigger: time between the starts of micro-batches; by default, each starts when the last one has ended.
        available_now: process the records that exist at the start, and return.
        final_watermark: whether a run with ``available_now`` delivers all messages of ``send_at`` and closes all
            windows before it returns; use it if no record of an earlier event time will come.
        records_per_batch: how many records a micro-batch takes from each ingress at most
            (default 100,000).
        state_partitions: into how many parts the state is divided from a checkpoint's first start on; as many
            as there are cores if not given. ``statefun rescale`` changes their number later.
        async_concurrency: how many addresses of coroutine functions a worker calls at the same time
            (default 1,000).
        immediate_messages: how many messages of an address, to itself and to functions without
            state, may be delivered in the micro-batch that sends them (default 1,000); further messages
            are delivered in the next micro-batch.
        egress_lanes: into how many parts (default 1) an egress's records are divided, by the
            state partition of their sender; if there are several, Spark tasks publish them at the same
            time (``spark.statefun.egress.lanes``).
        dispatch: ``arrow`` (default) calls functions with the rows of Arrow batches; ``pandas`` calls them
            with pandas frames, which is Spark's own and slower way.
        kafka_timeout: how long to try to reach Kafka at start (default 15 seconds), an hour at
            most.
        on_unregistered: the policy for messages that wait in the checkpoint for functions that
            are no longer registered: ``fail`` (default) refuses to start, ``dead-letter`` and
            ``skip`` make them dead letters or skip them.
        shutdown_grace: how long calls that have left their micro-batches may take to end when the run is
            stopped, or their executor ends (default 5 seconds); unfinished calls are made again.
        call_port: the port at which the driver takes workers' reports about long calls (default 0, for any free one).
        admin: the port of the admin API and the live page, for clients on this machine, or a host and a port,
            such as ``0.0.0.0:8083``; they are not served if not given.
        admin_tokens: the file with the tokens of the admin API (``spark.statefun.admin.tokens``): each line has a
            token, and may have the client's name before it. For a host that other machines reach, a token is required
            here or in the environment variable ``STATEFUN_ADMIN_TOKEN``.
        trace_journal: how many bytes of traces the checkpoint keeps, such as ``256m``, for ``statefun trace``; none are
            noted if not given.
        trace_share: the share of the ingress records whose traces are noted: ``1.0`` (default) notes all of them. If a
            record comes with a trace, the sampled flag of this trace decides instead.
        otlp_endpoint: the URL of a collector of OpenTelemetry that gets the application's metrics over OTLP, and with
            ``trace_journal`` its traces, such as ``http://127.0.0.1:4318``; needs ``statefun[otel]``. Nothing is sent if
            not given.
        log_format: ``text`` (default), or ``json``: statefun and the functions log lines of JSON.
        quiet: log only warnings and errors. Otherwise a line on the terminal, or a line each
            minute in a log, shows the progress of the run.
        debug: show Spark's log, and the causes of errors.
        functions: the registry to run; the registry of ``@function`` if not given.
        components: ingresses and egresses that are declared in Python, in addition to the module
            files; with any of them, no ``module.yaml`` is needed.

    Returns:
        The counts of the run, once all records and messages are processed (``available_now``).

    Raises:
        StatefunError: if the run fails; every subclass has a stable code.
    """
    end_on_worker()
    script = running_script()
    hook = sys.excepthook
    if script is not None:
        sys.excepthook = partial(_end, partial(_show, hook))
    check_release()
    # It imports names that releases before the oldest supported one lack.
    from statefun.runtime.application import Application  # noqa: PLC0415 - see above

    conf = spark_conf()
    settings = Settings.resolve(
        conf,
        script,
        module=module,
        checkpoint=checkpoint,
        checkpoint_lock=checkpoint_lock,
        trigger=trigger,
        available_now=available_now,
        final_watermark=final_watermark,
        records_per_batch=records_per_batch,
        state_partitions=state_partitions,
        async_concurrency=async_concurrency,
        immediate_messages=immediate_messages,
        egress_lanes=egress_lanes,
        dispatch=dispatch,
        kafka_timeout=kafka_timeout,
        on_unregistered=on_unregistered,
        shutdown_grace=shutdown_grace,
        call_port=call_port,
        admin=admin,
        admin_tokens=admin_tokens,
        trace_journal=trace_journal,
        trace_share=trace_share,
        otlp_endpoint=otlp_endpoint,
        log_format=log_format,
        quiet=quiet,
        debug=debug,
    )
    if settings.debug and script is not None:
        sys.excepthook = partial(_end, hook)
    line = _show_log(settings)
    modules = settings.modules
    if components and module is None and f"{SETTINGS_PREFIX}module" not in conf:
        modules = tuple(path for path in modules if path.exists())
    merged_module = load_module_files(modules, components=components)
    application = Application(merged_module, functions, settings, line=line)
    with (
        nullcontext() if settings.debug else silent_connections(),
        signals_interrupt(application.stop, settings.shutdown_grace),
    ):
        try:
            summary = application.run()
        except StatefunError as error:
            is_of_jvm = isinstance(error.__cause__, (JvmError, ConnectionError))
            if is_of_jvm and application.is_stopping():
                raise KeyboardInterrupt from None
            raise
        except (JvmError, PySparkException, ConnectionError) as error:
            if application.is_stopping():
                raise KeyboardInterrupt from None
            if isinstance(error, PySparkException):
                failure = EngineError(f"Spark has failed: {first_words(error)}")
                raise lacks_statefun(str(error)) or failure from error
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
    sys.excepthook = hook
    return summary


_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]
"""What Python calls with an exception that ends a program."""


def _show(
    other_hook: _Hook,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """Print the text of a statefun error, and one line on Ctrl-C; pass other exceptions to ``other_hook``."""
    if isinstance(error, StatefunError):
        _print_end(logging.ERROR, str(error), _new_lines(error))
    elif isinstance(error, KeyboardInterrupt):
        _print_end(
            logging.WARNING, "stopped; start again to continue from the last committed batch", ""
        )
    else:
        other_hook(kind, error, trace)


def _print_end(level: int, text: str, details: str) -> None:
    """Print the program's last words after their details; log both in one line if the log has lines of JSON."""
    if any(
        isinstance(each.formatter, JsonLines) for each in logging.getLogger("statefun").handlers
    ):
        logger.log(level, "%s", "\n".join(filter(None, (text, details))))
        return
    for line in filter(None, (details, f"statefun: {text}")):
        print(line, file=sys.stderr)  # noqa: T201 - the program's last words


def _end(
    show: _Hook,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """Show the exception that ends the program; end with its own exit code, if it has one, else Python ends with 1.

    Raises:
        SystemExit: after a signal, or an error that another start would meet again; their exit codes differ from 1.
    """
    show(kind, error, trace)
    if isinstance(error, (ConfigurationError, DefinitionError)):
        raise SystemExit(_EX_CONFIG)
    if isinstance(error, KeyboardInterrupt):
        raise SystemExit(exit_code_of_interrupt())


def _new_lines(error: StatefunError) -> str:
    """Return the details of an error, without a last line that repeats the error's text."""
    *lines, last = error.details.rstrip().splitlines() or [""]
    return "\n".join(lines if last in error.message else [*lines, last])


def _show_log(settings: Settings) -> StatusLine | None:
    """Print statefun's log on the terminal, unless the program has added log handlers of its own.

    Returns:
        The terminal's status line; None if no status line is shown.
    """
    root = logging.getLogger("statefun")
    handlers = [handler for handler in root.handlers if isinstance(handler, LogHandler)]
    if not handlers:  # an earlier run of this process may have added one
        if root.handlers or logging.getLogger().handlers:
            return None
        handlers = [LogHandler(StatusLine(sys.stderr))]
        root.addHandler(handlers[0])
    is_json = settings.log_format == "json"
    formatter = JsonLines() if is_json else logging.Formatter("statefun: %(message)s")
    handlers[0].setFormatter(formatter)
    level = logging.WARNING if settings.quiet else logging.INFO
    root.setLevel(logging.DEBUG if settings.debug else level)
    has_status_line = not (settings.quiet or settings.debug or is_json) and shows_terminal()
    return handlers[0].line if has_status_line else None
