# SPDX-License-Identifier: Apache-2.0
"""Notes what loading a program adds to this process, and removes it again, so that another program can be loaded."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from statefun.sdk.functions import default_functions, definition_of
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.types import Type, TypeRegistry, default_types

_LIBRARIES = {"site-packages", "dist-packages"}
"""The names of folders with installed packages, which may be in the folder of a program."""


@attrs.frozen
class _Present:
    """The functions and types that are registered in this process, and its modules, each by name."""

    functions: Mapping[str, StatefulFunction]
    types: Mapping[str, Type[Any]]
    modules: Mapping[str, ModuleType]

    @classmethod
    def now(cls) -> _Present:
        functions = {str(each.typename): each for each in default_functions}
        return cls(
            functions, {each.typename: each for each in default_types.list()}, {**sys.modules}
        )


@attrs.frozen
class _Load:
    """What loading a program has added to this process."""

    app: Path
    before: _Present
    after: _Present
    own: Mapping[str, ModuleType]
    """The program's own modules, by name."""
    others: Mapping[str, ModuleType]
    """Modules from elsewhere, which stay with what they have registered: no later program would execute them again."""
    versions: Mapping[str, tuple[int, int]]
    """The times and the sizes of the own modules' files."""

    @classmethod
    def since(cls, before: _Present, app: Path) -> _Load:
        after = _Present.now()
        own, others = dict[str, ModuleType](), dict[str, ModuleType]()
        for name, module in after.modules.items():
            if before.modules.get(name) is not module:
                (own if _is_of(app.parent, name, module) else others)[name] = module
        return cls(app, before, after, own, others, _versions(own))


@attrs.frozen
class _Removed:
    """The removed parts of a program: its own modules, and the functions and types that their code had registered."""

    modules: Mapping[str, ModuleType]
    versions: Mapping[str, tuple[int, int]]
    functions: Sequence[StatefulFunction]
    types: TypeRegistry

    def put_back(self) -> None:
        """Put all back, unless a file has changed, or a module was imported meanwhile."""
        if self.versions != _versions(self.modules) or self.modules.keys() & sys.modules.keys():
            return
        sys.modules.update(self.modules)
        for name, module in self.modules.items():
            package, _, last = name.rpartition(".")
            if isinstance(parent := sys.modules.get(package), ModuleType):
                setattr(parent, last, module)
        for function in self.functions:
            default_functions.replace(function)
        default_types.update(self.types)


class ProgramTraces:
    """What the programs that were loaded have added to this process since it was last removed.

    Args:
        name: the name of the module of each loaded program.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loads: list[_Load] = []
        self._removed: dict[Path, _Removed] = {}
        """By the file of the program."""

    @contextmanager
    def noted(self, app: Path) -> Iterator[None]:
        """Note the additions of the ``with`` block, which loads a program.

        The modules that an earlier load of the program has imported are there at once, with what they have registered:
        not every module may be executed twice in a process.
        """
        before = _Present.now()
        if app in self._removed:
            self._removed.pop(app).put_back()
        try:
            yield
        finally:
            self._loads.append(_Load.since(before, app))

    def remove(self) -> None:
        """Remove the programs' modules, and the functions and types that these have registered."""
        while self._loads:
            load = self._loads.pop()
            for name, module in load.own.items():
                _forget_module(name, module)
            # What the program itself has registered is registered again whenever it is loaded.
            functions = [
                each
                for each in default_functions
                if not load.own.keys().isdisjoint(each.modules) and _module_of(each) != self._name
            ]
            types = default_types.added_by(load.own)
            types.forget(self._name)
            _forget_functions(load)
            _forget_types(load)
            if load.own:
                self._removed[load.app] = _Removed(load.own, load.versions, functions, types)


def own_files(folder: Path) -> Iterator[Path]:
    """Yield the files of the loaded modules below a program's folder, except for those of installed packages.

    Args:
        folder: the folder, without links in its path.
    """
    for name, module in {**sys.modules}.items():
        if _is_of(folder, name, module) and (file := _file_of(module)) is not None:
            yield Path(file)


