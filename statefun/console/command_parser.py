# SPDX-License-Identifier: Apache-2.0
"""The parser of the command line: its help has examples, and its errors suggest the nearest name."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

_JSON = "print one JSON document"
_EXAMPLES = "for example:"


class CommandParser(argparse.ArgumentParser):
    """A parser of a command, or of one of its actions."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, **options)

    def actions(self, dest: str = "action") -> Actions:
        """Add an argument for the name of an action; the parsed options have the name as ``dest``."""
        return Actions(self.add_subparsers(dest=dest, metavar="action", required=True))

    def add_json(self, help: str = _JSON) -> None:  # noqa: A002 - as argparse names it
        """Add the option ``--json``."""
        self.add_argument("--json", action="store_true", help=help)

    def refuse_unknown(self, words: Sequence[str]) -> NoReturn:
        """End the program with a usage error that names the first argument that the command does not have."""
        name = words[0].partition("=")[0]
        if not name.startswith("-"):
            self.error(f"there is one argument too many: {words[0]!r}")
        self.error(f"there is no option {name}{_hint(name, self._option_string_actions)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is none of an argument's choices; argparse calls this for each value."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            near = _hint(str(value), known) or f"; there are {', '.join(known)}"
            what = f"{action.metavar} " if isinstance(action.choices, dict) else ""
            argument = None if what else action
            raise argparse.ArgumentError(argument, f"there is no {what}{value!r}{near}")


class _Formatter(argparse.HelpFormatter):
    """Keeps the line breaks of examples, and wraps all other texts."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


class Actions:
    """The actions of a command, or all commands of the program."""

    def __init__(self, parsers: argparse._SubParsersAction[CommandParser]) -> None:
        self._parsers = parsers

    def add(self, name: str, task: str, *examples: str) -> CommandParser:
        """Add an action, and return its parser.

        Args:
            name: the word that selects the action.
            task: what the action does, as a sentence without capital letter and full stop.
            examples: command lines.
        """
        parser = self._parsers.add_parser(
            name, help=task, description=_sentence(task), epilog=_shown(examples)
        )
        # The parsed options name the parser of the innermost action, for errors.
        parser.set_defaults(parser=parser)
        return parser


def _sentence(task: str) -> str:
    return f"{task[0].upper()}{task[1:]}."


def _shown(examples: Iterable[str]) -> str | None:
    lines = "".join(f"\n  {example}" for example in examples)
    return f"{_EXAMPLES}{lines}" if lines else None


def _hint(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
