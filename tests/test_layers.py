# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "statefun"
ARCHITECTURE = PACKAGE.parent / "docs" / "architecture.md"
MAX_LINES = 400

ALLOWED = {
    "sdk": {
        "statefun.sdk",
        "statefun.protocol",
        "google.protobuf",
        "attrs",
        "msgspec",
        "pydantic",
        "typing_extensions",
        "mypy_extensions",
    },
    "formats": {
        "statefun.formats",
        "statefun.sdk",
        "attrs",
        "confluent_kafka.schema_registry",
        "fastavro",
        "google.protobuf",
    },
    "serving.asgi": {"statefun.serving", "statefun.sdk"},
    "published": {"statefun"},
    "windows": {"statefun.windows", "statefun.sdk", "attrs"},
    "joins": {"statefun.joins", "statefun.sdk", "attrs"},
    "remote": {
        "statefun.remote",
        "statefun.module",
        "statefun.protocol",
        "statefun.sdk",
        "google.protobuf",
        "aiohttp",
        "attrs",
        "yarl",
    },
    "kinesis": {
        "statefun.kinesis",
        "statefun.components",
        "statefun.protocol",
        "statefun.sdk",
        "google.protobuf",
        "attrs",
        "boto3",
        "botocore",
        "pyarrow",
        "pyspark.sql",
    },
    "files": {
        "statefun.files",
        "statefun.components",
        "statefun.sdk",
        "attrs",
        "pyarrow",
        "pyspark.sql",
    },
    "transforms": {"statefun.transforms", "statefun.formats", "statefun.sdk", "attrs", "msgspec"},
    "engine": {
        "statefun.engine",
        "statefun.module",
        "statefun.protocol",
        "statefun.sdk",
        "google.protobuf",
        "attrs",
        "mypy_extensions",
    },
    "module": {
        "statefun.module",
        "statefun.formats",
        "statefun.sdk",
        "statefun.transforms",
        "yaml",
        "attrs",
    },
}
"""The imports that a layer may have, besides the standard library."""

FORBIDDEN = {
    "runtime": {
        "statefun.dev",
        "statefun.inspect",
        "statefun.testing",
        "statefun.serving",
        "statefun.cli",
    },
}

ROOMS = [
    *(
        "connections",
        "request_stream",
        "http_server",
        "columns",
        "garbage",
        "spark_internals",
        "terminal",
        "rows",
        "kafka",
    ),
    *("letters", "checkpoint"),
    *("control", "connector_failures", "egress", "calls", "dispatch", "ingress"),
    *("settings", "definition", "spark", "stored", "release", "preflight", "loading", "staging"),
    *("query", "repairing", "posted_messages", "reporting", "playground", "admin"),
    "telemetry",
    *("application_run", "supervision", "application", "run"),
]
"""The rooms of the runtime; each may import the rooms before it."""

PROMISED = {
    *(f"pyspark.{name}" for name in ("SparkContext", "TaskContext", "__version__", "errors")),
    *(f"pyspark.sql.{name}" for name in ("Column", "DataFrame", "Row", "SparkSession", "conf")),
    *(f"pyspark.sql.{name}" for name in ("datasource", "functions", "streaming", "types")),
}
"""What of PySpark its documentation describes, as far as it is used."""

NOT_PROMISED = re.compile(
    r"""
    \b_(jvm|gateway|jsparkSession|jsc|jdf|jdq|jwrite|jreader)\b (?!\.py)
    | \b_(ensure_initialized|active_spark_context)\b
    | java_exception | py4j | Py4J | SparkEnv | batchId | PYSPARK_GATEWAY
    | \borg\.apache\.(spark|hadoop|logging)\.(?!\*) | \bcom\.codahale
    | pyspark[./](cloudpickle|core|daemon|java_gateway|serializers|sql[./](pandas|worker)|util|worker)\b
    | \bspark\.python\.(unix|worker) | \bspark\.sql\.(streaming|adaptive)
    | groupState\b | keyRowAsUnsafe | statestore
    | (WithState|Arrow(Stream)?)Serializer | MicroBatchExecution | OffsetSeq
    | CONCURRENT_STREAM | ModuleNotFoundError:
    """,
    re.VERBOSE,
)
"""Names of what it does not describe."""