def _is_of(folder: Path, name: str, module: ModuleType) -> bool:
    """Return whether a module is the program's own: below its folder, but not installed there."""
    file = _file_of(module)
    if file is None or name.partition(".")[0] == "statefun":
        return False
    path = Path(file).resolve()
    if not path.is_relative_to(folder):  # most of them
        return False
    environments = [Path(each).resolve() for each in (sys.prefix, sys.base_prefix)]
    return (
        _LIBRARIES.isdisjoint(path.relative_to(folder).parts)
        and not any(e.is_relative_to(folder) and path.is_relative_to(e) for e in environments)
        and not any(_has_packages(each) for each in path.parents if folder in each.parents)
    )


def _has_packages(folder: Path) -> bool:
    """Return whether pip has installed packages in a folder, by its option ``--target``."""
    return any(folder.glob("*.dist-info"))


def _file_of(module: ModuleType) -> str | None:
    """Return the file of a module, or a folder of a namespace package; None if it has none."""
    names = _names(module)
    file = names.get("__file__")
    # A namespace package looks for the package that it is in, which may be gone.
    with suppress(KeyError):
        file = file or next(iter(names.get("__path__", ())), None)
    return file if isinstance(file, str) else None


def _versions(modules: Mapping[str, ModuleType]) -> dict[str, tuple[int, int]]:
    """Return the time and the size of the file of each module, by the name of the module."""
    versions = {}
    for name, module in modules.items():
        file = _file_of(module)
        with suppress(OSError):
            if file is not None and not Path(file).is_dir():
                status = Path(file).stat()
                versions[name] = status.st_mtime_ns, status.st_size
    return versions


def _forget_module(name: str, module: ModuleType) -> None:
    """Let the next import of a module execute it again."""
    if sys.modules.get(name) is module:
        del sys.modules[name]
    package, _, last = name.rpartition(".")
    parent = sys.modules.get(package)
    if parent is not None and _names(parent).get(last) is module:
        delattr(parent, last)  # else ``from package import name`` finds it


def _forget_functions(load: _Load) -> None:
    """Remove the functions that were added, and restore those that were replaced, except those of other modules."""
    for name, function in load.after.functions.items():
        former, current = load.before.functions.get(name), default_functions.find(name)
        if former is function or current is None or current.handlers[:1] != function.handlers[:1]:
            continue
        if _module_of(function) in load.others or any(
            _has(each, function.fun) for each in load.others.values()
        ):
            continue
        default_functions.remove(name)
        if former is not None:
            default_functions.replace(former)


def _module_of(function: StatefulFunction) -> str | None:
    fun = function.fun
    while isinstance(fun, partial):
        fun = fun.func
    return definition_of(fun)[0]


def _forget_types(load: _Load) -> None:
    """Remove the types that were added, and restore those that were replaced, except those of other modules."""
    for name, type_ in load.after.types.items():
        former, current = load.before.types.get(name), default_types.find(name)
        # A module file may have registered the same definition again.
        if former is type_ or current is None or current.origin() != type_.origin():
            continue
        if any(_is_in(each, type_) or _has(module, type_) for each, module in load.others.items()):
            continue
        default_types.remove(name)
        if former is not None:
            default_types.update(TypeRegistry([former]))


def _is_in(module: str, type_: Type[Any]) -> bool:
    """Return whether the definition of a type names a module, as ``list[module.Order]`` does."""
    return re.search(rf"(?<![\w.]){re.escape(module)}\.", type_.origin()) is not None


def _has(module: ModuleType, thing: Any) -> bool:
    """Return whether a global of a module is ``thing``."""
    return any(each is thing for each in list(_names(module).values()))


def _names(module: Any) -> Mapping[str, Any]:
    """Return the attributes of a module, or of another object that a module has put into its place."""
    names: Mapping[str, Any] = getattr(module, "__dict__", {})
    return names
