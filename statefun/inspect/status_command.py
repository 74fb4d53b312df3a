# SPDX-License-Identifier: Apache-2.0
"""``statefun status``: prints whether an application runs, how far it is, and what of it is paused."""

from __future__ import annotations

import argparse
import time
from datetime import timedelta

import attrs

from statefun.console.json_output import print_json
from statefun.inspect.checkpoint_options import add_checkpoint, is_in_use, usable
from statefun.inspect.pausing import parts_of
from statefun.module.yaml.durations import parse_duration
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import locked_at
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.pauses import Paused
from statefun.runtime.release.retention import BACKLOG
from statefun.runtime.spark_internals.log_files import OFFSETS_FOLDER
from statefun.runtime.terminal.table import print_table

NOT_HEALTHY = 1
"""The exit code of ``--check`` if the application does not run, or makes no progress."""
_RUNNING, _PAUSED, _STOPPED = "RUNNING", "PAUSED", "STOPPED"


@attrs.frozen
class _Status:
    """The state of an application, as its checkpoint shows it."""

    is_running: bool
    batch: int
    """The newest committed micro-batch; -1 if none is committed."""
    planned_for: timedelta | None
    """How long ago the micro-batch that is under way was planned; None if none is under way."""
    unpublished: int
    """The number of committed micro-batches with effects that are not published and delivered yet."""
    paused: Paused
    parts: list[tuple[str, str]]
    """The kind and id of each ingress and egress."""

    def state(self, kind: str = "", name: str = "") -> str:
        """Return the state of a part, or of the application."""
        if not self.is_running:
            return _STOPPED
        if kind == "egress":  # it publishes, too, while the application is paused
            is_paused = name in self.paused.egresses
        else:
            is_paused = self.paused.application or name in self.paused.ingresses
        return _PAUSED if is_paused else _RUNNING


def add_arguments(status: argparse.ArgumentParser) -> None:
    """Add the arguments of ``statefun status`` to its parser."""
    add_checkpoint(status)
    status.add_argument("--json", action="store_true", help="print the status as JSON")
    status.add_argument(
        "--check",
        action="store_true",
        help=f"end with the exit code {NOT_HEALTHY} if the application does not run, or if a micro-batch takes "
        "longer than --patience",
    )
    status.add_argument(
        "--patience",
        type=_duration,
        default=timedelta(minutes=5),
        help="how long a micro-batch may take for --check, such as 90s (default: 5m)",
    )


def run_command(options: argparse.Namespace) -> int:
    """Run ``statefun status``; return its exit code.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the checkpoint cannot be read.
    """
    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        status = _status(checkpoint)
    (_print_json if options.json else _print)(status)
    # A micro-batch that waits for an egress goes on with it; another start would have to wait, too.
    waits = status.unpublished >= BACKLOG
    is_stuck = not waits and (status.planned_for or timedelta()) > options.patience
    is_healthy = status.is_running and not is_stuck
    return 0 if is_healthy or not options.check else NOT_HEALTHY


def _status(checkpoint: Folder) -> _Status:
    parts, paused = parts_of(checkpoint)
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    newest, planned = log.newest(), log.planned()
    return _Status(
        is_in_use(checkpoint),
        newest,
        _planned_for(checkpoint, planned) if planned > newest else None,
        sum(batch <= newest for batch in outbox.batches()),
        paused,
        [("ingress", name) for name in sorted(parts.ingresses)]
        + [("egress", name) for name in sorted(parts.egresses)],
    )


def _print(status: _Status) -> None:
    print(f"application: {status.state()}")
    under_way = ""
    if status.planned_for is not None:
        seconds = status.planned_for.total_seconds()
        under_way = f"; micro-batch {status.batch + 1} was planned {seconds:.0f} s ago"
    committed = "none" if status.batch < 0 else str(status.batch)
    print(f"newest committed micro-batch: {committed}{under_way}")
    print(f"micro-batches in the outbox: {status.unpublished}")
    rows = [(kind, name, status.state(kind, name)) for kind, name in status.parts]
    print_table([("part", "id", "state"), *rows])


def _print_json(status: _Status) -> None:
    planned_for = status.planned_for
    content = {
        "state": status.state(),
        "batch": status.batch,
        "planned_seconds_ago": None if planned_for is None else planned_for.total_seconds(),
        "outbox": status.unpublished,
        "paused": {
            "application": status.paused.application,
            "ingresses": sorted(status.paused.ingresses),
            "egresses": sorted(status.paused.egresses),
        },
        "parts": [
            {"kind": kind, "id": name, "state": status.state(kind, name)}
            for kind, name in status.parts
        ],
    }
    print_json(content)


def _planned_for(checkpoint: Folder, batch: int) -> timedelta | None:
    """Return for how long the present run has known the plan of a micro-batch; None if that is not known.

    An earlier run may have planned it, and ended long ago.
    """
    facts = checkpoint.child(OFFSETS_FOLDER).facts(str(batch))
    if facts is None or not facts.modified:
        return None
    begun = max(facts.modified, locked_at(checkpoint))
    return timedelta(seconds=max(time.time() - begun / 1e9, 0))


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
