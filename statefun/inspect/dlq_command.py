# SPDX-License-Identifier: Apache-2.0
"""``statefun dlq``: lists dead letters, replays, changes and drops them."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from statefun.inspect.dead_letters import DeadLetters
from statefun.inspect.letter_ends import Ended, LetterEnds
from statefun.inspect.letter_filter import LetterFilter, parse_moment
from statefun.inspect.letter_texts import (
    LETTER_COLUMNS,
    as_json,
    in_full,
    row,
    value_of,
    value_text,
)
from statefun.module.model import Module
from statefun.runtime.terminal.table import counted, print_table
from statefun.sdk.errors import ConfigurationError

_REASONS = 20
"""How many letters that stay are named, with the reason."""


def add_command(commands: Any) -> None:
    """Add the command to a parser."""
    dlq = commands.add_parser("dlq", help="look at dead letters, replay, change and drop them")
    actions = dlq.add_subparsers(dest="action", metavar="action", required=True)
    list_ = actions.add_parser("list", help="a table of all that are not done")
    show = actions.add_parser("show", help="one of them in full")
    replay = actions.add_parser("replay", help="send them on their way again, each once")
    edit = actions.add_parser("edit", help="replay one with another value")
    drop = actions.add_parser("drop", help="let them be done without a replay")
    for action in (show, edit):
        action.add_argument("id", help="as the table has it, such as 0/17")
    edit.add_argument(
        "file",
        nargs="?",
        help="with the new value; '-' is standard input (default: open the value in $EDITOR)",
    )
    for action in (replay, drop):
        action.add_argument("id", nargs="*", help="which ones")
        action.add_argument("--all", action="store_true", help="all that there are")
    for action in (list_, replay, drop):
        _add_filters(action)
    for action in (replay, edit):
        action.add_argument(
            "--to-target",
            action="store_true",
            help="straight to the function that has failed, through the egress's replayTopic, and "
            "not into the topic that they came from",
        )
    for action in (list_, show):
        action.add_argument(
            "--json", action="store_true", help="as JSON, a line for each, in the topic's order"
        )
    for action in (list_, show, replay, edit, drop):
        action.add_argument(
            "--module",
            type=Path,
            action="append",
            help="a module file (default: module.yaml in this folder), or a program that declares "
            "its egresses; may be repeated",
        )


def _add_filters(action: argparse.ArgumentParser) -> None:
    action.add_argument("--function", help="for this function: a typename, or an address")
    action.add_argument("--error", help="with this error: a code such as SF302, or a class")
    action.add_argument("--topic", help="from this topic")
    action.add_argument(
        "--since",
        type=_moment,
        metavar="TIME",
        help="from this time on: 2026-05-04T12:30 in UTC, or an age such as 90min, 12h, 7d",
    )
    action.add_argument("--until", type=_moment, metavar="TIME", help="before this time")


def _moment(text: str) -> datetime:
    try:
        return parse_moment(text, datetime.now(timezone.utc))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def problem_of(options: argparse.Namespace) -> str | None:
    """Return what is wrong with the options of a command; None if nothing is."""
    if options.action not in {"replay", "drop"}:
        return None
    ways = [bool(options.id), options.all, not _filter(options).takes_all]
    if any(ways) and not (options.id and any(ways[1:])):
        return None
    return f"name the dead letters to {options.action}, or give a filter, or --all"


def run_command(options: argparse.Namespace, load: Callable[[Sequence[Path]], Module]) -> int:
    """Carry out the command; return its exit code: 1 if letters stay that were to be replayed.

    Args:
        options: of the command line.
        load: loads module files and programs.

    Raises:
        StatefunError: if it cannot be done.
    """
    letters = DeadLetters(load(options.module or []))
    ends = LetterEnds(letters)
    match options.action:
        case "list":
            _list(letters, _filter(options), in_json=options.json)
        case "show":
            _show(letters, options.id, in_json=options.json)
        case "drop":
            return _report(ends.drop(_chosen(options)), "dropped", "")
        case "edit":
            value = _new_value(letters, options.id, options.file)
            ended = ends.replay_changed(options.id, value, to_target=options.to_target)
            return _report(ended, "replayed", _where(options))
        case "replay":
            ended = ends.replay(_chosen(options), to_target=options.to_target)
            return _report(ended, "replayed", _where(options))
    return 0


def _filter(options: argparse.Namespace) -> LetterFilter:
    return LetterFilter(
        function=options.function,
        error=options.error,
        topic=options.topic,
        since=options.since,
        until=options.until,
    )


def _chosen(options: argparse.Namespace) -> LetterFilter:
    return LetterFilter.of(options.id) if options.id else _filter(options)


def _where(options: argparse.Namespace) -> str:
    return " to their targets" if options.to_target else " into their topics"


def _list(letters: DeadLetters, wanted: LetterFilter, *, in_json: bool) -> None:
    if in_json:
        for letter in letters.stream(wanted):
            print(json.dumps(as_json(letter)))
        return
    # No more of letters than is printed: they may be large and many.
    found = sorted((letter.age_order, row(letter)) for letter in letters.stream(wanted))
    kind = "dead letters" if wanted.takes_all else "such dead letters"
    if not found:
        print(f"no {kind} wait in topic {letters.topic}")
        return
    print_table([LETTER_COLUMNS, *(cells for _, cells in found)])
    print(f"{counted(len(found), kind.removesuffix('s'))} in topic {letters.topic}")


def _show(letters: DeadLetters, id_: str, *, in_json: bool) -> None:
    (letter,) = letters.read(LetterFilter.of([id_]))
    if in_json:
        print(json.dumps(as_json(letter)))
        return
    print(f"dead letter {id_} in topic {letters.topic}")
    for line in in_full(letter):
        print(line)


def _report(ended: Ended, done: str, where: str) -> int:
    """Print what has become of letters; return the exit code."""
    if ended.count or not ended.stay:
        print(f"{done} {counted(ended.count, 'dead letter')}{where}")
    for error in ended.stay[:_REASONS]:
        print(f"statefun: {error}", file=sys.stderr)
    if len(ended.stay) > 1:
        more = len(ended.stay) - _REASONS
        others = f", {more:,} more than these" if more > 0 else ""
        print(f"statefun: {counted(len(ended.stay), 'dead letter')} stay{others}", file=sys.stderr)
    return 1 if ended.stay else 0


def _new_value(letters: DeadLetters, id_: str, file: str | None) -> bytes:
    """Return the new value of a letter's record, as bytes of its type.

    Raises:
        ConfigurationError: if there is none.
    """
    (letter,) = letters.read(LetterFilter.of([id_]))
    try:
        if file == "-":
            return value_of(letter, sys.stdin.buffer.read())
        if file is not None:
            return value_of(letter, Path(file).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    text = value_text(letter)
    if text is None:
        raise ConfigurationError(
            f"the value of dead letter {id_} is no text; give a file with the new value"
        )
    new = _edited(text)
    if new == text.encode():
        raise ConfigurationError(f"the value was not changed; dead letter {id_} stays as it is")
    return value_of(letter, new)


def _edited(text: str) -> bytes:
    """Let the user change a text in an editor."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="statefun-dlq-") as folder:
        file = Path(folder) / "value"
        file.write_text(text)
        try:
            status = subprocess.run([*shlex.split(editor), file], check=False).returncode
        except OSError as error:
            raise ConfigurationError(
                f"the editor {editor!r} cannot be started: {error.strerror}; set EDITOR, or give a "
                "file with the new value"
            ) from error
        if status:
            raise ConfigurationError(f"the editor {editor!r} has ended with status {status}")
        new = file.read_bytes()
    # Editors end a last line that the value did not end.
    return new if text.endswith("\n") else new.removesuffix(b"\n")
