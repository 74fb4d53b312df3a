# SPDX-License-Identifier: Apache-2.0
"""Loads the functions, ingresses and egresses that a program defines, without running the application."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import attrs

from statefun.module.model import KafkaEgress, KafkaIngress
from statefun.module.program_traces import ProgramTraces, own_files
from statefun.sdk.errors import ConfigurationError, StatefunError
from statefun.sdk.functions import StatefulFunctions, default_functions
from statefun.sdk.raised import line_of
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.types import default_types

T = TypeVar("T")

LOADED = "__statefun_validate__"
"""The ``__name__`` of a loaded program: not ``__main__``, so that its main block does not run."""
OUTSIDE = "put all code that does not register functions under if __name__ == '__main__'"
"""The advice in the error about a program that cannot be loaded."""
_OUTPUT, _ERRORS = 1, 2
"""The file descriptors of standard output and standard error."""

_traces = ProgramTraces(LOADED)
_loading = threading.RLock()
"""A lock that is held while a program is loaded, which changes what belongs to the whole process."""


@attrs.frozen
class UserProgram:
    """What a program defines: its functions, and the components that it declares."""

    registries: Sequence[StatefulFunctions]
    """The registries of the program in which at least one function is registered."""
    components: Sequence[KafkaIngress | KafkaEgress]
    file: Path

    @property
    def functions(self) -> StatefulFunctions:
        """The first registry that has functions; the default registry comes first, and is returned if all are empty."""
        return next(iter(self.registries), default_functions)

    def text(self) -> str:
        """Return the source code of the program: of the files that define its functions, and of modules in its folder."""
        definitions = map(Path, filter(None, map(_file_of, self.functions)))
        files = {self.file, *definitions, *own_files(self.file.resolve().parent)}
        return "\n".join(each.read_text(errors="replace") for each in files if each.is_file())


def load_program(app: Path) -> UserProgram:
    """Execute a program's file as a module, which stays in ``sys.modules``, and return the program.

    What the program writes to standard output goes to standard error, as standard output is for results.

    Raises:
        ConfigurationError: if the file does not exist, or the program raises an exception.
    """
    if not app.is_file():
        raise ConfigurationError(f"there is no program {app}")
    module = ModuleType(LOADED)
    module.__file__ = str(app)
    try:
        with _loading, _as_program(app), _written_to_standard_error():
            sys.modules[LOADED] = module
            with _traces.noted(app.resolve()):
                exec(compile(app.read_bytes(), str(app), "exec"), vars(module))  # noqa: S102 - the user's
    except StatefunError:
        raise
    except BaseException as error:  # sys.exit() as well
        raise ConfigurationError(
            f"the program cannot be loaded: {line_of(error)}{place_in(str(app), error)}; {OUTSIDE}"
        ) from error
    return program_of(module)


def place_in(file: str, error: BaseException) -> str:
    """Return ", line N" for the line of a file that raised an exception; empty if none of its lines did."""
    return f", line {line}" if (line := line_in(file, error, 0)) else ""


def line_in(file: str, error: BaseException, default: int = 1) -> int:
    """Return the line of a file that raised an exception; ``default`` if none of its lines did."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file and frame.lineno]
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno:
        lines.append(error.lineno)
    return lines[-1] if lines else default


def program_of(module: ModuleType) -> UserProgram:
    """Return the functions and components that the module of a program contains."""
    globals_ = list(vars(module).values())
    registries = [
        default_functions,
        *(each for each in globals_ if type(each) is StatefulFunctions),
    ]
    several = [each if isinstance(each, list | tuple) else [each] for each in globals_]
    components = [
        each
        for values in several
        for each in values
        if isinstance(each, KafkaIngress | KafkaEgress)
    ]
    return UserProgram(
        _unique([registry for registry in registries if len(registry)]),
        _unique(components),
        Path(str(module.__file__)),
    )


def forget_loaded() -> None:
    """Remove the functions, types and modules of the loaded programs from this process; see :class:`ProgramTraces`."""
    with _loading:
        try:
            _traces.remove()
        finally:
            default_functions.forget(LOADED)
            default_types.forget(LOADED)


def _unique(things: Iterable[T]) -> list[T]:
    """Return objects without repetitions: two variables of a program may refer to the same object."""
    return list({id(each): each for each in things}.values())


def _file_of(function: StatefulFunction) -> str | None:
    try:
        return inspect.getfile(inspect.unwrap(function.fun))
    except TypeError:  # an object with a method __call__
        return None


@contextmanager
def _as_program(app: Path) -> Iterator[None]:
    """Let a program import modules from its folder during the ``with`` block, as when it runs."""
    folder = str(app.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


@contextmanager
def _written_to_standard_error() -> Iterator[None]:
    """During the block, let standard output go to standard error, also that of libraries and of started processes."""
    _flush_output()
    try:
        kept = os.dup(_OUTPUT)
    except OSError:  # it is closed
        yield
        return
    try:
        with suppress(OSError):  # standard error is closed
            os.dup2(_ERRORS, _OUTPUT)
        yield
    finally:
        _flush_output()
        os.dup2(kept, _OUTPUT)
        os.close(kept)


def _flush_output() -> None:
    with suppress(AttributeError, OSError, ValueError):  # it is closed
        sys.stdout.flush()
