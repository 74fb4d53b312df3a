# SPDX-License-Identifier: Apache-2.0
"""``statefun run``: runs a program with the ``spark-submit`` of this Python's PySpark."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn

from statefun.console.command_parser import CommandParser
from statefun.projects.program_arguments import add_program, add_settings, check_program
from statefun.runtime.spark.jars import java_command
from statefun.sdk.errors import PlatformError

_OPTIONS: Final = {
    "--master": ("URL", "where Spark runs (default: on all cores of this machine)"),
    "--properties-file": ("FILE", "a file with settings"),
    "--driver-memory": ("SIZE", "memory of the driver's JVM, such as 4g"),
    "--py-files": ("FILES", "further modules of the program, separated by commas"),
}
"""Options of ``spark-submit`` with their values and meanings."""


def add_arguments(run: CommandParser) -> None:
    """Add the arguments of ``statefun run`` to its parser."""
    add_settings(run)
    for option, (value, meaning) in _OPTIONS.items():
        run.add_argument(option, metavar=value, help=meaning)
    add_program(run)
    run.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="further words are arguments of the program"
    )


def run_command(options: argparse.Namespace) -> NoReturn:
    """Replace this process by ``spark-submit``, so that signals and exit codes are those of the program.

    Args:
        options: the parsed options of the command line.

    Raises:
        ConfigurationError: if there is no such program.
        PlatformError: if PySpark or Java is missing.
    """
    check_program(options.program)
    java_command()  # fails with the command that installs Java
    given = vars(options)
    settings = [word for setting in options.conf for word in ("--conf", setting)]
    for option in _OPTIONS:
        value = given[option.removeprefix("--").replace("-", "_")]
        settings += [] if value is None else [option, value]
    command = submission(options.program, settings, options.arguments)
    os.execve(command[0], command, environment())  # noqa: S606 - no shell is needed


def submission(
    program: Path, settings: Sequence[str] = (), arguments: Sequence[str] = ()
) -> list[str]:
    """Return the command that runs a program with Spark.

    Args:
        program: the file of the program.
        settings: options of ``spark-submit``.
        arguments: the arguments of the program itself.

    Raises:
        PlatformError: if there is no ``spark-submit``.
    """
    return [str(_spark_home() / "bin" / "spark-submit"), *settings, str(program), *arguments]


def environment() -> Mapping[str, str]:
    """Return the variables for ``spark-submit``: driver and workers use this Python unless a variable names another."""
    return {"SPARK_HOME": str(_spark_home()), "PYSPARK_PYTHON": sys.executable, **os.environ}


def _spark_home() -> Path:
    """Return the folder of Spark: ``SPARK_HOME``, or the folder of the package ``pyspark``.

    Raises:
        PlatformError: if there is no such folder, or it has no ``spark-submit``.
    """
    package = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (package and str(Path(package.origin or "").parent))
    if not home or not Path(home, "bin", "spark-submit").is_file():
        raise PlatformError(
            f"there is no spark-submit in {home}/bin, where SPARK_HOME points"
            if home
            else "PySpark is missing; run: pip install pyspark"
        )
    return Path(home)
