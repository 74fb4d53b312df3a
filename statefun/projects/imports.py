# SPDX-License-Identifier: Apache-2.0
"""Finds where the modules come from that a program imports: its own folder, or installed distributions."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Final, NamedTuple

from statefun.compilation import LIBRARY
from statefun.module.user_program import load_program
from statefun.runtime.spark_internals.distributions import OF_SPARK
from statefun.sdk.errors import ConfigurationError

STATEFUN: Final = "statefun"
_PACKED_ANYHOW: Final = frozenset({STATEFUN, LIBRARY})
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""The names of folders with installed distributions, which may be below a program's or Python's own folder."""


class Imports(NamedTuple):
    """What a program imports, besides Python itself, Spark and statefun."""

    distributions: frozenset[str]
    """The names of the distributions that have imported modules."""
    own: Mapping[Path, Path]
    """The folders and files with the program's own modules, each with the folder from which it is imported."""


def imports_of(program: Path) -> Imports:
    """Load a program without running it, and return what it imports.

    Raises:
        StatefunError: if the program cannot be loaded.
        ConfigurationError: if a module is neither below the program's folder nor part of a distribution.
    """
    before = set(sys.modules)
    load_program(program)
    home = program.resolve().parent
    owners = _owners()
    names: set[str] = set()
    own: dict[Path, Path] = {}
    for name, path in _places(sys.modules.keys() - before):
        forms = _forms(path)
        if found := [owners[str(form)] for form in forms if str(form) in owners]:
            names.add(found[0])
        elif local := [form for form in forms if _is_local(form, home)]:
            root = _root(name, local[0], home)
            top = root / local[0].relative_to(root).parts[0]
            own[max(top, home, key=_depth)] = root
        elif not path.is_dir() and not _is_of_python(forms):
            raise ConfigurationError(
                f"the module {name} cannot be packed, since {path} is neither below the program's folder "
                f"{home} nor a file of an installed package: move it there, or install it with pip, not "
                "in its editable form"
            )
    return Imports(frozenset(names), own)


def _owners() -> Mapping[str, str]:
    """Return, for the path of each installed file, the name of the first distribution that lists the file."""
    owners: dict[str, str] = {}
    for distribution in distributions():
        folder = Path(str(distribution.locate_file(""))).resolve()
        name = distribution.name  # reads a file
        for file in distribution.files or ():
            if ".." not in file.parts:
                owners.setdefault(f"{folder}/{file}", name)
    return owners


def _places(names: set[str]) -> Iterator[tuple[str, Path]]:
    """Yield the name of each module with its file, and the name of each namespace package with each of its folders."""
    for name in sorted(names):
        top = name.partition(".")[0]
        if not top.startswith("__") and top not in OF_SPARK | _PACKED_ANYHOW:
            for path in _paths(name):
                yield name, path


def _paths(name: str) -> list[Path]:
    """Return the file of a module, or the folders of a namespace package, without loading lazy modules."""
    try:
        facts = object.__getattribute__(sys.modules[name], "__dict__")
    except AttributeError:  # an object in place of a module
        return []
    file = facts.get("__file__")
    if isinstance(file, str):  # those of invented modules are not absolute
        return [Path(file)] if Path(file).is_absolute() else []
    locations = getattr(facts.get("__spec__"), "submodule_search_locations", None)
    return [Path(each) for each in locations or ()]


def _forms(path: Path) -> tuple[Path, Path]:
    """Return a path in two forms: as it is written, and with its links to folders resolved.

    A file that is itself a link, as some installers make to their caches, is not resolved.
    """
    return Path(os.path.normpath(path)), path.parent.resolve() / path.name


def _is_local(path: Path, home: Path) -> bool:
    return home in path.parents and _INSTALLED.isdisjoint(path.relative_to(home).parts)


def _is_of_python(forms: tuple[Path, Path]) -> bool:
    folders = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    roots = [root for folder in folders for root in (folder, folder.resolve())]
    return any(_is_local(form, root) for root in roots for form in forms)


def _root(name: str, path: Path, home: Path) -> Path:
    """Return the folder in Python's path from which a module is imported by its full name.

    If the program loads the module in another way, the result is the program's folder.
    """
    entries = [Path(entry).absolute() for entry in sys.path]
    roots = [home, *(root for entry in entries for root in (entry, entry.resolve()))]
    return next((root for root in roots if _is_imported_from(root, name, path)), home)


def _is_imported_from(root: Path, name: str, path: Path) -> bool:
    if root not in path.parents:
        return False
    *parents, last = path.relative_to(root).parts
    stem = last.partition(".")[0]
    return name == ".".join(parents if stem == "__init__" else [*parents, stem])


def _depth(path: Path) -> int:
    return len(path.parts)
