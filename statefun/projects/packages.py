# SPDX-License-Identifier: Apache-2.0
"""Packs what the Python processes of a cluster need to run a program, besides Python and Spark."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, packages_distributions
from pathlib import Path
from typing import Final, NamedTuple

from statefun.module.user_program import load_program
from statefun.sdk.errors import ConfigurationError

STATEFUN: Final = "statefun"
_PYSPARK: Final = "pyspark"
"""Each Spark brings its own one, which has to fit its jars."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_COMPRESSION: Final = 4
"""The level of gzip: a higher one takes three times as long for an archive that is hardly smaller."""


class Package(NamedTuple):
    """What is packed for a program."""

    archive: Path
    requirements: Mapping[str, str]
    """The versions of the packed distributions, by name."""
    modules: tuple[str, ...]
    """The packed modules and packages of the program itself."""


def pack(program: Path, archive: Path, further: Iterable[str] = ()) -> Package:
    """Write an archive with statefun, the distributions that a program imports, and its own modules.

    Args:
        program: the file of the program, which is loaded without being run.
        archive: the ``.tar.gz`` to write.
        further: the names of further distributions.

    Raises:
        StatefunError: if the program cannot be loaded.
        ConfigurationError: if a distribution is not installed, or only refers to the folder of its source.
    """
    imported = _imported(program)
    own = {name: path for name, path in imported.items() if _is_own(path)}
    owners = packages_distributions()
    names = {owner for name in imported.keys() - own.keys() for owner in owners.get(name, ())}
    distributions = _with_requirements([STATEFUN, *sorted(names), *further])
    with tarfile.open(archive, "w:gz", compresslevel=_COMPRESSION) as tar:
        for distribution in distributions.values():
            for path, place in _files(distribution):
                tar.add(path, place, recursive=False)
        for path in own.values():
            for file in _below(path):
                tar.add(file, str(file.relative_to(path.parent)), recursive=False)
    versions = {each.name: each.version for each in distributions.values()}
    return Package(archive, dict(sorted(versions.items())), tuple(sorted(own)))


def _imported(program: Path) -> dict[str, Path]:
    """Return the modules and packages that a program imports, by their top-level names."""
    before = set(sys.modules)
    sys.path.insert(0, str(program.resolve().parent))
    try:
        load_program(program)
    finally:
        del sys.path[0]
    found = {}
    for name in {each.partition(".")[0] for each in sys.modules.keys() - before}:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and not name.startswith("__"):
            path = Path(file).resolve()
            found[name] = path.parent if path.name == "__init__.py" else path
    return found


def _is_own(path: Path) -> bool:
    """Return whether a module belongs to the program: it is neither installed nor a part of Python or statefun."""
    places = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]
    return not any(path.is_relative_to(each) for each in [*places, _package_of_statefun()])


def _with_requirements(names: Iterable[str]) -> dict[str, Distribution]:
    """Return distributions and all that they require, without PySpark, by their normalised names.

    Raises:
        ConfigurationError: if one of ``names`` is not installed.
    """
    found: dict[str, Distribution] = {}
    waiting = [(name, True) for name in names]
    while waiting:
        name, is_asked = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found or key == _PYSPARK:
            continue
        try:
            distribution = Distribution.from_name(name)
        except PackageNotFoundError:
            if is_asked:
                raise ConfigurationError(
                    f"{name} is not installed in this Python; run: pip install {name}"
                ) from None
            continue  # other systems or versions of Python require it
        found[key] = distribution
        waiting += [(each, False) for each in _requirements(distribution)]
    return found


def _requirements(distribution: Distribution) -> Iterator[str]:
    for text in distribution.requires or ():
        name, _, marker = text.partition(";")
        if "extra" not in marker and (match := _NAME.match(name)):
            yield match[0]


def _files(distribution: Distribution) -> Iterator[tuple[Path, str]]:
    """Yield the files of an installed distribution with their paths in the archive.

    Raises:
        ConfigurationError: if the distribution only refers to the folder of its source.
    """
    is_link = _refers_to_source(distribution)
    if is_link and distribution.name != STATEFUN:
        raise ConfigurationError(
            f"{distribution.name} is installed in its editable form, which other machines cannot use; run: "
            "pip install . in its folder"
        )
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and path.suffix not in {".pyc", ".pth"} and path.is_file():
            yield path, str(file)
    if is_link:
        package = _package_of_statefun()
        for path in _below(package):
            yield path, str(path.relative_to(package.parent))


def _refers_to_source(distribution: Distribution) -> bool:
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable"))


def _package_of_statefun() -> Path:
    return Path(__file__).resolve().parents[1]


def _below(path: Path) -> list[Path]:
    """Return a file, or all files of a folder, without compiled ones."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [each for each in files if each.is_file() and "__pycache__" not in each.parts]
