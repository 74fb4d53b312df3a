# SPDX-License-Identifier: Apache-2.0
"""Fixtures for pytest: applications in this process or on Spark, and an embedded Kafka.

- ``statefun_app`` makes an application: ``statefun_app("app.py")`` returns an
  :class:`~statefun.testing.InProcessApplication`, or one on Spark with the option
  ``--statefun=spark``; with ``--statefun=both`` each test that uses ``statefun_app`` runs in both
  ways. A test overrides the option with
  ``@pytest.mark.parametrize("statefun_app", ["in_process", "spark"], indirect=True)``.
- ``statefun_kafka`` is a broker on this machine, for all tests of the session;
  ``statefun_topic("users", partitions=2)`` creates a topic for one test.

With ``--statefun-twice``, applications in this process call each function twice, and a test fails
if the two calls differ; ``--statefun-seed`` chooses another order of messages.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from statefun.dev import EmbeddedKafka
    from statefun.testing import TestedApplication

_WAYS = {"in_process": ["in_process"], "spark": ["spark"], "both": ["in_process", "spark"]}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options ``--statefun``, ``--statefun-twice`` and ``--statefun-seed`` to pytest."""
    group = parser.getgroup("statefun")
    group.addoption(
        "--statefun",
        choices=list(_WAYS),
        default="in_process",
        help="how the fixture statefun_app runs applications (default: in_process)",
    )
    group.addoption(
        "--statefun-twice",
        action="store_true",
        help="call each function twice, and fail if the effects of the two calls differ",
    )
    group.addoption(
        "--statefun-seed",
        type=int,
        default=0,
        help="the seed of the order in which messages are delivered (default: 0)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests in this process or on Spark, as the option ``--statefun`` or the test itself says."""
    if "statefun_app" not in metafunc.fixturenames:
        return
    ways = _WAYS[metafunc.config.getoption("--statefun")]
    if ways != ["in_process"] and not any(map(_chooses, metafunc.definition.iter_markers())):
        metafunc.parametrize("statefun_app", ways, indirect=True)


def _chooses(mark: pytest.Mark) -> bool:
    """Return whether a mark parametrizes a test by ``statefun_app``; such a mark overrides ``--statefun``."""
    if mark.name != "parametrize":
        return False
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return "statefun_app" in (re.split(r"\s*,\s*", names) if isinstance(names, str) else names)


@pytest.fixture
def statefun_app(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., TestedApplication]]:
    """Yield a function that makes an application; its arguments are those of ``InProcessApplication``.

    After the test, the functions, types and modules of its programs are forgotten, so that other tests of this
    process can load other programs.
    """
    way = getattr(request, "param", "in_process")
    if way not in _WAYS["both"]:
        raise pytest.UsageError(
            f"the parameter of statefun_app must be in_process or spark, not {way!r}"
        )
    folders = (tmp_path / f"statefun-{number}" for number in count())

    def make(program: str | Path | None = None, **options: Any) -> TestedApplication:
        from statefun.testing import InProcessApplication  # noqa: PLC0415 - only for such tests
        from statefun.testing.tested import loaded  # noqa: PLC0415 - as above

        seed = options.pop("seed", request.config.getoption("--statefun-seed"))
        twice = options.pop("twice", request.config.getoption("--statefun-twice"))
        if way == "in_process":
            return InProcessApplication(program, **options, seed=seed, twice=twice)
        from statefun.dev.spark_application import SparkApplication  # noqa: PLC0415 - as above

        parts = {"module": None, "functions": None, "components": (), **options}
        folder = next(folders)
        folder.mkdir()
        kafka = request.getfixturevalue("statefun_kafka")
        return SparkApplication(loaded(program, **parts), kafka, folder)

    yield make
    # A test that makes no application has imported nothing of statefun, which takes long.
    if (module := sys.modules.get("statefun.module.user_program")) is not None:
        module.forget_loaded()


@pytest.fixture(scope="session")
def statefun_kafka() -> Iterator[EmbeddedKafka]:
    """Run a Kafka broker on this machine while the tests run."""
    from statefun.dev import EmbeddedKafka  # noqa: PLC0415 - it is downloaded when it is needed

    # Topics of egresses are created with their first record: no test declares them.
    with EmbeddedKafka(config={"auto.create.topics.enable": "true"}) as kafka:
        yield kafka


@pytest.fixture
def statefun_topic(
    request: pytest.FixtureRequest, statefun_kafka: EmbeddedKafka
) -> Callable[..., str]:
    """Return a function that creates topics on the broker; their names begin with the test's name."""
    test = request.node
    # Tests of several classes may have the same name, and the characters of parameters may not be allowed.
    digest = hashlib.sha256(test.nodeid.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    prefix = f"{re.sub(r'[^A-Za-z0-9._-]', '_', test.name)}.{digest}"

    def create(name: str, partitions: int = 1) -> str:
        topic = f"{prefix}.{name}"[-249:]
        statefun_kafka.create_topic(topic, partitions=partitions)
        return topic

    return create
