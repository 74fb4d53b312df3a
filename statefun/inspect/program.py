# SPDX-License-Identifier: Apache-2.0
"""Loads a program without running it: its functions, and the ingresses and egresses it declares."""

from __future__ import annotations

import inspect
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from statefun.module.model import KafkaEgress, KafkaIngress
from statefun.sdk.errors import StatefunError
from statefun.sdk.functions import StatefulFunctions, default_functions

_NAME = "__statefun_validate__"
"""The ``__name__`` of a program that is loaded: not ``__main__``, so that it does not run."""


@attrs.frozen
class Program:
    """The parts of a program."""

    functions: StatefulFunctions
    components: Sequence[KafkaIngress | KafkaEgress]
    text: str
    """The text of all its files."""


def load_program(app: Path) -> Program:
    """Load a program.

    Raises:
        StatefunError: if it cannot be loaded.
    """
    try:
        with _as_program(app):
            found = runpy.run_path(str(app), run_name=_NAME)
    except StatefunError:
        raise
    except BaseException as error:  # sys.exit() as well
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f.lineno for f in frames if f.filename == str(app)]
        where = f", line {lines[-1]}" if lines else ""
        raise StatefunError(
            f"the program cannot be loaded: {type(error).__name__}: {error}{where}; what it does "
            "besides registering functions belongs under if __name__ == '__main__'"
        ) from error
    registries = [default_functions, *(v for v in found.values() if type(v) is StatefulFunctions)]
    functions = next((registry for registry in registries if len(registry)), default_functions)
    files = {str(app), *(inspect.getfile(inspect.unwrap(f.call)) for f in functions)}
    texts = [Path(file).read_text(errors="replace") for file in files if Path(file).is_file()]
    several = [v if isinstance(v, list | tuple) else [v] for v in found.values()]
    components = [
        each
        for values in several
        for each in values
        if isinstance(each, KafkaIngress | KafkaEgress)
    ]
    unique = list({id(each): each for each in components}.values())
    return Program(functions, unique, "\n".join(texts))


@contextmanager
def _as_program(app: Path) -> Iterator[None]:
    """Let a program import modules from its folder, as when it runs."""
    sys.path.insert(0, str(app.resolve().parent))
    try:
        yield
    finally:
        sys.path.pop(0)
