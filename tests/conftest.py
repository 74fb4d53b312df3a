# SPDX-License-Identifier: Apache-2.0
"""Real parts for all tests: one broker and one Spark context per session."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from pathlib import Path

import pytest
from class_archive import use_archive
from harness import KafkaHarness
from hdfs_server import Hdfs, hdfs
from hypothesis import HealthCheck, settings
from kinesis_server import KINESALITE, KinesisHarness, kinesalite
from object_store import ObjectStore, object_store

from statefun.dev import EmbeddedKafka
from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.types import TypeRegistry, default_types

# A shell starts background jobs with Ctrl-C ignored, and programs inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["PYSPARK_SUBMIT_ARGS"] = (
    "--master local[2] --driver-memory 2g --conf spark.ui.enabled=false "
    # A sort spills early, so that order is tested with spills.
    "--conf spark.shuffle.spill.numElementsForceSpillThreshold=5000 pyspark-shell"
)
os.environ["PYSPARK_PYTHON"] = sys.executable
use_archive()

# How long an example takes says nothing on a machine that others share.
settings.register_profile("statefun", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("statefun")
settings.register_profile("fast", max_examples=20)  # of make check; the rest is as above

_types_of_modules: dict[str, TypeRegistry] = {}
"""The types that modules of tests define outside of their tests, by the modules' names."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that run all tests of checkpoints in any store, and only these, with HDFS."""
    parser.addoption("--store", choices=["s3", "hdfs"], default="s3", help="where checkpoints are")
    parser.addoption(
        "--hdfs-port", type=int, help="the port of a running NameNode; else one is started"
    )


def _minutes(item: pytest.Function, marker: str) -> float:
    found = item.get_closest_marker(marker)
    return float(found.kwargs["minutes"]) if found else 0


def _minutes_of_module(tests: Sequence[pytest.Function]) -> float:
    """Return how long the tests of a module take: the long ones, each with its time, and the others together."""
    others = max(_minutes(test, "takes") for test in tests)
    return others + sum(_minutes(test, "long") for test in tests)


def _dealt(items: list[pytest.Function], processes: int) -> Iterator[pytest.Function]:
    """Order tests so that each process begins with its share of what takes long.

    A process begins with as many tests as each other one, in their order, and later takes over
    tests from the end of another one's. Long modules stay together: what they set up is costly.
    """
    least, more = divmod(len(items), processes)
    sizes = [least] * (processes - more) + [least + 1] * more
    hands: list[list[pytest.Function]] = [[] for _ in range(processes)]
    minutes = [0.0] * processes
    modules = [[*tests] for _, tests in groupby(items, key=lambda item: item.path)]
    long = filter(_minutes_of_module, modules)
    for tests in sorted(long, key=_minutes_of_module, reverse=True):
        freest = min(range(processes), key=minutes.__getitem__)
        hands[freest] += tests
        minutes[freest] += _minutes_of_module(tests)
    short = (test for tests in modules if not _minutes_of_module(tests) for test in tests)
    for hand, size in zip(hands, sizes, strict=True):
        yield from hand
        yield from islice(short, max(0, size - len(hand)))
    yield from short


def _is_of_any_store(item: pytest.Function) -> bool:
    names = item.fixturenames
    return "store" in names and "store_server" not in names


@pytest.hookimpl(trylast=True)  # when tests are left out already
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    """Begin with what takes long, so that no process works alone in the end.

    Refuse unmarked tests that start the broker: ``make test-quick`` could not leave them out.
    """
    if config.getoption("store") != "s3":
        of_stores = [item for item in items if _is_of_any_store(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in of_stores])
        items[:] = of_stores
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = _dealt(items, processes)
    unmarked = [
        item.nodeid
        for item in items
        if "broker" in item.fixturenames and not item.get_closest_marker("broker")
    ]
    if unmarked:
        raise pytest.UsageError(f"these tests need @pytest.mark.broker: {', '.join(unmarked)}")


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedKafka]:
    """Run a Kafka broker for the whole session."""
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture
def kafka(broker: EmbeddedKafka, request: pytest.FixtureRequest) -> KafkaHarness:
    """Return the session's broker, with topic names of the test's own."""
    return KafkaHarness(broker, prefix=request.node.name.replace("[", "-").replace("]", ""))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Set the types aside that modules of tests define outside of their tests, for the tests of these modules alone."""
    for module in {item.getparent(pytest.Module) for item in session.items}:
        if module is not None and module.path.name.startswith("test_"):
            name, known = module.obj.__name__, default_types.list()
            default_types.forget(name)
            left = default_types.list()
            _types_of_modules[name] = TypeRegistry([each for each in known if each not in left])


@contextmanager
def _types_as_before(module: str) -> Iterator[None]:
    """Forget the types that a module defines meanwhile, and restore those that are replaced."""
    before = TypeRegistry()
    before.update(default_types)
    yield
    default_types.forget(module)
    default_types.forget("types")  # the module of classes that ``make_dataclass`` has made
    default_types.update(before)


@pytest.fixture(autouse=True, scope="module")
def own_types_of_fixtures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget types that fixtures of a test's module define for all of its tests, after the last one."""
    with _types_as_before(request.module.__name__):
        yield


@pytest.fixture(autouse=True)
def own_types(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget types that a test or its module defines, and restore types that it replaces by loading a program as workers do.

    Applications send all types to workers, which cannot import a test's module.
    """
    module = request.module.__name__
    with _types_as_before(module):
        default_types.update(_types_of_modules.get(module, TypeRegistry()))
        yield


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return where an application of this test keeps its checkpoint."""
    return tmp_path / "check point"  # file systems have blanks in their names


@pytest.fixture(scope="session")
def store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Serve a bucket of an S3-compatible store."""
    with object_store(tmp_path_factory.mktemp("store")) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs_server(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Hdfs]:
    """Run an HDFS, or use the one that runs already."""
    port = pytestconfig.getoption("hdfs_port")
    if port is not None:
        yield Hdfs(port)
        return
    with hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """Return an empty folder in an S3-compatible store, or in HDFS with the option ``--store=hdfs``."""
    name = {"s3": "store_server", "hdfs": "hdfs_server"}[request.config.getoption("store")]
    server: ObjectStore | Hdfs = request.getfixturevalue(name)
    return server.folder(f"{tmp_path.parent.name}/{tmp_path.name}")


@pytest.fixture(scope="session")
def kinesis_server() -> Iterator[KinesisHarness]:
    """Start a server of Kinesis's protocol, or skip where there is no Node.js."""
    if KINESALITE.missing_tools:
        pytest.skip(f"there is no {', '.join(KINESALITE.missing_tools)}")
    with kinesalite() as server:
        yield KinesisHarness(server.port)


@pytest.fixture
def kinesis(kinesis_server: KinesisHarness) -> KinesisHarness:
    """Return the server without any streams: each test names its own as it likes."""
    for name in kinesis_server.client.list_streams()["StreamNames"]:
        kinesis_server.delete(name)
    return kinesis_server
