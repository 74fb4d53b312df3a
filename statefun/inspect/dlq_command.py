# SPDX-License-Identifier: Apache-2.0
"""``statefun dlq``: lists, shows, replays, edits and drops dead letters."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from statefun.console.argument_types import argument
from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.inspect.validation import declared_module, program_and_modules
from statefun.runtime.letters.dead_letters import DeadLetters
from statefun.runtime.letters.letter_ends import EndResult, LetterEnds
from statefun.runtime.letters.letter_filter import LetterFilter, past_moment
from statefun.runtime.letters.letter_texts import (
    LETTER_COLUMNS,
    as_json,
    in_full,
    row,
    value_of,
    value_text,
)
from statefun.runtime.terminal.table import counted, print_table
from statefun.sdk.errors import ConfigurationError

_REASONS = 20
"""How many reasons are printed at most for letters that could not be replayed or dropped."""


def add_arguments(dlq: CommandParser) -> None:
    """Add the actions of ``statefun dlq`` to its parser."""
    actions = dlq.actions()
    list_ = actions.add(
        "list",
        "print a table of the dead letters that were neither replayed nor dropped",
        "statefun dlq list --function com.example.docs/greeter --since 12h",
    )
    show = actions.add("show", "print all parts of a dead letter", "statefun dlq show 0/17")
    replay = actions.add(
        "replay", "send dead letters again, each exactly once", "statefun dlq replay --error SF302"
    )
    edit = actions.add(
        "edit", "replay a dead letter with another value", "statefun dlq edit 0/17 value.json"
    )
    drop = actions.add(
        "drop",
        "remove dead letters from the list without a replay",
        "statefun dlq drop --until 30d",
    )
    for action in (show, edit):
        action.add_argument("id", help="the id of a dead letter, as 'list' prints it: 0/17")
    edit.add_argument(
        "file",
        nargs="?",
        help="a file with the new value; '-' is standard input (default: open the value in "
        "$EDITOR)",
    )
    for action in (replay, drop):
        action.add_argument("id", nargs="*", help="the ids of dead letters, as 'list' prints them")
        action.add_argument("--all", action="store_true", help="all dead letters")
    for action in (list_, replay, drop):
        _add_filters(action)
    for action in (replay, drop):
        action.set_defaults(usage_error=action.error)
    for action in (replay, edit):
        action.add_argument(
            "--to-target",
            action="store_true",
            help="send them to the function that has failed, through the egress's replayTopic, and "
            "not into the topic of their record",
        )
    for action in (list_, show):
        action.add_json("print JSON, one line for each dead letter, in the order of the topic")
    for action in (replay, edit, drop):
        action.add_json()
    for action in (list_, show, replay, edit, drop):
        action.add_argument(
            "--module",
            type=Path,
            action="append",
            help="a module file (default: module.yaml in this folder), or a program that declares "
            "its egresses; may be repeated",
        )


def _add_filters(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--function", help="only dead letters for this function: a typename, or an address"
    )
    action.add_argument(
        "--error",
        help="only dead letters with this error: a code such as SF302, or the class of an exception",
    )
    action.add_argument("--topic", help="only dead letters whose record is from this topic")
    action.add_argument(
        "--since",
        type=argument(past_moment),
        metavar="TIME",
        help="only dead letters from this time on: 2026-05-04T12:30 in UTC, or a duration before "
        "now, such as 90min, 12h, 7d",
    )
    action.add_argument(
        "--until",
        type=argument(past_moment),
        metavar="TIME",
        help="only dead letters from before this time",
    )


def run_command(options: argparse.Namespace) -> int:
    """Run ``statefun dlq``; return 1 if a selected letter could not be replayed or dropped, else 0.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    if options.action in {"replay", "drop"}:
        _check_selection(options)
    letters = DeadLetters(declared_module(*program_and_modules(options.module or [])))
    ends = LetterEnds(letters)
    match options.action:
        case "list":
            _list(letters, _filter(options), in_json=options.json)
        case "show":
            _show(letters, options.id, in_json=options.json)
        case "drop":
            return _report(ends.drop(_chosen(options)), "dropped", "", in_json=options.json)
        case "edit":
            value = _new_value(letters, options.id, options.file)
            result = ends.replay_changed(options.id, value, to_target=options.to_target)
            return _report(result, "replayed", _destination(options), in_json=options.json)
        case "replay":
            result = ends.replay(_chosen(options), to_target=options.to_target)
            return _report(result, "replayed", _destination(options), in_json=options.json)
    return 0


