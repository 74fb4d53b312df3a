# SPDX-License-Identifier: Apache-2.0
"""Checkpoints whose state comes from DataFrames, and applications that start on them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import state_application
from harness import KafkaHarness, run, wait
from pyspark.sql import DataFrame, SparkSession
from state_application import COUNTER, EVERYTHING, SPECS

import statefun
from statefun import (
    CheckpointError,
    ConfigurationError,
    Context,
    IntType,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    StringType,
    ValueSpec,
    make_json_type,
    make_msgpack_type,
)
from statefun.cli import main
from statefun.engine.address_keys import address_of
from statefun.module.model import Module
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.preflight.preparation import prepare
from statefun.runtime.settings import Settings
from statefun.runtime.spark.session import open_session
from statefun.runtime.stored.committed_state import with_state

pytestmark = [pytest.mark.spark, pytest.mark.takes(minutes=0.7)]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Return a session without any settings of statefun."""
    return open_session(debug=False, state_partitions=None, kafka=False).newSession()


def stored(checkpoint: Path) -> dict[str, AddressState]:
    """Return the states of all addresses."""
    rows = with_state(Folder.at(checkpoint), None, dict)
    return {str(address_of(key)): AddressState.FromString(row) for key, row in rows.items()}


OTHERS: list[tuple[ValueSpec, Any]] = [
    # It has no time zone, and so is not what its column shows.
    (ValueSpec("at", make_json_type("t.fns/At", datetime)), datetime(2026, 1, 1, 12)),  # noqa: DTZ001
    (
        ValueSpec("free", make_msgpack_type("t.fns/Free", dict[str, Any])),
        {"age": 5, "name": "[Ada"},
    ),
    (ValueSpec("undecoded", IntType), 7),
]


def test_what_state_returns_is_what_bootstrap_takes(spark: SparkSession, tmp_path: Path) -> None:
    """Values of all kinds of types are the same bytes as those that functions have written."""
    functions, first, second = state_application.functions(), tmp_path / "a", tmp_path / "b c"
    specs = {spec.name: spec.type.serializer() for spec in state_application.everything()}
    encoded = {name: specs[name].serialize(value) for name, value in SPECS.items()}
    raw = spark.createDataFrame(
        [("Ada", *map(bytearray, encoded.values()))],
        ", ".join(["id string", *(f"`{name}` binary" for name in encoded)]),
    )

    others = {spec.name: spec.type.serializer().serialize(value) for spec, value in OTHERS}
    functions.register("t.fns/others", lambda ctx, message: None, [spec for spec, _ in OTHERS])
    other = spark.createDataFrame(
        [("Ada", *map(bytearray, others.values()))],
        "id string, at binary, free binary, undecoded_value binary",
    )

    frames = {EVERYTHING: raw, "t.fns/others": other}
    statefun.bootstrap(spark, first, frames, functions=functions, state_partitions=3)
    shown = {name: statefun.state(spark, first, name, functions=functions) for name in frames}
    counts = spark.range(50).selectExpr("concat('c', id) as id", "cast(id as int) as count")
    statefun.bootstrap(spark, second, {**shown, COUNTER: counts}, functions=functions)

    ada = stored(first)[f"{EVERYTHING}/Ada"]
    assert {value.name: value.value for value in ada.values} == encoded
    assert ada.wake, "one of its values expires"
    states = stored(second)
    kept = {value.name: value.value for value in states.pop("t.fns/others/Ada").values}
    assert {
        name: spec.type.serializer().deserialize(kept[name])
        for spec, _ in OTHERS
        for name in [spec.name]
    } == {spec.name: value for spec, value in OTHERS}
    # msgspec writes the fields of classes that were sent to workers in another order.
    again = {value.name: value for value in states.pop(f"{EVERYTHING}/Ada").values}
    assert {name: specs[name].deserialize(again[name].value) for name in again} == {
        name: specs[name].deserialize(content) for name, content in encoded.items()
    }
    assert len(states) == 50
    read = statefun.state(spark, second, COUNTER, functions=StatefulFunctions())
    assert {row.id: row["count"] for row in read.collect()} == {f"c{n}": n for n in range(50)}


