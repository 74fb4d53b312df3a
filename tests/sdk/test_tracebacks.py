# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.sdk.raised import line_of, traceback_of

LIBRARY = """
def deep(call, depth):
    return deep_too(call, depth - 1) if depth else call()

def deep_too(call, depth):
    return deep(call, depth - 1) if depth else call()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Return an installed library that calls functions."""
    folder = tmp_path_factory.mktemp("venv") / "site-packages" / "deeplib"
    folder.mkdir(parents=True)
    return imported(folder / "core.py", LIBRARY)


def imported(file: Path, text: str) -> ModuleType:
    """Return a module of that text."""
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def raised_by(call: Callable[[], object]) -> BaseException:
    """Return the exception that a call raises."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - each of them
        return error
    raise AssertionError("it has raised nothing")


def users_line() -> None:
    """Raise what has a text."""
    raise KeyError("daily")


def test_frames_of_libraries_are_counted(library: ModuleType) -> None:
    """The user's lines stay, at both ends; of the library's, the last two."""
    error = raised_by(lambda: library.deep(users_line, 40))

    lines = traceback_of(error).splitlines()

    assert sum("deeplib" in line for line in lines) == 3
    assert "  ... 39 frames of deeplib" in lines
    assert '    raise KeyError("daily")' in lines
    assert sum(f'File "{__file__}"' in line for line in lines) == 3
    assert lines[-1] == "KeyError: 'daily'"


def test_few_frames_are_as_python_prints_them() -> None:
    """With the standard library's, as here."""
    error = raised_by(lambda: json.loads("{"))

    lines = traceback_of(error).splitlines()

    assert lines[0] == "Traceback (most recent call last):"
    assert "  ... 2 frames of json" not in lines
    assert lines[-1].startswith("json.decoder.JSONDecodeError: Expecting property name")


def test_an_installed_application_has_lines_of_its_own(library: ModuleType, tmp_path: Path) -> None:
    """A function that a wheel has brought is no library, although its neighbours are."""
    folder = tmp_path / "site-packages" / "shop"
    folder.mkdir(parents=True)
    shop = imported(
        folder / "app.py",
        "def handle(deep):\n    deep(rate, 9)\n\ndef rate():\n    raise LookupError('no rate')\n",
    )
    error = raised_by(lambda: shop.handle(library.deep))

    lines = traceback_of(error, skip=2).splitlines()

    assert sum("shop" in line for line in lines) == 2
    assert "  ... 8 frames of deeplib" in lines


def test_what_an_exception_was_raised_from_is_as_brief(library: ModuleType) -> None:
    """The cause comes first, as in Python."""

    def wrap() -> None:
        try:
            library.deep(users_line, 40)
        except KeyError as error:
            raise RuntimeError("no rate") from error

    lines = traceback_of(raised_by(wrap)).splitlines()

    assert lines.index("KeyError: 'daily'") < lines.index("RuntimeError: no rate")
    assert "  ... 39 frames of deeplib" in lines


@given(
    depth=st.integers(0, 400),
    length=st.sampled_from([0, 10, 5_000, 10**6]),
    wraps=st.integers(0, 9),
)
def test_a_traceback_is_bounded(depth: int, length: int, wraps: int) -> None:
    """Whatever recurses, quotes its input or was raised from others; the first line stays."""

    def one(n: int) -> None:
        if n <= 0:
            raise ValueError("x" * length)
        other(n - 1)

    def other(n: int) -> None:
        one(n - 1)

    def wrap(n: int) -> None:
        if n == 0:
            one(depth)
        try:
            wrap(n - 1)
        except ValueError as error:
            raise ValueError(str(n)) from error

    text = traceback_of(raised_by(lambda: wrap(wraps) if wraps else one(depth)))

    assert len(text) < 8_100
    assert text.startswith("Traceback (most recent call last):\n")
    if not wraps:
        assert text.splitlines()[-1].startswith("ValueError")
        assert "raise ValueError" in text


def test_an_exception_without_text_has_its_line() -> None:
    """The innermost of the user's lines says what timed out."""

    async def slow() -> None:
        await asyncio.wait_for(asyncio.sleep(10), 0.001)

    line = line_of(raised_by(lambda: asyncio.run(slow())))

    assert line.startswith("TimeoutError in test_tracebacks.py, line ")
    assert line.endswith(", in slow: await asyncio.wait_for(asyncio.sleep(10), 0.001)")


def test_an_exception_with_text_has_none() -> None:
    """The text says what is wrong."""
    assert line_of(raised_by(users_line)) == "KeyError: 'daily'"