def _imports(source: str, package: str) -> Iterator[str]:
    """Return all imports of a module in ``package``: modules, or ``module.attribute``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(parents) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _modules() -> Mapping[str, Path]:
    """List the modules of the package that people wrote, by name."""
    names = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.stem.endswith("_pb2")
    }
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


MODULES = _modules()
IMPORTS = {
    name: list(
        _imports(
            path.read_text("utf-8"),
            name if path.name == "__init__.py" else name.rpartition(".")[0],
        )
    )
    for name, path in MODULES.items()
}


def _below(name: str, parents: Iterable[str]) -> bool:
    return any(f"{name}.".startswith(f"{parent}.") for parent in parents)


def _layer(name: str) -> list[str]:
    return [module for module in MODULES if _below(module, [f"statefun.{name}"])]


def _cycle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


@pytest.mark.parametrize("layer", sorted(ALLOWED))
def test_lower_layers_import_what_they_may(layer: str) -> None:
    """Neither Spark nor a Kafka client gets below the runtime, nor YAML into the SDK."""
    allowed = ALLOWED[layer] | sys.stdlib_module_names

    excess = [
        f"{module} imports {found}"
        for module in _layer(layer)
        for found in IMPORTS[module]
        if not _below(found, allowed)
    ]

    assert _layer(layer)
    assert excess == []


def test_the_protocol_imports_nothing_of_ours() -> None:
    """Generated code stands alone."""
    sources = {path: path.read_text("utf-8") for path in (PACKAGE / "protocol").glob("*.py")}

    ours = [
        f"{path.name} imports {found}"
        for path, source in sources.items()
        for found in _imports(source, "statefun.protocol")
        if _below(found, ["statefun"]) and not _below(found, ["statefun.protocol"])
    ]

    assert len(sources) > 1
    assert ours == []


@pytest.mark.parametrize("layer", sorted(FORBIDDEN))
def test_the_runtime_runs_without_tools(layer: str) -> None:
    """Production code does not import development tools."""
    excess = [
        f"{module} imports {found}"
        for module in _layer(layer)
        for found in IMPORTS[module]
        if _below(found, FORBIDDEN[layer])
    ]

    assert _layer(layer)
    assert excess == []


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_of_the_runtime_stand_on_those_below(room: str) -> None:
    """Folders show the way of a record: no room imports a room above it."""
    above = [f"statefun.runtime.{each}" for each in ROOMS[ROOMS.index(room) + 1 :]]

    excess = [
        f"{module} imports {found}"
        for module in _layer(f"runtime.{room}")
        for found in IMPORTS[module]
        if _below(found, above)
    ]

    assert excess == []


def test_every_room_of_the_runtime_has_its_floor() -> None:
    """A new one is a decision."""
    names = {name.split(".")[2] for name in _layer("runtime") if name.count(".") > 1}

    assert sorted(names) == sorted(ROOMS)


def _table(heading: str) -> list[list[str]]:
    """Return the cells of the table on the architecture page whose first column has that heading."""
    page = ARCHITECTURE.read_text("utf-8")
    _, _, after = page.partition(f"\n| {heading} |")
    rows = after.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def _named(cell: str) -> list[str]:
    """Return the names of the packages or modules that a cell has paths of."""
    return [Path(path).stem for path in re.findall("`([^`]+)`", cell)]


LISTED = {name: may_import for cell, _, may_import in _table("Package") for name in _named(cell)}
"""By package of the architecture page, from top to bottom: what it may import."""


def test_the_architecture_lists_every_package() -> None:
    """A package without a line there would have no task."""
    names = {name.split(".")[1] for name in MODULES if "." in name} | {"__init__", "protocol"}

    assert sorted(LISTED) == sorted(names)


def test_the_architecture_lists_every_room_of_the_runtime() -> None:
    """From top to bottom, so that each may use those below it."""
    listed = [name for cell, _ in _table("Room") for name in _named(cell)]

    assert listed == ROOMS[::-1]


@pytest.mark.parametrize("package", LISTED)
def test_packages_import_what_the_architecture_says(package: str) -> None:
    """Only packages further down that their lines name, and the protocol."""
    names = list(LISTED)
    below = names[names.index(package) + 1 :]
    allowed = {*re.findall(r"\w+", LISTED[package]), package, "protocol"}
    may_import = [name for name in below if name in allowed or "all" in allowed]
    modules = ["statefun"] if package == "__init__" else _layer(package)
    roots = [f"statefun.{name}" for name in (*may_import, package)]

    excess = [
        f"{module} imports {found}"
        for module in modules
        for found in IMPORTS[module]
        if _below(found, ["statefun"]) and not _below(_module_of(found), roots)
    ]

    assert modules
    assert excess == []


def _module_of(imported: str) -> str:
    """Return the module that an import loads; the package itself counts as its ``__init__``."""
    module = imported if imported in MODULES else imported.rpartition(".")[0]
    return "statefun.__init__" if module == "statefun" else module


def test_no_two_modules_have_one_name() -> None:
    """Who says 'timers' means one place."""
    given = set(_layer("published"))  # the published package has chosen their names
    names = [
        path.stem
        for module, path in MODULES.items()
        if path.stem != "__init__" and module not in given
    ]

    assert sorted(names) == sorted(set(names))


def test_no_two_modules_of_tests_have_one_name() -> None:
    """Pytest loads test modules by their names alone, and refuses the second of two."""
    names = [path.stem for path in (PACKAGE.parent / "tests").rglob("test_*.py")]

    assert names
    assert sorted(names) == sorted(set(names))


CONVENTIONS = {
    "each module's log": {"logger"},
    "what the command line asks each command, or each action of a command, for": {
        *("add_arguments", "run_command", "ACTIONS", "add_actions", "run_action"),
    },
    "what the catalogue of kinds takes from each module with kinds": {
        *("KINDS", "INGRESS", "EGRESS", "read_ingress", "read_egress"),
    },
    "a key of module files: its constant has its name, in each kind that has the key": {
        *("DELIMITER", "FAILURE_POLICY", "FIELD", "FORMAT", "ID", "ON_DATA_LOSS", "PROPERTIES"),
        *("STARTUP_POSITION", "TOPICS", "OnDataLoss"),
    },
    "what the runtime calls of each kind of ingress or egress": {
        *("check_ingress", "check_egress", "read_task", "connect"),
    },
    "the two directions of an encoding": {"encode", "decode"},
    "what a program writes, and the model from which it derives": {"KafkaIngress", "KafkaEgress"},
    "what a person sees of a dead letter or a delayed message: in a topic, in a context, in a test": {
        *("DeadLetter", "DelayedMessage"),
    },
}
"""The names that several modules may have, by the reason: one convention or one idea, and a face in each module."""

PENDING = {"DETACH_AFTER", "Finding", "Values", "described"}
"""Names that two modules still use for different things; the set may only shrink."""


def _public_names(path: Path) -> Iterator[str]:
    """Return the names that a module defines for others, but those of type variables."""
    for node in ast.parse(path.read_text("utf-8")).body:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        yield from (name for name in names if len(name) > 1 and not name.startswith("_"))


def test_public_names_have_one_meaning() -> None:
    """No two modules define one of them, but by a convention: so a name leads to one place."""
    published = set(_layer("published"))  # its names are those of another package
    places: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if module not in published:
            for name in _public_names(path):
                places.setdefault(name, set()).add(module)

    repeated = {name for name, modules in places.items() if len(modules) > 1}

    assert repeated == PENDING.union(*CONVENTIONS.values())


def test_modules_do_not_import_each_other_in_circles() -> None:
    """The modules have an order, even if imports inside functions and for types count."""
    graph = {
        module: {found if found in MODULES else found.rpartition(".")[0] for found in found_all}
        for module, found_all in IMPORTS.items()
    }

    assert graph["statefun.sdk.context"] >= {"statefun.sdk.address", "statefun.sdk.storage"}
    assert _cycle(graph) == []


@pytest.mark.parametrize("module", sorted({*MODULES} - {*_layer("runtime.spark_internals")}))
def test_one_package_knows_what_spark_does_not_promise(module: str) -> None:
    """Whoever supports another release of Spark has one place to look at."""
    private = [
        found
        for found in IMPORTS[module]
        if _below(found, ["pyspark", "py4j"]) and found != "pyspark" and not _below(found, PROMISED)
    ]
    named = [found[0] for found in NOT_PROMISED.finditer(MODULES[module].read_text("utf-8"))]

    assert (private, named) == ([], [])


def test_names_that_spark_does_not_promise_are_found() -> None:
    """The rule above can fail: it finds such names where they are."""
    there = "".join(MODULES[name].read_text("utf-8") for name in _layer("runtime.spark_internals"))
    found = {match[0] for match in NOT_PROMISED.finditer(there)}

    assert found >= {
        "_jvm",
        "_gateway",
        "_jsparkSession",
        "SparkEnv",
        "batchId",
        "py4j",
        "groupState",
    }
    assert {"pyspark/worker", "statestore", "org.apache.hadoop.", "CONCURRENT_STREAM"} <= found


@pytest.mark.parametrize("module", sorted(MODULES))
def test_modules_are_small(module: str) -> None:
    """One idea per module."""
    lines = MODULES[module].read_text("utf-8").count("\n")

    assert lines < MAX_LINES


def test_all_forms_of_imports_are_found() -> None:
    """The rules above see relative, nested and type-checking imports too."""
    source = """
import a, b.c as d
from e.f import g
from . import h
from .i import j
from ..k import l
if TYPE_CHECKING:
    import m
else:
    import n
def function():
    try:
        import o
    except ImportError:
        pass
"""

    found = sorted(_imports(source, "x.y"))

    assert found == ["a", "b.c", "e.f.g", "m", "n", "o", "x.k.l", "x.y.h", "x.y.i.j"]


def test_circles_are_found() -> None:
    """The rule above can fail."""
    assert set(_cycle({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]})) == {"a", "b", "c"}
    assert _cycle({"a": ["b", "c"], "b": ["c"]}) == []
