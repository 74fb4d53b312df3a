# SPDX-License-Identifier: Apache-2.0
"""An application: functions and modules, which run as one streaming query."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from statefun.engine.clock import Clock, SystemClock
from statefun.module.binding import check_binding
from statefun.module.model import Module
from statefun.remote.endpoint_functions import with_endpoints
from statefun.runtime.admin.admin_server import serving_admin
from statefun.runtime.application_run import WATCH_SECONDS, Run
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import checkpoint_lock, create_privately, unlocked
from statefun.runtime.checkpoint.unfinished_files import remove_unfinished_files
from statefun.runtime.control import Control, RunEnding
from statefun.runtime.definition import Definition
from statefun.runtime.reporting.figures import Figures
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.settings import Settings
from statefun.runtime.spark.session import application_name
from statefun.runtime.spark_internals.error_texts import LostWorkerError
from statefun.runtime.supervision import Supervision
from statefun.runtime.telemetry.exporting import OnStaged, exporting
from statefun.runtime.terminal.status_line import StatusLine
from statefun.sdk.errors import BindingError, CheckpointError, StatefunError
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions

logger = logging.getLogger("statefun")


class Application:
    """The functions and modules of an application, checked to fit together.

    Raises:
        BindingError: if they do not fit together.
    """

    def __init__(
        self,
        module: Module,
        functions: StatefulFunctions,
        settings: Settings,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
        line: StatusLine | None = None,
    ) -> None:
        functions = with_endpoints(functions, module)
        check_binding(module, functions)
        if settings.on_unregistered is OnFailure.DEAD_LETTER and module.dead_letters is None:
            raise BindingError(
                "on-unregistered=dead-letter needs a dead-letter topic, but no egress has a deadLetterTopic"
            )
        self._definition = Definition(module, functions, settings, clock, line)
        self.control = Control()
        """The orders to the application."""

    def run(self) -> Summary:
        """Run until all records are processed (``available-now``), an order or :meth:`stop` ends it, or it fails.

        Raises:
            StatefunError: if the run fails; the checkpoint's state stays that of the last committed batch.
            KeyboardInterrupt: if a signal stops the run.
        """
        settings = self._definition.settings
        create_privately(settings.checkpoint)
        lock = checkpoint_lock if settings.has_lock else unlocked
        with (
            _explaining(settings.checkpoint),
            lock(settings.checkpoint) as checkpoint,
            self.control.obeying(checkpoint),
        ):
            remove_unfinished_files(checkpoint)
            locked = attrs.evolve(settings, checkpoint=checkpoint)
            definition = attrs.evolve(self._definition, settings=locked)
            figures = Figures(str(each.typename) for each in definition.functions)
            with (
                serving_admin(definition, self.control, figures),
                exporting(definition, self.control, figures, application_name) as on_staged,
            ):
                return self._run(definition, figures, on_staged)

    def _run(self, definition: Definition, figures: Figures, on_staged: OnStaged) -> Summary:
        """Run, and run again each time that a restart is ordered, or that a worker was lost."""
        supervision = Supervision(CommitLog(definition.settings.checkpoint).newest)
        while True:
            run = Run(definition, self.control, figures, on_staged)
            try:
                return run.complete()
            except (KeyboardInterrupt, LostWorkerError) as end:
                if self.control.ending is RunEnding.STOP:
                    return run.summary
                if self.control.is_restarted():
                    continue
                if isinstance(end, KeyboardInterrupt):
                    raise
                # By a signal, which may have ended the worker, too.
                if self.control.stopping.is_set():
                    raise KeyboardInterrupt from end
                if not supervision.may_restart():
                    raise
                logger.warning(
                    "a Python worker has ended during its work; another run goes on after the last committed micro-batch"
                )
                self.control.restarts += 1

    def stop(self) -> bool:
        """Make :meth:`run` end soon; may be called by a signal handler or another thread.

        Returns:
            Whether the run notices that by itself; if not, it may be waiting for something else.
        """
        self.control.end(RunEnding.SIGNAL)
        return self.control.is_watched

    def is_stopping(self) -> bool:
        """Return whether :meth:`stop` was called; if not, wait up to a second for the call.

        A signal such as Ctrl-C may end Spark before the signal handler of this process calls :meth:`stop`.
        """
        return self.control.stopping.wait(WATCH_SECONDS)


@contextmanager
def _explaining(checkpoint: Folder) -> Iterator[None]:
    """During the block, raise errors of the files of a local checkpoint as a CheckpointError that names the checkpoint."""
    try:
        yield
    except OSError as error:
        is_of_checkpoint = str(error.filename).startswith(f"{checkpoint.location}/")
        if isinstance(error, StatefunError) or not is_of_checkpoint:
            raise
        raise CheckpointError(f"checkpoint {checkpoint.shown} cannot be used: {error}") from error
