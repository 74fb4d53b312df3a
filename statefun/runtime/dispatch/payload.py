# SPDX-License-Identifier: Apache-2.0
"""Sends the functions of an application to Python workers, which keep them in memory."""

from __future__ import annotations

import hashlib
import socket
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import attrs
from pyspark import __version__ as pyspark_version

from statefun.engine.program import Program
from statefun.module.user_program import LOADED
from statefun.runtime.dispatch.main_program import MainProgram, function_of, names_of_globals
from statefun.runtime.dispatch.unsendable import unsendable
from statefun.runtime.spark_internals.closures import (
    can_be_pickled,
    is_by_value,
    pickle_by_value,
    pickled_closure,
    unpickled_closure,
)
from statefun.sdk.errors import PlatformError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.types import TypeRegistry, default_types

_OF = ":"
"""Separates the two parts of the text that stands for a global: the number of its main program, and its name."""
_loaded: dict[tuple[str, tuple[MainProgram, ...]], Program] = {}


@cache
def process_versions() -> str:
    """Return this process's versions of Python, PySpark and statefun, which driver and workers must share."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"Python {python}, PySpark {pyspark_version} and statefun {version('statefun')}"


@attrs.frozen
class Payload:
    """An application as the driver has pickled it; functions of the main program are pickled by value.

    Spark unpickles its own functions once per task. The application is unpickled once per worker
    process, so that globals of the user's code, such as clients and models, live as long as the process.
    """

    digest: str
    content: bytes = attrs.field(repr=False)  # with whatever secrets the program has
    paths: tuple[str, ...] = ()
    """Further folders in which workers look for modules."""
    mains: tuple[MainProgram, ...] = ()
    """The main programs that workers load, because functions use globals that cannot be pickled."""
    versions: str = attrs.field(factory=process_versions)
    """The versions in the driver, which must be those in each worker."""

    @classmethod
    def of(cls, program: Program, paths: tuple[str, ...] = ()) -> Payload:
        """Pickle ``program`` together with the registered types.

        Raises:
            PlatformError: if an object cannot be pickled; the error names the object and its function.
        """
        program_module = sys.modules.get(LOADED)
        if program_module is not None:  # such as a program under test: workers cannot import it
            pickle_by_value(program_module)
        value = (program, default_types)
        mains: tuple[MainProgram, ...] = ()
        try:
            content = pickled_closure(value)
        except Exception as error:  # noqa: BLE001 - whatever an object raises that cannot be pickled
            mains, names = _by_name(program.functions)
            try:
                content = pickled_closure(value, names)
            except Exception:  # noqa: BLE001 - as above
                raise unsendable(program.functions, error, names) from error
        return cls(hashlib.sha256(content).hexdigest(), content, paths, mains)

    def load(self) -> Program:
        """Return this process's copy of the application; unpickle it at the first call.

        The content comes only from the application's driver, through the channel through which Spark sends
        its own code.

        Raises:
            PlatformError: if this process has other versions than the driver, or cannot import a module that the
                functions need.
        """
        if self.versions != process_versions():
            raise PlatformError(
                f"the driver has {self.versions}, and a worker on {socket.gethostname()} has {process_versions()}: install the same "
                "versions wherever workers run, or name a Python that has them in spark.pyspark.python"
            )
        key = self.digest, self.mains  # of the program's globals, the content has names alone
        if key not in _loaded:
            sys.path.extend(path for path in self.paths if path not in sys.path)
            try:
                loaded: tuple[Program, TypeRegistry] = unpickled_closure(self.content, self._named)
            except ModuleNotFoundError as error:
                raise PlatformError(
                    f"the Python workers cannot import module {error.name}, which a function of the "
                    "application comes from or uses; pass it with spark-submit --py-files, or "
                    "install it wherever workers run"
                ) from error
            program, types = loaded
            default_types.update(types)
            _loaded[key] = program
        return _loaded[key]

    def _named(self, name: str) -> Any:
        """Return a global of one of the main programs; load the program if this process lacks it."""
        number, _, own = name.partition(_OF)
        return self.mains[int(number)].named(own)


def _by_name(
    functions: StatefulFunctions,
) -> tuple[tuple[MainProgram, ...], Mapping[int, str]]:
    """Return the main programs that workers must load, and the name that replaces each of their globals.

    The names are by the ``id`` of the global. Workers load a main program if its functions cannot be pickled by
    value. A process may have several main programs, as in tests. Functions of a notebook can only be pickled by value.
    """
    calls: dict[str, list[Any]] = {}
    for function in functions:
        for handler in function.handlers:
            module = function_of(handler.fun).__module__
            if is_by_value(module):
                calls.setdefault(module, []).append(handler.fun)
    unpicklable = [name for name, own in calls.items() if not can_be_pickled(own)]
    mains: list[MainProgram] = []
    names: dict[int, str] = {}
    for name in unpicklable or calls:  # if no function is the reason, a type may be
        defining = sys.modules[name]
        main = MainProgram.of(defining, calls[name])
        if main is not None:
            globals_ = names_of_globals(defining)
            names |= {key: f"{len(mains)}{_OF}{own}" for key, own in globals_.items()}
            mains.append(main)
    return tuple(mains), names