def _check_selection(options: argparse.Namespace) -> None:
    """End the program with a usage error if options that select dead letters are missing or exclude each other."""
    selections = [bool(options.id), options.all, not _filter(options).is_empty]
    if not any(selections) or (options.id and any(selections[1:])):
        options.usage_error(
            f"give the ids of the dead letters to {options.action}, or a filter, or --all"
        )


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


def _destination(options: argparse.Namespace) -> str:
    return " to their targets" if options.to_target else " into their topics"


def _list(letters: DeadLetters, filter_: LetterFilter, *, in_json: bool) -> None:
    if in_json:
        for letter in letters.stream(filter_):
            print(json.dumps(as_json(letter)))
        return
    # Keep only the printed parts of letters: letters may be large and many.
    rows = sorted((letter.age_order, row(letter)) for letter in letters.stream(filter_))
    kind = "dead letters" if filter_.is_empty else "such dead letters"
    if not rows:
        print(f"topic {letters.topic} has no {kind} that wait")
        return
    print_table([LETTER_COLUMNS, *(cells for _, cells in rows)])
    print(f"{counted(len(rows), kind.removesuffix('s'))} in topic {letters.topic}")


def _show(letters: DeadLetters, id_: str, *, in_json: bool) -> None:
    (letter,) = letters.read(LetterFilter.of([id_]))
    if in_json:
        print(json.dumps(as_json(letter)))
        return
    print(f"dead letter {id_} in topic {letters.topic}")
    for line in in_full(letter):
        print(line)


def _report(result: EndResult, action: str, destination: str, *, in_json: bool) -> int:
    """Print how many letters were replayed or dropped, and the reasons for the rest; return the exit code."""
    if in_json:
        print_json({action: result.count, "problems": [str(each) for each in result.problems]})
        return 1 if result.problems else 0
    if result.count or not result.problems:
        print(f"{action} {counted(result.count, 'dead letter')}{destination}")
    for error in result.problems[:_REASONS]:
        print(f"statefun: {error}", file=sys.stderr)
    total = len(result.problems)
    if total > 1:
        listed = f" ({_REASONS} of them are listed)" if total > _REASONS else ""
        print(f"statefun: {counted(total, 'dead letter')} stay{listed}", file=sys.stderr)
    return 1 if result.problems else 0


def _new_value(letters: DeadLetters, id_: str, file: str | None) -> bytes:
    """Return a new value for a dead letter, read from a file or edited by the user, as bytes.

    Raises:
        ConfigurationError: if the new value cannot be read, is unchanged, or is not of the type of the
            letter's value.
    """
    (letter,) = letters.read(LetterFilter.of([id_]))
    try:
        if file == "-":
            return value_of(letter, sys.stdin.buffer.read())
        if file is not None:
            return value_of(letter, Path(file).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"file {file} cannot be read: {error.strerror}") from error
    if letter.is_secret:
        raise ConfigurationError(
            f"the value of dead letter {id_} is secret, and is not shown; give a file with a new value"
        )
    text = value_text(letter)
    if text is None:
        raise ConfigurationError(
            f"the value of dead letter {id_} is not text, and cannot be edited; give a file with a new value"
        )
    new = _edited(text)
    if new == text.encode():
        raise ConfigurationError(
            f"the value of dead letter {id_} was not changed, so the letter is not replayed"
        )
    return value_of(letter, new)


def _edited(text: str) -> bytes:
    """Open a text in the user's editor; return the edited text as bytes.

    Raises:
        ConfigurationError: if the text cannot be written for the editor, or the editor cannot be started, or ends with
            an error.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="statefun-dlq-") as folder:
        file = Path(folder) / "value"
        try:
            file.write_bytes(text.encode())  # as the value is, whatever the encoding of the locale
        except OSError as error:
            raise ConfigurationError(
                f"the file {file}, which the editor {editor!r} is to open, cannot be written: {error.strerror}; set "
                "TMPDIR to another folder, or give a file with the new value"
            ) from error
        try:
            status = subprocess.run([*shlex.split(editor), file], check=False).returncode
        except OSError as error:
            raise ConfigurationError(
                f"the editor {editor!r} cannot be started: {error.strerror}; set EDITOR, or give a "
                "file with the new value"
            ) from error
        if status:
            raise ConfigurationError(
                f"the editor {editor!r} has ended with status {status}, so the letter is not replayed"
            )
        new = file.read_bytes()
    # Editors add a line break at the end of the last line.
    return new if text.endswith("\n") else new.removesuffix(b"\n")
