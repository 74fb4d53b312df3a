# SPDX-License-Identifier: Apache-2.0
"""Loads the main program as a module on workers, if its functions use globals that cannot be pickled.

Functions of the main program (the module ``__main__``) are sent to workers by value, with the globals that
they use. A client, a lock or an open file cannot be sent. If a function uses such a global, each worker runs
the main program once, under another name than ``__main__``. Functions, classes and globals of the main
program are then sent as names, which each worker looks up in the module that it has loaded.
"""

from __future__ import annotations

import dis
import functools
import inspect
import linecache
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    FunctionType,
    ModuleType,
    NotImplementedType,
)
from typing import Any

import attrs

from statefun.module.user_program import LOADED, OUTSIDE, place_in
from statefun.sdk.errors import PlatformError
from statefun.sdk.functions import default_functions
from statefun.sdk.raised import line_of
from statefun.sdk.types import TypeRegistry, default_types

_NAME = "__statefun_program_{}__"
"""The ``__name__`` of a main program on a worker, with the number of main programs loaded before it."""
_PLAIN = (
    *(str, bytes, int, float, complex, bool, range),
    *(type(None), EllipsisType, NotImplementedType, ModuleType),
)
"""The types of globals that are always sent by value.

Other globals can be sent as names: an object is replaced by the name of the global that refers to it. Several
globals may refer to one object of these types, such as a small integer, so no name stands for it."""


_loaded: dict[MainProgram, ModuleType] = {}
_loading: list[MainProgram] = []


class ProgramEndedError(BaseException):
    """Ends a main program that a worker loads, at the call that would start the application."""


def end_on_worker() -> None:
    """End the main program at this call if a worker is loading it; otherwise do nothing.

    Raises:
        ProgramEndedError: if a worker is loading the main program.
    """
    if _loading:
        raise ProgramEndedError


@attrs.frozen
class MainProgram:
    """The source of a main program, and the names of its globals that functions use."""

    file: str
    source: bytes = attrs.field(repr=False)
    package: str | None
    """The package of a main program that was started as ``python -m package.program``, else None."""
    arguments: tuple[str, ...] = attrs.field(repr=False)
    """The command-line arguments, which the main program may read while a worker loads it."""
    needed: frozenset[str]
    """The names of the globals that functions use."""

    @classmethod
    def of(cls, module: ModuleType, functions: Iterable[Any]) -> MainProgram | None:
        """Return the main program that ``module`` was loaded from; None if it has no file, as in a notebook.

        Args:
            module: the module ``__main__``, or the module as which this process has loaded a main program.
            functions: the functions that workers call.
        """
        file = getattr(module, "__file__", None)
        if file is None or not Path(file).is_file():
            return None
        needed = _needed(vars(module), map(function_of, functions))
        package = getattr(module, "__package__", None)
        return cls(str(file), Path(file).read_bytes(), package, tuple(sys.argv), needed)

    def load(self) -> ModuleType:
        """Return the main program's module; run the main program if this process has not loaded it yet.

        Raises:
            PlatformError: if the main program cannot be loaded, or lacks a global that functions use.
        """
        module = _loaded.get(self)
        if module is None:
            module = _loaded[self] = self._run()
        self._check(module, self.needed)
        return module

    def named(self, name: str) -> Any:
        """Return the global with this name; run the main program if this process has not loaded it yet.

        Raises:
            PlatformError: if the main program cannot be loaded, or lacks this global or another global that
                functions use.
        """
        module = self.load()
        self._check(module, [name])
        return getattr(module, name)

    def _check(self, module: ModuleType, names: Iterable[str]) -> None:
        missing = sorted(set(names) - vars(module).keys())
        if missing:
            raise PlatformError(
                f"{self.file}: functions use {', '.join(missing)}, which workers do not have, because it is "
                "defined under if __name__ == '__main__'; define it at the top level (another global of the program cannot be "
                "sent to workers, so they run the program again, under another name)"
            )

    def _run(self) -> ModuleType:
        module = ModuleType(_NAME.format(len(_loaded)))
        vars(module).update(__file__=self.file, __package__=self.package)
        text = self.source.decode(errors="replace")
        # Tracebacks show lines of a file that this machine may not have.
        linecache.cache[self.file] = (len(text), None, text.splitlines(keepends=True), self.file)
        sys.modules[module.__name__] = module
        arguments, sys.argv = sys.argv, list(self.arguments)
        types_before = TypeRegistry()
        types_before.update(default_types)
        # Another program, which came by value or as a module, may give its types the same names.
        for name in ("__main__", LOADED, *(each.__name__ for each in _loaded.values())):
            default_types.forget(name)
        _loading.append(self)
        try:
            exec(compile(self.source, self.file, "exec"), vars(module))  # noqa: S102 - the user's
        except ProgramEndedError:
            pass
        except BaseException as error:  # sys.exit() as well
            raise PlatformError(
                f"a Python worker cannot load the program: {line_of(error)}"
                f"{place_in(self.file, error)}; {OUTSIDE}"
            ) from error
        finally:
            sys.argv = arguments
            _loading.remove(self)
            default_functions.forget(module.__name__)  # functions are sent with their registry
            default_types.update(types_before)
        return module


def names_of_globals(module: ModuleType) -> dict[int, str]:
    """Return the names that are sent instead of globals of ``module``, by the ``id`` of the global.

    No name replaces an imported function or class, or an object of statefun, such as a registry.
    """
    return {id(value): name for name, value in vars(module).items() if _is_own(module, name, value)}


def _is_own(module: ModuleType, name: str, value: object) -> bool:
    if name.startswith("__") or _is_plain(value):
        return False
    if isinstance(value, type | FunctionType):
        return value.__module__ == module.__name__
    return type(value).__module__.partition(".")[0] != "statefun"


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_plain, value))
    if isinstance(value, BuiltinFunctionType):
        return isinstance(value.__self__, ModuleType)
    return isinstance(value, _PLAIN)


def function_of(call: Any) -> Any:
    """Return the function behind a callable, such as a partial, or the class of an object with ``__call__``.

    >>> import functools
    >>> function_of(functools.partial(functools.partial(line_of), error=None)) is line_of
    True
    """
    while True:
        inner = inspect.unwrap(call)
        inner = getattr(inner, "__func__", inner)
        if isinstance(inner, functools.partial):
            inner = inner.func
        if inner is call:
            break
        call = inner
    is_object = not isinstance(call, type) and not hasattr(call, "__code__")
    return type(call) if is_object else call


def _needed(own: Mapping[str, object], functions: Iterable[object]) -> frozenset[str]:
    """Return the names of the globals in ``own`` that functions use, directly or through functions and classes."""
    needed: set[str] = set()
    users = list(functions)
    while users:
        for name in _globals_of(users.pop()):
            if name in own and name not in needed:
                needed.add(name)
                users.append(own[name])
    return frozenset(needed)


def _globals_of(user: object) -> Iterator[str]:
    """Yield the names of the globals that a function, or any method of a class, reads."""
    if isinstance(user, type):
        for each in vars(user).values():
            if not isinstance(each, type):
                yield from _globals_of(getattr(each, "__func__", each))
    code = user if isinstance(user, CodeType) else getattr(user, "__code__", None)
    if isinstance(code, CodeType):
        for step in dis.get_instructions(code):
            if step.opname == "LOAD_GLOBAL":
                yield step.argval
            elif isinstance(step.argval, CodeType):
                yield from _globals_of(step.argval)
