# SPDX-License-Identifier: Apache-2.0
"""The state of a function as a DataFrame: on the checkpoint of a real application, in any session."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

import pytest
import state_application
from pyspark.sql import SparkSession
from state_application import BATCHES, COUNTER, EVERYTHING, counts
from stored_checkpoint import CHECKPOINTS

import statefun
from statefun import CheckpointError, ConfigurationError, StatefulFunctions
from statefun.cli import main
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT
from statefun.runtime.checkpoint.known_functions import KnownFunctions, write_functions
from statefun.runtime.spark.session import open_session
from statefun.sdk.structured import StructuredType

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Return a session without any settings of statefun."""
    return open_session(debug=False, state_partitions=None, kafka=False).newSession()


@pytest.mark.long(minutes=0.8)
def test_counts_are_those_of_the_commands(spark: SparkSession, real: Path) -> None:
    """As of the newest batch and of an older one; without the program, as the values are numbers."""
    newest = statefun.state(spark, real, COUNTER, functions=StatefulFunctions())
    older = statefun.state(spark, str(real), COUNTER, at_batch=3)

    assert newest.dtypes[:2] == [("id", "string"), ("count", "int")]
    assert {row.id: row["count"] for row in newest.collect()} == counts(BATCHES - 1)
    assert {row.id: row["count"] for row in older.collect()} == counts(3)
    assert newest.count() == len(counts(BATCHES - 1))
    assert {row.undecoded for row in newest.collect()} == {None}


def test_values_of_all_types_have_typed_columns(spark: SparkSession, real: Path) -> None:
    """Primitive types, JSON and MessagePack of classes, Avro, Protobuf; JSON of anything is text, others bytes."""
    frame = statefun.state(spark, real, EVERYTHING, functions=state_application.functions())
    (row,) = frame.collect()

    assert dict(frame.dtypes) == {
        "id": "string",
        "flag": "boolean",
        "number": "int",
        "big": "bigint",
        "ratio": "double",
        "name": "string",
        "order": "struct<lines:array<struct<item:string,count:bigint>>,placed:timestamp>",
        "note": "struct<text:string,tags:map<string,bigint>>",
        "profile": "struct<name:string,age:bigint>",
        "reading": "struct<sensor:string,values:array<double>,comment:string>",
        "span": "struct<seconds:bigint,nanos:int>",
        "anything": "string",
        "secret": "binary",
        "undecoded": "map<string,struct<typename:string,value:binary,reason:string>>",
    }
    values = row.asDict(recursive=True)
    placed = values["order"].pop("placed")
    assert isinstance(placed, datetime)
    assert placed.timestamp() == state_application.MADE.timestamp()
    assert values == {
        "id": "Ada",
        "flag": True,
        "number": 7,
        "big": 1 << 40,
        "ratio": 0.5,
        "name": "Ada",
        "order": {"lines": [{"item": "pen", "count": 1}, {"item": "ink", "count": 2}]},
        "note": {"text": "read", "tags": {"a": 1}},
        "profile": {"name": "Ada", "age": None},
        "reading": {"sensor": "s1", "values": [1.0, 2.5], "comment": None},
        "span": {"seconds": 90, "nanos": 5},
        "anything": '{"free":[1,null,"x"]}',
        "secret": b"\3\4",
        "undecoded": None,
    }


def test_values_that_do_not_decode_have_a_reason(spark: SparkSession, real: Path) -> None:
    """Values of another type and malformed values: their bytes are shown; other values are decoded."""
    changed = StatefulFunctions()
    specs = [
        statefun.ValueSpec("flag", statefun.StringType),
        statefun.ValueSpec("order", StructuredType("test.state/Order", list[int])),
    ]
    changed.bind(EVERYTHING, specs)(lambda context, message: None)
    (row,) = statefun.state(spark, real, EVERYTHING, functions=changed).collect()

    assert row.flag is None
    assert row.number == 7, "an earlier start has declared it"
    assert row.undecoded["flag"].reason == (
        "it is stored as io.statefun.types/bool, and declared as io.statefun.types/string"
    )
    assert row.undecoded["order"].reason.startswith("it does not decode as test.state/Order: ")
    assert bytes(row.undecoded["order"].value).startswith(b'{"lines":')


def test_values_that_nobody_declares_are_found(spark: SparkSession, real: Path) -> None:
    """The names and primitive types of values are read from the state, as for functions elsewhere."""
    (real / "functions.json").rename(real / "functions.away")
    try:
        other = StatefulFunctions()
        other.bind(COUNTER)(lambda context, message: None)
        frame = statefun.state(spark, real, COUNTER, functions=other)
        assert frame.dtypes[:2] == [("id", "string"), ("count", "int")]
        assert {row.id: row["count"] for row in frame.collect()} == counts(BATCHES - 1)
    finally:
        (real / "functions.away").rename(real / "functions.json")


def test_bad_input_is_one_sentence(spark: SparkSession, real: Path, tmp_path: Path) -> None:
    """An unknown function, a batch that is not there, and a folder without a checkpoint."""
    with pytest.raises(
        ConfigurationError, match=r"has no function test\.state/conter; did you mean"
    ):
        statefun.state(spark, real, "test.state/conter")
    with pytest.raises(CheckpointError, match="batch 99 is not committed yet"):
        statefun.state(spark, real, COUNTER, at_batch=99)
    with pytest.raises(ConfigurationError, match="there is no checkpoint at"):
        statefun.state(spark, tmp_path, COUNTER)


def test_a_function_for_which_a_namespace_stands_has_a_state(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Functions behind an endpoint may be declared as ``namespace/*``; each one with state is a table."""
    stored = shutil.copytree(CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}", tmp_path / "stored")
    write_functions(Folder.at(stored), KnownFunctions(frozenset({"test.fns/*"})))

    frame = statefun.state(spark, stored, "test.fns/account", functions=StatefulFunctions())

    assert [row.asDict() for row in frame.collect()] == [
        {"id": "Ada", "note": "reminded", "total": 2, "undecoded": None}
    ]
    query = "select total, note from `test.fns/account`"
    assert main(["state", "sql", query, "--checkpoint", str(stored)]) == 0
    assert capsys.readouterr().out == "total  note\n2      reminded\n1 row from batch 2\n"
    with pytest.raises(ConfigurationError, match=r"has no function other\.fns/account"):
        statefun.state(spark, stored, "other.fns/account", functions=StatefulFunctions())
