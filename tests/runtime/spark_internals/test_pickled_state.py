# SPDX-License-Identifier: Apache-2.0
"""Rows that Spark's own pickler has written, with Java's usual identity hash codes and with equal ones."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from statefun.runtime.spark_internals.class_path import spark_jars_folder
from statefun.runtime.spark_internals.pickled_state import unpickled
from statefun.sdk.errors import CheckpointError

pytestmark = pytest.mark.spark
VALUES = (b"", b"state", bytes(range(256)) * 3, b"latin-1", b"q\x05" * 7)
EQUAL_HASH_CODES = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")


def rows_of(values: Sequence[bytes], options: Sequence[str]) -> list[bytes]:
    """Let Spark's classes pickle a row of each value, in a JVM with these options."""
    port = launch_gateway(
        classpath=str(spark_jars_folder() / "*"), javaopts=[*options], die_on_exit=True
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        sql = gateway.jvm.org.apache.spark.sql
        sql.execution.python.EvaluatePython.registerPicklers()
        schema = sql.types.StructType.fromDDL("state BINARY")
        rows = []
        for value in values:
            columns = gateway.new_array(gateway.jvm.java.lang.Object, 1)
            columns[0] = value
            row = sql.catalyst.expressions.GenericRowWithSchema(columns, schema)
            rows.append(bytes(sql.api.python.PythonSQLUtils.toPyRow(row)))
        return rows
    finally:
        gateway.shutdown()


@pytest.fixture(scope="module")
def usual_rows() -> list[bytes]:
    """The rows of all values."""
    return rows_of(VALUES, ())


def test_usual_rows(usual_rows: list[bytes]) -> None:
    """Nearly all rows memorize each of their objects."""
    assert list(map(unpickled, usual_rows)) == [*VALUES]


def test_rows_whose_objects_have_equal_hash_codes() -> None:
    """Spark's pickler memorizes one object of a hash code; it happens by chance to one row of some 100 million."""
    rows = rows_of(VALUES, EQUAL_HASH_CODES)

    assert list(map(unpickled, rows)) == [*VALUES]
    assert [pickle.loads(row)[0] for row in rows] == [*VALUES]


@given(data=st.data())
def test_rows_in_which_some_objects_are_not_memorized(
    data: st.DataObject, usual_rows: list[bytes]
) -> None:
    """Whichever they are, the result is Python's own; a row that lacks anything else is refused."""
    number = data.draw(st.integers(0, len(VALUES) - 1))
    row = usual_rows[number]
    parts = re.fullmatch(rb"(.*bytearray\nX....)(.*)(q\x03X.*)", row, re.DOTALL)
    assert parts is not None
    before, text, after = parts.groups()
    memorized = re.findall(rb"q.|[^q]+|q", after, re.DOTALL)
    kept = [
        part for part in memorized if len(part) != 2 or part[:1] != b"q" or data.draw(st.booleans())
    ]
    changed = before + text + b"".join(kept)

    assert unpickled(changed) == VALUES[number] == pickle.loads(changed)[0]
    with pytest.raises(CheckpointError, match=r"\[SF600\] a stored state does not have the form"):
        unpickled(before + text + b"".join(kept[:-1]))


@pytest.mark.parametrize("text", [b"\xff\xfe", "\u0100".encode()])
def test_a_text_that_no_bytes_have_is_refused(usual_rows: list[bytes], text: bytes) -> None:
    """It is not UTF-8, or has a character that stands for no byte."""
    place = b"bytearray\nX\x05\x00\x00\x00state"
    changed = usual_rows[1].replace(place, b"bytearray\nX\x02\x00\x00\x00" + text)

    assert changed != usual_rows[1]
    with pytest.raises(CheckpointError, match=r"\[SF600\] a stored state does not have the form"):
        unpickled(changed)
