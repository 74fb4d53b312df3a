# SPDX-License-Identifier: Apache-2.0
"""``statefun package``: packs a program for the machines of a cluster, and prints the commands that run it there."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.projects.program_arguments import add_program
from statefun.sdk.errors import ConfigurationError

if TYPE_CHECKING:  # importing it takes a while, which the help need not wait for
    from statefun.projects.packages import Package

_FOLDER: Final = Path("dist")
_ARCHIVE: Final = "packages.tar.gz"
_REQUIREMENTS: Final = "requirements.txt"
_MARK: Final = "# written by statefun package"
"""The first line of the file with the requirements; a file without it is the user's."""
_UNPACKED: Final = "packages"
"""The name of the folder with the unpacked archive, in the working directory of each process on the cluster."""


def add_arguments(package: CommandParser) -> None:
    """Add the arguments of ``statefun package`` to its parser."""
    add_program(package)
    package.add_argument(
        "--output",
        type=Path,
        default=_FOLDER,
        metavar="FOLDER",
        help=f"the folder for the archive (default: {_FOLDER})",
    )
    package.add_argument(
        "--with",
        action="append",
        default=[],
        dest="further",
        metavar="NAME",
        help="a further installed package, which the program imports only while it runs, such as aiohttp or "
        "statefun[remote]; may be repeated",
    )
    package.add_json()


def run_command(options: argparse.Namespace) -> None:
    """Write the archive and the requirements, and print the commands.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the program cannot be loaded or packed, or if the folder has requirements of the user's.
    """
    from statefun.projects.packages import pack  # noqa: PLC0415 - see TYPE_CHECKING above

    requirements = options.output / _REQUIREMENTS
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        _check_own(requirements)
        package = pack(options.program, options.output / _ARCHIVE, options.further)
        lines = [_MARK, *(f"{name}=={version}" for name, version in package.requirements.items())]
        requirements.write_text("".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise ConfigurationError(f"{options.output} cannot be written: {error}") from error
    submissions = commands(options.program, package.archive)
    if options.json:
        print_json(
            {
                "archive": str(package.archive),
                "requirements": str(requirements),
                "versions": package.requirements,
                "modules": package.modules,
                "commands": submissions,
            }
        )
        return
    _print(package, requirements, submissions)


def _check_own(requirements: Path) -> None:
    """Check that the file with the requirements is missing, empty, or written by this command.

    Raises:
        ConfigurationError: if it is the user's.
    """
    text = requirements.read_bytes() if requirements.exists() else b""
    if text and not text.startswith(_MARK.encode()):
        raise ConfigurationError(
            f"{requirements} was not written by this command, and would be replaced: give another folder with --output, "
            "or delete the file"
        )


def commands(program: Path, archive: Path) -> Mapping[str, Sequence[str]]:
    """Return, for each kind of cluster, the command that runs a packed program; the user replaces words in capitals.

    Args:
        program: the file of the program.
        archive: the archive that was packed for it.
    """
    common = {
        "spark.executorEnv.PYTHONPATH": _UNPACKED,
        "spark.pyspark.python": f"python{sys.version_info.major}.{sys.version_info.minor}",
        "spark.statefun.checkpoint": "s3a://BUCKET/NAME",
    }
    kinds: Mapping[str, tuple[Sequence[str], Mapping[str, str]]] = {
        "standalone": (
            ["--master", "spark://HOST:7077"],
            # The driver runs here, with the packages that are installed here.
            {"spark.pyspark.driver.python": sys.executable},
        ),
        "yarn": (
            ["--master", "yarn", "--deploy-mode", "cluster", *_module_files(program)],
            {"spark.yarn.appMasterEnv.PYTHONPATH": _UNPACKED},
        ),
        "kubernetes": (
            [
                *("--master", "k8s://https://HOST:6443", "--deploy-mode", "cluster"),
                *_module_files(program),
            ],
            {
                "spark.kubernetes.container.image": "IMAGE",
                "spark.kubernetes.file.upload.path": "s3a://BUCKET/uploads",
                "spark.kubernetes.driverEnv.PYTHONPATH": _UNPACKED,
            },
        ),
    }
    return {
        kind: [
            *("spark-submit", *options, "--archives", f"{archive}#{_UNPACKED}"),
            *(
                word
                for key, value in {**common, **own}.items()
                for word in ("--conf", f"{key}={value}")
            ),
            str(program),
        ]
        for kind, (options, own) in kinds.items()
    }


def _module_files(program: Path) -> Sequence[str]:
    file = program.parent / "module.yaml"
    return ["--files", str(file)] if file.is_file() else []


def _print(package: Package, requirements: Path, submissions: Mapping[str, Sequence[str]]) -> None:
    size = package.archive.stat().st_size / 1_000_000
    own = f", and {', '.join(package.modules)}" if package.modules else ""
    print(f"{package.archive} ({size:.0f} MB) has {len(package.requirements)} packages{own}")
    print(f"{requirements} has their versions")
    for kind, words in submissions.items():
        print(f"\n{kind}:")
        print("  " + " \\\n    ".join(_lines(words)))


def _lines(words: Sequence[str]) -> Sequence[str]:
    """Return the lines of a command: its name, each of its options with its one value, and the program."""
    name, *options, program = words
    pairs = zip(options[::2], options[1::2], strict=True)
    return [name, *map(shlex.join, pairs), shlex.quote(program)]
