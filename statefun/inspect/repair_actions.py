# SPDX-License-Identifier: Apache-2.0
"""``statefun state set``, ``delete``, ``apply`` and ``log``: repair the state of a stopped application by hand."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import attrs

from statefun.console.command_parser import Actions, CommandParser
from statefun.console.json_output import print_json
from statefun.engine.address_keys import address_of
from statefun.engine.clock import SystemClock
from statefun.inspect.checkpoint_options import add_no_lock, check_lock, locked
from statefun.inspect.repair_plan import Request, WrittenText, planned_changes, requests_in
from statefun.inspect.state_texts import shown
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import can_lock
from statefun.runtime.checkpoint.repair_log import (
    REPAIRS_INBOX,
    Change,
    Repair,
    RepairLog,
    repairs_after,
)
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.stored.address_report import StoredValue, stored_value
from statefun.runtime.stored.committed_state import readable_batch, with_state
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.state_json import value_json
from statefun.runtime.stored.typed_values import SECRET_VALUE
from statefun.runtime.stored.written_values import ENCODINGS, RawValue
from statefun.runtime.terminal.table import counted, print_table
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.printable import printable

ACTIONS = {"set", "delete", "apply", "log"}
"""The names of the actions."""
_HEAD = ("address", "value", "before", "after")


def add_actions(actions: Actions) -> list[CommandParser]:
    """Add the actions to the parser of ``statefun state``, and return their parsers."""
    set_ = actions.add(
        "set",
        "set a value of an address, while the application is stopped",
        "statefun state set com.example.docs/greeter/ada count 7 --program app.py",
    )
    delete = actions.add(
        "delete",
        "delete values of an address, while the application is stopped",
        "statefun state delete com.example.docs/greeter/ada --all --program app.py",
    )
    apply = actions.add(
        "apply",
        "make all changes that a file lists, or none, while the application is stopped",
        "statefun state apply changes.yaml --program app.py --dry-run",
    )
    log = actions.add(
        "log", "list all changes that were made by hand", "statefun state log --program app.py"
    )
    for action in (set_, delete):
        action.add_argument("address", help="<namespace>/<name>/<id>, such as com.example/card/c1")
    set_.add_argument("name", help="the name of the value")
    set_.add_argument("value", help="the value: text for a value of text, JSON for others")
    set_.add_argument(
        "--encoding",
        choices=ENCODINGS,
        help="the value is given as bytes in this form: the content of a value of bytes, or any other value as it "
        "is stored",
    )
    set_.add_argument("--new", action="store_true", help="allow an address that has no state yet")
    delete.add_argument("name", nargs="*", help="the names of the values")
    delete.add_argument("--all", action="store_true", help="delete all values of the address")
    apply.add_argument("file", help="a list of changes in YAML; '-' is standard input")
    for action in (set_, delete, apply):
        action.add_argument(
            "--dry-run", action="store_true", help="check and print the changes, and make none"
        )
        add_no_lock(action)
    return [set_, delete, apply, log]


def run_action(checkpoint: Folder, known: KnownValues, options: argparse.Namespace) -> None:
    """Run one of the actions.

    Raises:
        ConfigurationError: if a change is not valid.
        CheckpointError: if the checkpoint cannot be read, or an application runs with it.
    """
    readable_batch(checkpoint, None)  # first, since a lock would create the folder
    if options.action == "log":
        _print_log(checkpoint, known, options)
        return
    requests = _requests(options)
    if options.dry_run:
        waiting = _waiting(checkpoint, RepairLog(checkpoint))
        if waiting:
            raise ConfigurationError(
                f"{_named(waiting)} is accepted, and not applied yet: the next start of the application, or the next "
                "change without --dry-run, applies it first"
            )
        _print_changes(_planned(checkpoint, known, requests), known, options, batch=None)
        return
    check_lock(checkpoint, no_lock=options.no_lock)
    with locked(checkpoint, has_lock=can_lock(checkpoint)) as guarded:
        batch, changes = _repair(guarded, known, requests)
    _print_changes(changes, known, options, batch=batch)


def _requests(options: argparse.Namespace) -> list[Request]:
    """Return the changes that the options request, or the changes in the file that the options name."""
    match options.action:
        case "set":
            value = WrittenText(options.value)
            raw = RawValue.of(options.value, options.encoding) if options.encoding else value
            return [Request(options.address, {options.name: raw}, is_new=options.new)]
        case "delete":
            if bool(options.name) == options.all:
                raise ConfigurationError("give the names of the values to delete, or --all")
            return [Request(options.address, deleted=options.name, deletes_all=options.all)]
    try:
        content = sys.stdin.read() if options.file == "-" else Path(options.file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"file {options.file} cannot be read: {error}") from error
    return requests_in(content, options.file)


def _repair(
    checkpoint: Folder, known: KnownValues, requests: Sequence[Request]
) -> tuple[int, Sequence[Change]]:
    """Make changes in one micro-batch, and return its number and the changes; first apply interrupted repairs."""
    changes, repairs = None, RepairLog(checkpoint)
    waiting = _waiting(checkpoint, repairs)
    if not waiting:  # most mistakes are found before Spark starts
        changes = _planned(checkpoint, known, requests)
    # Only changes need Spark, which takes long to import.
    from statefun.runtime.repairing import apply_repairs, prepare_repair  # noqa: PLC0415 - see above

    prepare_repair(checkpoint)  # also starts Spark: if that fails, nothing is accepted yet
    if changes is None:
        apply_repairs(checkpoint, repairs, has_lock=can_lock(checkpoint))
        print(
            f"{_named(waiting)} was accepted, but interrupted; it is applied now", file=sys.stderr
        )
        changes = _planned(checkpoint, known, requests)
    repairs.accept(_who(), datetime.now(timezone.utc), changes)
    try:
        batch = apply_repairs(checkpoint, repairs, has_lock=can_lock(checkpoint))
    except BaseException:  # Ctrl-C as well
        waiting = _waiting(checkpoint, repairs)
        if waiting:
            print(
                f"{_named(waiting)} is accepted, and not applied yet: the next start of the application, or the next "
                "change by hand, applies it",
                file=sys.stderr,
            )
        raise
    return batch, changes


def _who() -> str:
    """Return the user and the machine of this command, for the log of repairs."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _planned(
    checkpoint: Folder, known: KnownValues, requests: Sequence[Request]
) -> Sequence[Change]:
    changes = with_state(
        checkpoint,
        None,
        lambda state: planned_changes(requests, state, known, SystemClock().now()),
    )
    if not changes:
        addresses = ", ".join(request.address for request in requests)
        raise ConfigurationError(f"there is nothing to change: no values are stored at {addresses}")
    return changes


