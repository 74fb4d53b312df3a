# SPDX-License-Identifier: Apache-2.0
"""``statefun new``: makes the folder of a new application, with tests and a demo."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Final

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.projects.imports import STATEFUN
from statefun.projects.packages import with_requirements
from statefun.runtime.spark_internals.distributions import OF_SPARK
from statefun.sdk.errors import ConfigurationError

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST: Final = 60
_OF_TESTS: Final = "pytest"
"""The package with which the tests of an application run."""
_SUFFIX: Final = ".template"
"""The suffix of the template's files, without which they would be modules of this package."""


def add_arguments(new: CommandParser) -> None:
    """Add the arguments of ``statefun new`` to its parser."""
    new.add_argument(
        "folder",
        type=Path,
        metavar="name",
        help="the name of the application: a new or empty folder here, or the path of one",
    )
    new.add_json()


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun new``.

    Args:
        options: the parsed options of the command line.

    Raises:
        ConfigurationError: if the name is not valid, or the folder cannot be written or has files.
    """
    folder: Path = options.folder
    written = make_project(folder)
    if options.json:
        print_json({"folder": str(folder), "files": written})
        return
    print(f"{folder} has {', '.join(written[:-1])} and {written[-1]}")
    print(f"next: cd {shlex.quote(str(folder))} && make demo")


def make_project(folder: Path) -> list[str]:
    """Write the files of the template to a folder, and return their names; finish what an earlier attempt has begun.

    Raises:
        ConfigurationError: as for ``run_command``.
    """
    name = folder.absolute().name
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ConfigurationError(
            f"{name!r} is no name for an application: use small letters, digits and single hyphens, with a letter "
            f"first, and {_LONGEST} characters at most, such as 'my-shop'"
        )
    if name in _required():
        raise ConfigurationError(
            f"{name!r} is no name for an application: pip would take it for the package {name}, which it requires; "
            f"choose another name, such as 'my-{name}'"
        )
    project = _project(name)
    try:
        if folder.exists() and not (folder.is_dir() and _has_only_parts(folder, project)):
            raise ConfigurationError(
                f"{folder} exists already, and is not an empty folder; choose another name"
            )
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in project.items():
            (folder / file).write_text(text, "utf-8")
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}") from error
    return sorted(project)


def _required() -> frozenset[str]:
    """Return the names of the packages that an application and its tests require, also by way of other packages."""
    required = OF_SPARK.union(with_requirements([STATEFUN]), [_OF_TESTS])
    with suppress(ConfigurationError):  # pytest is not installed here
        return required.union(with_requirements([_OF_TESTS]))
    return required


def _has_only_parts(folder: Path, project: Mapping[str, str]) -> bool:
    """Return whether a folder has nothing but files of a project, or their beginnings, as a write that failed leaves them."""
    return all(
        path.is_file() and project.get(path.name, "").encode().startswith(path.read_bytes())
        for path in folder.iterdir()
    )


def _project(name: str) -> dict[str, str]:
    """Return the texts of a project's files by their names."""
    return {
        template.name.removesuffix(_SUFFIX): template.read_text("utf-8")
        .replace("{{name}}", name)
        .replace("{{version}}", version("statefun"))
        for template in files(__package__).joinpath("template").iterdir()
        if template.name.endswith(_SUFFIX)
    }
