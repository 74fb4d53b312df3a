# SPDX-License-Identifier: Apache-2.0
"""Arguments of commands that run or pack a program."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from statefun.console.command_parser import CommandParser
from statefun.sdk.errors import ConfigurationError

_PROGRAM: Final = Path("app.py")
"""The program if none is named."""


def add_program(command: CommandParser) -> None:
    """Add the argument for the program to a command."""
    command.add_argument(
        "program", type=Path, nargs="?", default=_PROGRAM, help=f"the program (default: {_PROGRAM})"
    )


def add_settings(command: CommandParser) -> None:
    """Add the option ``--conf`` for settings to a command."""
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting, such as spark.statefun.trigger=1s; may be repeated",
    )


def check_program(program: Path) -> None:
    """Check that there is a program.

    Raises:
        ConfigurationError: if there is none.
    """
    if not program.is_file():
        raise ConfigurationError(
            f"there is no program {program}; name one, or make an application with 'statefun new'"
        )