def _waiting(checkpoint: Folder, repairs: RepairLog) -> list[Repair]:
    """Return the repairs that are accepted and not applied yet."""
    log = CommitLog(checkpoint)
    applied = feedback_offset(log, log.newest()).last_of(REPAIRS_INBOX)
    return repairs_after(repairs.repairs(), applied)


def _named(waiting: Sequence[Repair]) -> str:
    return f"a repair by {waiting[0].who} at {waiting[0].when:%Y-%m-%d %H:%M:%S} UTC"


def _print_changes(
    changes: Sequence[Change], known: KnownValues, options: argparse.Namespace, batch: int | None
) -> None:
    if options.json:
        print_json({"batch": batch, "changes": [_change_json(each, known) for each in changes]})
        return
    print_table([_HEAD, *(_cells(each, known) for each in changes)])
    count = counted(len(changes), "change")
    if batch is None:
        print(f"{count} would be made; nothing was changed")
    else:
        print(f"{count} made in batch {batch}")


def _print_log(checkpoint: Folder, known: KnownValues, options: argparse.Namespace) -> None:
    repairs = RepairLog(checkpoint)
    waiting = _waiting(checkpoint, repairs)
    rows = [(repair, change) for repair in repairs.repairs() for change in repair.changes]
    if options.json:
        entries = [
            {
                "when": repair.when.isoformat().replace("+00:00", "Z"),
                "who": repair.who,
                "applied": repair not in waiting,
                **_change_json(change, known),
            }
            for repair, change in rows
        ]
        print_json({"changes": entries})
        return
    if rows:
        cells = [
            (f"{repair.when:%Y-%m-%d %H:%M:%S}", printable(repair.who), *_cells(change, known))
            for repair, change in rows
        ]
        print_table([("time (UTC)", "by", *_HEAD), *cells])
    count = counted(len(rows), "change")
    rest = f"; {_named(waiting)} is not applied yet: the next start applies it" if waiting else ""
    print(f"{count} by hand in {checkpoint.shown}{rest}")


def _cells(change: Change, known: KnownValues) -> tuple[str, ...]:
    address = printable(str(known.present(address_of(change.target))))
    before, after = (
        "-" if value is None else shown(_stored(value, change, known).decoded)
        for value in _sides(change)
    )
    return address, printable(change.name), before, after


def _change_json(change: Change, known: KnownValues) -> dict[str, Any]:
    address = address_of(change.target)
    before, after = (
        None if value is None else value_json(_stored(value, change, known))
        for value in _sides(change)
    )
    shown_address = str(known.present(address))
    return {"address": shown_address, "name": change.name, "before": before, "after": after}


def _stored(value: AddressState.Value, change: Change, known: KnownValues) -> StoredValue:
    """Return the old or new value of a change, decoded unless it is secret now or was secret at the change."""
    stored = stored_value(value, address_of(change.target), known)
    return attrs.evolve(stored, size=None, decoded=SECRET_VALUE) if change.is_secret else stored


def _sides(change: Change) -> Sequence[AddressState.Value | None]:
    return change.before, change.after
