# SPDX-License-Identifier: Apache-2.0
"""All commands and actions of the command line, for tests about all of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from statefun.cli import parser
from statefun.console.command_parser import CommandParser


def commands() -> dict[str, CommandParser]:
    """Return the parsers of all commands and actions by their words, such as ``dlq list``."""
    return dict(_below(parser(), ()))


def _below(above: CommandParser, words: tuple[str, ...]) -> Iterator[tuple[str, CommandParser]]:
    for action in above._actions:  # noqa: SLF001 - argparse has no other way to its parsers
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for name, below in action.choices.items():
                yield " ".join((*words, name)), below
                yield from _below(below, (*words, name))
