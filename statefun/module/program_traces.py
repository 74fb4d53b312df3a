# SPDX-License-Identifier: Apache-2.0
"""Notes what loading a program adds to this process, and removes it again, so that another program can be loaded."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
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


class ProgramTraces:
    """What the programs that were loaded have added to this process since it was last removed."""

    def __init__(self) -> None:
        self._loads: list[tuple[Path, _Present, _Present]] = []

    @contextmanager
    def noted(self, folder: Path) -> Iterator[None]:
        """Note the additions of the ``with`` block, which loads a program from ``folder``."""
        before = _Present.now()
        try:
            yield
        finally:
            self._loads.append((folder, before, _Present.now()))

    def remove(self) -> None:
        """Remove the programs' modules, and the functions and types that these have registered.

        A module that a program has imported from elsewhere stays, with its functions and types: the next program would
        not execute it again.
        """
        while self._loads:
            folder, before, after = self._loads.pop()
            added = {
                name: module
                for name, module in after.modules.items()
                if before.modules.get(name) is not module
            }
            own = {name: module for name, module in added.items() if _is_of(folder, name, module)}
            for name, module in own.items():
                _forget_module(name, module)
            others = [module for name, module in added.items() if name not in own]
            _forget_functions(before, after, others)
            _forget_types(before, after, others)


def _is_of(folder: Path, name: str, module: ModuleType) -> bool:
    """Return whether a module is the program's own: below its folder, but not installed there."""
    file = getattr(module, "__file__", None)
    # A namespace package looks for the package that it is in, which may be gone.
    with suppress(KeyError):
        file = file or next(iter(getattr(module, "__path__", ())), None)
    if not isinstance(file, str) or name.partition(".")[0] == "statefun":
        return False
    path = Path(file).resolve()
    environments = [Path(each).resolve() for each in (sys.prefix, sys.base_prefix)]
    return (
        path.is_relative_to(folder)
        and _LIBRARIES.isdisjoint(path.relative_to(folder).parts)
        and not any(e.is_relative_to(folder) and path.is_relative_to(e) for e in environments)
    )


def _forget_module(name: str, module: ModuleType) -> None:
    """Let the next import of a module execute it again."""
    if sys.modules.get(name) is module:
        del sys.modules[name]
    package, _, last = name.rpartition(".")
    parent = sys.modules.get(package)
    if parent is not None and vars(parent).get(last) is module:
        delattr(parent, last)  # else ``from package import name`` finds it


def _forget_functions(before: _Present, after: _Present, others: Iterable[ModuleType]) -> None:
    """Remove the functions that were added, and restore those that were replaced, except those of other modules."""
    for name, function in after.functions.items():
        former, current = before.functions.get(name), default_functions.find(name)
        if former is function or current is None or current.handlers[:1] != function.handlers[:1]:
            continue
        fun = function.fun
        while isinstance(fun, partial):
            fun = fun.func
        module = definition_of(fun)[0]
        if any(each.__name__ == module or _has(each, function.fun) for each in others):
            continue
        default_functions.remove(name)
        if former is not None:
            default_functions.replace(former)


def _forget_types(before: _Present, after: _Present, others: Iterable[ModuleType]) -> None:
    """Remove the types that were added, and restore those that were replaced, except those of other modules."""
    for name, type_ in after.types.items():
        former = before.types.get(name)
        if former is type_ or default_types.find(name) is not type_:
            continue
        origin = type_.origin()
        if any(
            re.search(rf"(?<![\w.]){re.escape(each.__name__)}\.", origin) or _has(each, type_)
            for each in others
        ):
            continue
        default_types.remove(name)
        if former is not None:
            default_types.update(TypeRegistry([former]))


def _has(module: ModuleType, thing: Any) -> bool:
    """Return whether a global of a module is ``thing``."""
    return any(each is thing for each in list(vars(module).values()))
