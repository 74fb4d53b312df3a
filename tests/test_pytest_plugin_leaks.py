# SPDX-License-Identifier: Apache-2.0
"""What one test has loaded through ``statefun_app`` is unknown to the next one, also modules that its program imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OUT = "from statefun import *\nOUT = KafkaEgress.for_id('t/out').with_kafka_address('localhost:1').build()\n"
RECORD = "KafkaEgressMessage('t/out', topic='out', value='{}')"


def run(folder: Path, tests: str) -> str:
    """Run tests of a user's, and return what pytest prints."""
    (folder / "test_user.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_user.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_functions_of_an_imported_module_are_forgotten(tmp_path: Path) -> None:
    """A message to a function that the program does not have is an error, whatever another test has loaded."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "app.py").write_text(f"{OUT}import bells\n")
    (tmp_path / "one" / "bells.py").write_text(
        "from statefun import *\n@function('t/bell')\ndef bell(ctx: Context, message: Message) -> None: ...\n"
    )
    (tmp_path / "two" / "app.py").write_text(
        f"{OUT}@function('t/door', on_failure='fail')\n"
        "def door(ctx: Context, message: Message) -> None: ctx.send(Address('t/bell', 'x'), 1)\n"
    )
    tests = (
        "import pytest\n"
        "from statefun import StatefunError\n"
        "def test_one(statefun_app): statefun_app('one/app.py')\n"
        "def test_two(statefun_app):\n"
        "    app = statefun_app('two/app.py')\n"
        "    app.send('t/door', 'x', 1)\n"
        "    with pytest.raises(StatefunError, match='no function t/bell'): app.drain()\n"
    )

    assert "1 passed" in run(tmp_path, tests.replace("def test_one", "def not_one"))
    assert "2 passed" in run(tmp_path, tests)


def test_programs_have_their_own_modules(tmp_path: Path) -> None:
    """Two programs in two folders import modules of the same name."""
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "app.py").write_text(f"{OUT}import logic\n")
        (folder / "logic.py").write_text(
            "from statefun import *\n@function('t/f')\n"
            f"def f(ctx: Context, message: Message) -> None: ctx.send({RECORD.format(name)})\n"
        )
    tests = (
        "import pytest\n"
        "@pytest.mark.parametrize('name', ['one', 'two'])\n"
        "def test_it(statefun_app, name):\n"
        "    app = statefun_app(f'{name}/app.py')\n"
        "    app.send('t/f', 'x', 1)\n"
        "    app.drain()\n"
        "    assert [each.text for each in app.egress('out')] == [name]\n"
    )

    assert "2 passed" in run(tmp_path, tests)


def test_partial_functions_are_forgotten(tmp_path: Path) -> None:
    """Two tests load one program, which registers a ``functools.partial``."""
    (tmp_path / "app.py").write_text(
        f"{OUT}import functools\n"
        "def f(greeting: str, ctx: Context, message: Message) -> None: ...\n"
        "function('t/f')(functools.partial(f, 'Hello'))\n"
    )
    tests = (
        "import pytest\n"
        "@pytest.mark.parametrize('number', [1, 2])\n"
        "def test_loads(statefun_app, number): statefun_app('app.py')\n"
    )

    assert "2 passed" in run(tmp_path, tests)


def test_types_without_a_class_of_the_program_are_forgotten(tmp_path: Path) -> None:
    """One program has a type of any JSON values, and another one gives its name to a class."""
    out = f"{OUT}@function('t/f')\ndef f(ctx: Context, message: Message) -> None: ...\n"
    (tmp_path / "one.py").write_text(f"{out}VALUE = make_json_type('t/Value')\n")
    (tmp_path / "two.py").write_text(
        f"{out}import dataclasses\n"
        "@dataclasses.dataclass\n"
        "class Value: number: int\n"
        "VALUE = make_json_type('t/Value', Value)\n"
    )
    tests = (
        "import pytest\n"
        "@pytest.mark.parametrize('name', ['one.py', 'two.py'])\n"
        "def test_loads(statefun_app, name): statefun_app(name)\n"
    )

    assert "2 passed" in run(tmp_path, tests)
