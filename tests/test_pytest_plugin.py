# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import random
from statefun import Context, KafkaEgress, State, StatefulFunctions, Address

class Count(State):
    count: int = 0

functions = StatefulFunctions()

@functions.bind("t/count")
def count(ctx: Context, number: int, state: Count) -> None:
    state.count += number

@functions.bind("t/random")
def chance(ctx: Context, number: int, state: Count) -> None:
    state.count = random.randrange(10**9)

OUT = KafkaEgress.for_id("t/out").with_kafka_address("localhost:1").build()

def test_counts(statefun_app):
    app = statefun_app(functions=functions, components=[OUT])
    app.send("t/count", "x", 2)
    app.drain()
    assert app.state(Address("t/count", "x")) == {"count": 2}

def test_chance(statefun_app):
    app = statefun_app(functions=functions, components=[OUT])
    app.send("t/random", "x", 2)
    app.drain()

def test_differs(statefun_app):
    app = statefun_app(functions=functions, components=[OUT])
    app.send("t/count", "x", 2)
    app.drain()
    assert app.state(Address("t/count", "x")) == {"count": 3}
"""


def run(folder: Path, *options: str) -> str:
    """Run tests of a user's, and return what pytest prints."""
    (folder / "test_user.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_applications_run_in_this_process(tmp_path: Path) -> None:
    """Without Spark, without a broker; a failing test shows which value differs."""
    printed = run(tmp_path)

    assert "1 failed, 2 passed" in printed
    assert "{'count': 2} != {'count': 3}" in printed


def test_functions_may_be_called_twice(tmp_path: Path) -> None:
    """With the option, a test fails where the two differ."""
    printed = run(tmp_path, "--statefun-twice", "-k", "chance or counts")

    assert "1 failed, 1 passed" in printed
    assert "function t/random at address t/random/x is not deterministic" in printed


def test_other_tests_are_left_alone(tmp_path: Path) -> None:
    """However they are parametrised; those that choose a way themselves are not asked again."""
    (tmp_path / "test_other.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize(argnames='x', argvalues=[1, 2])\n"
        "def test_keywords(x): pass\n"
        "@pytest.mark.parametrize('statefun_app, x', [('in_process', 1)], indirect=['statefun_app'])\n"
        "def test_text(statefun_app, x): pass\n"
        "@pytest.mark.parametrize(('x', 'statefun_app'), [(1, 'spark')], indirect=['statefun_app'])\n"
        "def test_names(statefun_app, x): pass\n"
    )

    assert "4 passed" in run(tmp_path, "--statefun=both", "test_other.py")


def test_topics_belong_to_one_test(tmp_path: Path) -> None:
    """Tests of one name in two classes get topics of their own; the broker is a stand-in that refuses a second creation."""
    tests = (
        "import pytest\n"
        "class Broker:\n"
        "    topics = set()\n"
        "    def create_topic(self, name, partitions=1):\n"
        "        assert name not in self.topics, f'topic {name} exists'\n"
        "        self.topics.add(name)\n"
        "@pytest.fixture(scope='session')\n"
        "def statefun_kafka(): return Broker()\n"
        "class TestOne:\n"
        "    def test_it(self, statefun_topic): statefun_topic('users')\n"
        "class TestTwo:\n"
        "    def test_it(self, statefun_topic): statefun_topic('users')\n"
        "@pytest.mark.parametrize('name', ['a b', 'a/b'])\n"
        "def test_name(statefun_topic, name): statefun_topic('users')\n"
    )

    (tmp_path / "test_topics.py").write_text(tests)

    assert "4 passed" in run(tmp_path, "test_topics.py")


def test_tests_are_collected_for_both_ways(tmp_path: Path) -> None:
    """Each test that uses the fixture, unless it chooses itself."""
    printed = run(tmp_path, "--statefun=both", "--collect-only", "-k", "counts")

    assert "test_user.py::test_counts[in_process]" in printed
    assert "test_user.py::test_counts[spark]" in printed


def test_programs_of_one_test_are_unknown_to_the_next_one(tmp_path: Path) -> None:
    """Each test may load a program, or register functions, with the names of the test before."""
    (tmp_path / "app.py").write_text(
        "from dataclasses import dataclass\n"
        "from statefun import Context, KafkaEgress, Message, function, make_json_type\n"
        "@dataclass\n"
        "class Value: name: str\n"
        "VALUE = make_json_type('t/Value', Value)\n"
        "OUT = KafkaEgress.for_id('t/out').with_kafka_address('localhost:1').build()\n"
        "@function('t/f')\n"
        "def f(ctx: Context, message: Message) -> None: ctx.storage\n"
    )
    (tmp_path / "test_programs.py").write_text(
        "import pytest\n"
        "from statefun import Context, Message, function, make_json_type\n"
        "@pytest.mark.parametrize('number', [1, 2])\n"
        "def test_loads(statefun_app, number): statefun_app('app.py')\n"
        "def test_registers():\n"
        "    make_json_type('t/Value', list)\n"
        "    @function('t/f')\n"
        "    def f(ctx: Context, message: Message) -> None: ctx.storage\n"
    )

    assert "3 passed" in run(tmp_path, "test_programs.py")