def expiring(topic: str) -> StatefulFunctions:
    """Return a function that counts its messages, and has a value that expires after two seconds."""
    made = StatefulFunctions()
    specs = [
        ValueSpec("count", IntType),
        ValueSpec("note", StringType, expire_after_write=timedelta(seconds=2)),
    ]

    @made.bind("t.fns/counter", specs)
    def count(ctx: Context, _message: Message) -> None:
        ctx.storage.count = (ctx.storage.count or 0) + 1
        value = f"{ctx.address.id} {ctx.storage.count}"
        ctx.send(KafkaEgressMessage("test/out", topic=topic, key="k", value=value))

    return made


@pytest.mark.broker
def test_an_application_starts_on_it(
    spark: SparkSession, kafka: KafkaHarness, checkpoint: Path
) -> None:
    """It reads from the given offsets on, counts on, lets values expire, and can be rescaled."""
    inputs, others, out = kafka.topic("in", partitions=2), kafka.topic("others"), kafka.topic("out")
    module = kafka.module({inputs: ["t.fns/counter"], others: ["t.fns/counter"]}, value_type="t/t")
    functions = expiring(out)
    for partition in (0, 1):
        kafka.send(inputs, [(f"id {n}", "x") for n in range(10)], partition)
    kafka.send(others, [("other", "x")])
    rows = [(f"id {n}", 100, None) for n in range(20)] + [("noted", None, "for a while")]
    frame = spark.createDataFrame(rows, "id string, count int, note string")

    statefun.bootstrap(
        spark,
        checkpoint,
        {"t.fns/counter": frame},
        offsets={"test/in": {inputs: {0: 10, 1: 8}}},
        functions=functions,
        state_partitions=2,
    )
    before = stored(checkpoint)
    run(module, functions, checkpoint)
    assert main(["rescale", str(checkpoint), "--state-partitions", "3"]) == 0
    time.sleep(3)
    kafka.send(inputs, [("id 0", "x")])
    run(module, functions, checkpoint)
    run(module, functions, checkpoint)

    assert "t.fns/counter/noted" in before
    assert len(before) == 21
    values = sorted(record.value for record in kafka.receive(out))
    assert values == sorted(["id 8 101", "id 9 101", "other 1", "id 0 101"])
    assert stored(checkpoint).keys() == before.keys() - {"t.fns/counter/noted"} | {
        "t.fns/counter/other"
    }


@attrs.frozen
class Point:
    """A point."""

    x: int


def counter() -> StatefulFunctions:
    """Return a function that declares the values of the rows."""
    functions = StatefulFunctions()
    specs = [ValueSpec("count", IntType), ValueSpec("point", make_json_type("t/Point", Point))]
    functions.bind("t.fns/counter", specs)(lambda _context, _message: None)
    return functions


def refused(spark: SparkSession, folder: Path, frame: DataFrame, **options: Any) -> str:
    """Return the error with which rows for a function are refused; nothing valid is left."""
    typename = options.pop("typename", "t.fns/counter")
    with pytest.raises(ConfigurationError) as caught:
        statefun.bootstrap(spark, folder, {typename: frame}, functions=counter(), **options)
    assert not folder.joinpath("ingresses.json").exists()
    return caught.value.message


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda spark: spark.sql("select 'a' as id, 1 as cuont"),
            "function t.fns/counter declares no value for the column cuont; did you mean count?",
        ),
        (
            lambda spark: spark.sql("select 7 as id, 1 as count"),
            "t.fns/counter must have a column id of type string, but has the columns id int, count int",
        ),
        (
            lambda spark: spark.sql("select cast(null as string) as id, 1 as count"),
            "function t.fns/counter: a row has no id; nothing was written",
        ),
        (
            lambda spark: spark.sql("select '' as id, 1 as count"),
            "function t.fns/counter: a row has an empty id; nothing was written",
        ),
        (
            lambda spark: spark.sql("select 'a' as id, 1 as count union all select 'a', 2"),
            "t.fns/counter/a occurs in 2 rows; nothing was written",
        ),
        (
            lambda spark: spark.sql("select 'a' as id, 5000000000 as count"),
            "the value count of t.fns/counter/a does not fit its type: ",
        ),
        (
            lambda spark: spark.sql("select 'a' as id, 1 as count, 'b' as undecoded"),
            (
                "the column undecoded of the DataFrame of function t.fns/counter must have the type that statefun.state() "
                "gives it, map<string,struct<typename:string,value:binary,reason:string>>, but has the type string; "
            ),
        ),
        (
            lambda spark: spark.sql(
                "select 'a' as id, map('gone', named_struct('typename', 't/t', 'value', X'00', 'reason', 'r')) as undecoded"
            ),
            (
                "the value gone of t.fns/counter/a cannot be taken from the column undecoded: the function does not declare "
                "it; nothing was written"
            ),
        ),
        (
            lambda spark: spark.sql("select 'a' as id, named_struct('y', 1) as point"),
            "the value point of t.fns/counter/a does not fit its type: ValidationError: ",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    spark: SparkSession, tmp_path: Path, make: Callable[[SparkSession], DataFrame], expected: str
) -> None:
    """The error names the function and the id or column; the same call with better rows goes through."""
    folder = tmp_path / "checkpoint"

    assert expected in refused(spark, folder, make(spark))
    assert not folder.joinpath("commits").exists()


