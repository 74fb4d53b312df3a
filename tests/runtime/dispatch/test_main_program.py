# SPDX-License-Identifier: Apache-2.0
"""Programs with globals that cannot be pickled: clients, locks, open files."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from statefun import PlatformError, StatefulFunctions
from statefun.engine.program import Program
from statefun.module.user_program import forget_loaded, load_program
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.spark_internals.closures import pickle_by_value
from statefun.sdk import functions as sdk_functions

LOCKED = """\
import sys
import threading

import attrs
import statefun
from statefun import Context, StatefulFunctions

functions = StatefulFunctions()
lock = threading.Lock()
counts = {"all": 0}
ARGUMENT = sys.argv[-1]
TEXT = b'{"name": "a"}'


@attrs.frozen
class Item:
    name: str


ITEM = statefun.make_json_type("test.main/Item", Item)


def count():
    with lock:
        counts["all"] += 1
        return counts["all"]


@functions.bind("test.main/top")
def top(ctx: Context, item: Item) -> None:
    return f"{count()} {ARGUMENT} {ITEM.decode(ITEM.typename, TEXT) == Item('a')}"


def make(number):
    @functions.bind(f"test.main/nested{number}")
    def nested(ctx: Context, item: Item) -> None:
        return f"{number} {count()}"


make(1)
"""
WORKER = """\
import pickle, sys
sys.argv = ["worker"]
for payload in pickle.load(open({file!r}, "rb")):
    for function in payload.load().functions:
        print(function.fun(None, None))
"""


@pytest.fixture(autouse=True)
def no_default_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the functions that other tests of this process may have registered for everybody."""
    monkeypatch.setattr(sdk_functions.default_functions, "_functions", {})


def sent(app: Path) -> Payload:
    """Return a program as the driver sends it."""
    try:
        return Payload.of(Program(load_program(app).functions, {}))
    finally:
        forget_loaded()


