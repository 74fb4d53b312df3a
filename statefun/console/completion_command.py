# SPDX-License-Identifier: Apache-2.0
"""``statefun completion``: prints a script with which a shell completes commands, options and files."""

from __future__ import annotations

import argparse
import os
from typing import Final

from statefun.console.command_parser import CommandParser

_SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(completion: CommandParser) -> None:
    """Add the arguments of ``statefun completion`` to its parser."""
    completion.add_argument("shell", choices=_SHELLS, help="your shell: bash, zsh or fish")


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun completion``.

    Args:
        options: the parsed options of the command line.
    """
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - only this command needs it

    print(shellcode(["statefun"], shell=options.shell))


def completed_line() -> str | None:
    """Return the command line that a shell wants to be completed; None if the program is started as usual."""
    return os.environ.get("COMP_LINE") if "_ARGCOMPLETE" in os.environ else None


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the words that may be next on the shell's command line, and end the program."""
    from argcomplete import autocomplete  # noqa: PLC0415 - as above

    autocomplete(parser)
