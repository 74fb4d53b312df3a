# SPDX-License-Identifier: Apache-2.0
"""Packs what the Python processes of a cluster need to run a program, besides Python and Spark."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from statefun.projects.imports import STATEFUN, imports_of
from statefun.runtime.spark_internals.distributions import OF_SPARK
from statefun.sdk.errors import ConfigurationError

_COMPRESSION: Final = 4
"""The level of gzip: a higher one takes three times as long for an archive that is hardly smaller."""


class Package(NamedTuple):
    """The archive of a program, and its content."""

    archive: Path
    requirements: Mapping[str, str]
    """The versions of the packed distributions, by name."""
    modules: tuple[str, ...]
    """The packed modules and packages of the program itself."""


def pack(program: Path, archive: Path, further: Iterable[str] = ()) -> Package:
    """Write an archive with statefun, the distributions that a program imports, and its own modules.

    Args:
        program: the file of the program, which is loaded without being run.
        archive: the ``.tar.gz`` to write; if it cannot be written, an earlier archive of this name stays.
        further: the names of further distributions, which may have extras.

    Raises:
        StatefunError: if the program cannot be loaded.
        ConfigurationError: if a module or a distribution cannot be packed.
    """
    imports = imports_of(program)
    distributions = with_requirements([STATEFUN, *sorted(imports.distributions), *further])
    files = [file for each in distributions.values() for file in _files(each)]
    former = archive.resolve()
    for path, root in imports.own.items():
        files += [
            (file, str(file.relative_to(root))) for file in _below(path) if file.resolve() != former
        ]
    _write(archive, files)
    versions = {each.name: each.version for each in distributions.values()}
    modules = {
        path.relative_to(root).parts[0].partition(".")[0] for path, root in imports.own.items()
    }
    return Package(archive, dict(sorted(versions.items())), tuple(sorted(modules)))


def _write(archive: Path, files: Iterable[tuple[Path, str]]) -> None:
    """Write files into an archive, at the given paths; a complete archive replaces an earlier one of its name."""
    temporary = archive.with_name(f".{archive.name}.part")
    try:
        with tarfile.open(temporary, "w:gz", compresslevel=_COMPRESSION, dereference=True) as tar:
            for path, place in files:
                tar.add(path, place, recursive=False, filter=_without_owner)
        temporary.replace(archive)
    finally:
        temporary.unlink(missing_ok=True)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove from an archive's entry for a file the owner that the file has on this machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def with_requirements(names: Iterable[str]) -> dict[str, Distribution]:
    """Return distributions and all that they require, by their normalised names; Spark's own are left out.

    Raises:
        ConfigurationError: if one of ``names`` is not the name of an installed distribution.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(_asked(name), True) for name in names]
    while waiting:
        requirement, is_asked = waiting.pop()
        key = canonicalize_name(requirement.name)
        extras = {(key, extra) for extra in ("", *requirement.extras)} - seen
        if not extras or key in OF_SPARK:
            continue
        try:
            distribution = found.setdefault(key, Distribution.from_name(requirement.name))
        except PackageNotFoundError:
            if is_asked:
                raise ConfigurationError(
                    f"{requirement.name} is not installed in this Python; run: pip install {requirement.name}"
                ) from None
            continue  # the program is loaded here without it
        seen |= extras
        waiting += [
            (each, False)
            for _, extra in sorted(extras)
            for each in _requirements(distribution, extra)
        ]
    return found


def _asked(name: str) -> Requirement:
    try:
        return Requirement(name)
    except InvalidRequirement:
        raise ConfigurationError(f"{name!r} is not the name of a package") from None


def _requirements(distribution: Distribution, extra: str) -> Iterator[Requirement]:
    """Yield what a distribution requires on this system, with one of its extras, or with none if ``extra`` is empty."""
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def _files(distribution: Distribution) -> Iterator[tuple[Path, str]]:
    """Yield the files of an installed distribution with their paths in the archive.

    Raises:
        ConfigurationError: if its files are not known, or it is installed in its editable form.
    """
    is_link = _refers_to_source(distribution)
    if is_link and distribution.name != STATEFUN:
        raise ConfigurationError(
            f"{distribution.name} is installed in its editable form, which other machines cannot use; run: "
            "pip install . in its folder"
        )
    if distribution.files is None:
        raise ConfigurationError(
            f"{distribution.name} is installed without a list of its files, so that it cannot be packed; "
            f"run: pip install --force-reinstall {distribution.name}"
        )
    for file in distribution.files:
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
    """Return a file, or the files of a folder.

    Without compiled files, virtual environments, and hidden files, which may be secret.
    """
    if not path.is_dir():
        return [path]
    found: list[Path] = []
    for place, folders, names in os.walk(path):
        folder = Path(place)
        folders[:] = [
            each
            for each in folders
            if not _is_left_out(each) and not _is_environment(folder / each)
        ]
        found += [folder / name for name in names if not _is_left_out(name)]
    return sorted(file for file in found if file.is_file())


def _is_left_out(name: str) -> bool:
    return name == "__pycache__" or name.startswith(".")


def _is_environment(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("pyvenv.cfg", "conda-meta"))