def on_worker(folder: Path, *payloads: Payload) -> subprocess.CompletedProcess[str]:
    """Call all functions in a process that does not have the program's file."""
    file = folder / "payload"
    file.write_bytes(pickle.dumps(payloads))
    return subprocess.run(
        [sys.executable, "-c", WORKER.format(file=str(file))],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_globals_that_cannot_be_pickled_are_made_on_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All functions share the globals of one copy of the program, which the driver's arguments made."""
    app = tmp_path / "app.py"
    app.write_text(LOCKED)
    monkeypatch.setattr(sys, "argv", ["app.py", "argument"])

    payload = sent(app)
    app.unlink()
    worker = on_worker(tmp_path, payload)

    assert worker.stdout.splitlines() == ["1 argument True", "1 2"], worker.stderr
    (main,) = payload.mains
    assert main.needed >= {"lock", "counts", "count", "ARGUMENT", "ITEM", "Item"}


def test_programs_without_such_globals_travel_by_value(tmp_path: Path) -> None:
    """Workers do not run a program whose globals can be pickled, also those that its main part made."""
    app = tmp_path / "app.py"
    app.write_text(LOCKED.replace("threading.Lock()", "__import__('contextlib').nullcontext()"))

    payload = sent(app)

    assert payload.mains == ()
    assert on_worker(tmp_path, payload).stdout.startswith("1 ")


def test_a_program_ends_on_workers_where_it_would_run(tmp_path: Path) -> None:
    """A program without ``if __name__ == "__main__"`` does not start again on a worker."""
    app = tmp_path / "app.py"
    start = 'if __name__ != "__statefun_validate__":\n    statefun.run()\n    print("after")\n'
    app.write_text(LOCKED + start)

    worker = on_worker(tmp_path, sent(app))

    assert [line.split()[0] for line in worker.stdout.splitlines()] == ["1", "1"], worker.stderr


def test_globals_of_the_main_part_alone_are_named(tmp_path: Path) -> None:
    """Workers do not run the part under ``__main__``: the error names the globals that they lack."""
    app = tmp_path / "app.py"
    app.write_text(
        LOCKED.replace("counts = {", 'if __name__ == "__statefun_validate__":\n    counts = {')
    )

    worker = on_worker(tmp_path, sent(app))

    assert worker.returncode == 1
    last = worker.stderr.splitlines()[-1]
    assert f"[SF700] {app}: functions use counts, which workers do not have" in last


def test_workers_have_the_values_of_the_top_level(tmp_path: Path) -> None:
    """Values that the program's main part sets later do not count: no worker runs that part."""
    app = tmp_path / "app.py"
    main = 'def main():\n    global ARGUMENT\n    ARGUMENT = "later"\n'
    start = 'if __name__ == "__statefun_validate__":\n    main()\n'
    app.write_text(LOCKED.replace("sys.argv[-1]", '"top"') + main + start)

    worker = on_worker(tmp_path, sent(app))

    assert worker.stdout.splitlines() == ["1 top True", "1 2"], worker.stderr


def test_a_method_that_nobody_calls_has_its_globals(tmp_path: Path) -> None:
    """A start is refused rather than a message, months later: the caller is not known before."""
    app = tmp_path / "app.py"
    method = "    name: str\n\n    def show(self):\n        print(self.name, file=console)\n"
    start = 'if __name__ == "__statefun_validate__":\n    console = sys.stderr\n'
    app.write_text(LOCKED.replace("    name: str\n", method) + start)

    worker = on_worker(tmp_path, sent(app))

    assert "functions use console, which workers do not have" in worker.stderr.splitlines()[-1]


def test_a_program_that_fails_on_workers_is_reported_with_its_line(tmp_path: Path) -> None:
    """The error of a worker names the line of the program."""
    app = tmp_path / "app.py"
    app.write_text(f'{LOCKED}if not __name__.startswith("__statefun_validate"):\n    int("x")\n')

    worker = on_worker(tmp_path, sent(app))

    last = worker.stderr.splitlines()[-1]
    line = len(LOCKED.splitlines()) + 2
    assert "[SF700] a Python worker cannot load the program: ValueError: invalid literal" in last
    assert f", line {line}; put all code that does not register functions" in last


def test_an_object_that_cannot_travel_at_all_is_named(tmp_path: Path) -> None:
    """A lock in a closure has no name: the error has the function, its place and the variable."""
    app = tmp_path / "app.py"
    app.write_text(
        LOCKED.replace(
            "def make(number):", "def make(number):\n    own = threading.Lock()"
        ).replace('f"{number} {count()}"', 'f"{own} {number}"')
    )

    with pytest.raises(PlatformError) as raised:
        sent(app)

    text = str(raised.value)
    assert (
        "function test.main/nested1 cannot be sent to Python workers: make.<locals>.nested" in text
    )
    assert f"({app}:" in text
    assert "uses own, a _thread.lock, which cannot be pickled" in text


MADE_BY_MAIN = """
if __name__ == "__statefun_validate__":
    PAIR, UNSET, show = (1, "a"), ..., print


def made(given, unset, show):
    @functions.bind("test.main/made")
    def handler(ctx, message):
        count()
        return given, unset is ..., show is print


made((1, "a"), ..., print)
"""
CALLED = {
    "a partial function": (
        "import functools\nfunctions.bind('test.main/b')(functools.partial(lambda n, c, m: n, 7))\n",
        "7",
    ),
    "a bound method": (
        (
            "class A:\n    def b(self, ctx, m):\n        return count()\n"
            "functions.bind('test.main/b')(A().b)\n"
        ),
        "3",
    ),
    "constants": (MADE_BY_MAIN, "((1, 'a'), True, True)"),
}


@pytest.mark.parametrize("name", CALLED)
def test_programs_with_such_globals_may_have(name: str, tmp_path: Path) -> None:
    """Handlers of any kind, and constants that the main part has names for."""
    added, result = CALLED[name]
    app = tmp_path / "app.py"
    app.write_text(LOCKED + added)

    worker = on_worker(tmp_path, sent(app))

    assert worker.stdout.splitlines()[2:] == [result], worker.stderr


def test_partial_functions_alone_use_such_globals(tmp_path: Path) -> None:
    """The program is the one that the partial function's function comes from."""
    app = tmp_path / "app.py"
    app.write_text(
        "import functools\nimport threading\nfrom statefun import StatefulFunctions\n"
        "functions = StatefulFunctions()\nlock = threading.Lock()\n"
        "def call(n, ctx, m):\n    with lock:\n        return n\n"
        "functions.bind('test.main/a')(functools.partial(call, 7))\n"
    )

    worker = on_worker(tmp_path, sent(app))

    assert worker.stdout.splitlines() == ["7"], worker.stderr


BY_NAME = {
    "a cached function": "import functools\n@functools.cache\ndef use(x):\n    return x\n",
    "a cached method": (
        "import functools\nclass A:\n    @functools.cache\n    def use(self, x):\n"
        "        return x\nuse = A().use\n"
    ),
    "a new type": "from typing import NewType\nuse = NewType('use', int)\n",
}


@pytest.mark.parametrize("name", BY_NAME)
def test_globals_that_pickle_looks_up_by_name_are_made_on_workers(
    name: str, tmp_path: Path
) -> None:
    """Also without a lock: pickle would send the names of some globals, which workers cannot import."""
    app = tmp_path / "app.py"
    app.write_text(
        "from statefun import StatefulFunctions\nfunctions = StatefulFunctions()\n"
        f"{BY_NAME[name]}"
        "@functions.bind('test.main/a')\ndef call(ctx, m):\n    return use(5)\n"
    )

    worker = on_worker(tmp_path, sent(app))

    assert worker.stdout.splitlines() == ["5"], worker.stderr


def test_a_worker_runs_the_program_that_it_was_sent(tmp_path: Path) -> None:
    """An earlier program with equal names, types and functions is not taken for it."""
    app = tmp_path / "app.py"
    text = LOCKED.replace("@functions.bind(", "@statefun.function(").replace(
        "functions = StatefulFunctions()\n", ""
    )
    payloads = []
    for number in ("first", "second"):
        app.write_text(text.replace('return f"{', f'return f"{number} {{'))
        payloads.append(sent(app))

    worker = on_worker(tmp_path, *payloads)

    assert [line.split()[:2] for line in worker.stdout.splitlines()] == [
        *(["first", "1"], ["first", "1"]),
        *(["second", "1"], ["second", "1"]),
    ], worker.stderr


def test_types_that_came_by_value_are_not_in_the_way(tmp_path: Path) -> None:
    """A worker that had a program by value loads another one whose types have the same names."""
    app = tmp_path / "app.py"
    payloads = []
    for lock in ("__import__('contextlib').nullcontext()", "threading.Lock()"):
        app.write_text(LOCKED.replace("threading.Lock()", lock))
        payloads.append(sent(app))
    by_value, loaded = payloads
    assert (len(by_value.mains), len(loaded.mains)) == (0, 1)

    worker = on_worker(tmp_path, *payloads)

    assert [line.split()[:1] for line in worker.stdout.splitlines()] == [["1"]] * 4, worker.stderr


def test_functions_of_several_programs_have_their_own_globals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a process of tests: only programs whose globals cannot be pickled are loaded."""
    functions = StatefulFunctions()
    for name, lock in (("one", "threading.Lock()"), ("two", "None"), ("three", "threading.Lock()")):
        (tmp_path / f"{name}_app.py").write_text(
            f"import threading\nlock = {lock}\nvalue = {name!r}\n"
            "def call(ctx, m):\n    return f'{value} {lock is None}'\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        module = importlib.import_module(f"{name}_app")
        pickle_by_value(module)
        functions.bind(f"test.main/{name}")(module.call)

    payload = Payload.of(Program(functions, {}))
    worker = on_worker(tmp_path, payload)

    assert worker.stdout.splitlines() == ["one False", "two True", "three False"], worker.stderr
    assert [Path(main.file).name for main in payload.mains] == ["one_app.py", "three_app.py"]