PROGRAM = """
import sys
import statefun
from statefun import IntType, StatefulFunctions, ValueSpec
from statefun.runtime.spark.session import open_session

functions = StatefulFunctions()
functions.bind("t.fns/counter", [ValueSpec("count", IntType)])(lambda ctx, message: None)
spark = open_session(debug=False, state_partitions=None, kafka=False)
frame = spark.range(200000).selectExpr("cast(id as string) as id", "cast(id as int) as count")
statefun.bootstrap(spark, sys.argv[1], {"t.fns/counter": frame}, functions=functions)
"""


@pytest.mark.long(minutes=0.5)
def test_a_killed_bootstrap_is_refused_everywhere(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it has written by then; after the folder is deleted, it can be repeated."""
    folder, empty = tmp_path / "checkpoint", tmp_path / "early"
    root = str(Path(statefun.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        env={**os.environ, "PYTHONPATH": root},
        start_new_session=True,  # with its JVM and workers
    )
    try:
        wait(lambda: (folder / "commits").exists() or process.poll() is not None)
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    empty.mkdir()
    (empty / "incomplete").touch()

    for killed in (folder, empty):
        assert not (killed / "ingresses.json").exists()
        sentence = (
            f"checkpoint {killed} is not complete: statefun.bootstrap() or 'statefun state import' was interrupted "
            "while making it; delete the folder, and repeat that"
        )
        frame = spark.sql("select 'a' as id, 1 as count")
        with pytest.raises(CheckpointError) as again:
            statefun.bootstrap(spark, killed, {"t.fns/counter": frame}, functions=counter())
        assert again.value.message == sentence
        with pytest.raises(CheckpointError) as start:
            prepare(Module(), Settings.resolve({}, None, checkpoint=killed))
        assert start.value.message == sentence
        target = str(tmp_path / "target")
        for command in (
            ["state", "count", "--checkpoint", str(killed)],
            ["du", str(killed)],
            ["snapshot", str(killed), target],
            ["state", "export", str(killed), str(tmp_path / "file.parquet")],
        ):
            assert main(command) == 1
            assert capsys.readouterr().err == f"statefun: [SF600] {sentence}\n"
    shutil.rmtree(folder)
    statefun.bootstrap(spark, folder, {"t.fns/counter": frame}, functions=counter())
    assert [*stored(folder)] == ["t.fns/counter/a"]
    assert not (folder / "incomplete").exists()


def test_what_else_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A folder with files, an unknown function, and offsets that are none."""
    frame = spark.sql("select 'a' as id, 1 as count")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "metadata").write_text("{}")

    used = refused(spark, tmp_path / "used", frame)
    unknown = refused(spark, tmp_path / "new", frame, typename="t.fns/cuonter")
    offset = refused(spark, tmp_path / "new", frame, offsets={"t/in": {"in": {0: -1}}})

    assert used.endswith("has files: give an empty folder, or one that does not exist")
    assert unknown == "no function t.fns/cuonter is registered; did you mean t.fns/counter?"
    assert offset == (
        "the offset of ingress t/in, topic in, partition 0 must be a whole number, at least 0, but is -1"
    )
    assert not (tmp_path / "new").exists()
