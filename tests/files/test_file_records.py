# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun import Context, FunctionError, Message, StatefulFunctions
from statefun.engine.clock import BatchClock, SystemClock
from statefun.engine.program import Program
from statefun.engine.sending import Sender
from statefun.files.file_records import OWN_FOLDER, line_record, row_record
from statefun.files.rows import ParquetColumns
from statefun.module.loader import load_module_files
from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError
from statefun.sdk.types import TypedValue
from statefun.testing import InProcessApplication

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just("\ud800")),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
)


def message(value: bytes) -> EgressMessage:
    """Return a message with a value of a JSON type."""
    return EgressMessage("a/b", TypedValue("a/T", value))


@pytest.mark.parametrize(
    "value",
    [
        b'{"price":12345678901234567.89}',
        b'{"n":1e400, "n": 2}',
        b'{"n":' + b"9" * 5000 + b"}",
        '{"name": "Äda\\u2028", "half": "\\ud800"}'.encode(),
        b'{"a":' * 100 + b"1" + b"}" * 100,
        b'{"text": "' + b"{" * 1000 + b'"}',
    ],
)
def test_lines_are_the_bytes_that_were_sent(value: bytes) -> None:
    """Numbers, fields that occur twice and blanks stay as they are."""
    assert line_record(message(value)).value == value


def test_line_breaks_are_blanks() -> None:
    """Line breaks between the parts of a JSON value become blanks; strings have none."""
    assert line_record(message(b'\n{\r\n  "name": "a\\nb" }\n')).value == b'{    "name": "a\\nb" }'


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "Expecting value"),
        (b"[1]", "the value is a list"),
        (b"\x08\x01", "Expecting value"),
        (b'{"n": NaN}', "NaN is not a number of JSON"),
        (b'{"n": -Infinity}', "-Infinity is not a number of JSON"),
        (b'{"name": "\xff"}', "can't decode byte 0xff"),
        ('{"name": "Ada"}'.encode("utf-16"), "can't decode byte 0xff"),
        (b'\xef\xbb\xbf{"name": "Ada"}', "BOM"),
        (b'{"name": "a\nb"}', "Invalid control character"),
        (b'{"n": 1}{"n": 2}', "Extra data"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "nested more than 100 deep"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion|nested"),
    ],
)
def test_what_is_no_json_object_is_refused(value: bytes, reason: str) -> None:
    """The error is raised when the record is sent, and has the reason."""
    with pytest.raises(DefinitionError, match=rf"a/b must be a JSON object, but .*({reason})"):
        line_record(message(value))


@given(st.one_of(st.binary(), JSON.map(lambda value: json.dumps(value).encode())))
def test_each_line_is_one_object(value: bytes) -> None:
    """Each accepted record is a line of UTF-8 with one JSON object, whatever is sent."""
    try:
        line = line_record(message(value)).value
    except DefinitionError:
        return
    assert line is not None
    text = line.decode()
    assert isinstance(json.loads(text, parse_constant=pytest.fail), dict)
    assert not {"\r", "\n"} & set(text)
    assert b"".join(line.split()) == b"".join(value.split())


def test_rows_fit_their_columns() -> None:
    """Rows that do not fit are refused; the error names the column."""
    columns = ParquetColumns(pa.schema([("n", pa.int64())]))

    assert row_record(columns, message(b'{"n": 1}')).value == b'{"n": 1}'
    for value, reason in (
        (b'{"n": 1.5}', "column n must have values of type bigint, not 1.5"),
        (b"[1]", "not"),
        (b'{"n": 1e99999999999999999999}', "not"),
        (b'{"n":' * 100_000, "RecursionError|recursion"),
    ):
        with pytest.raises(DefinitionError, match=rf"fits the schema, but .*({reason})"):
            row_record(columns, message(value))


def test_topics_are_folders() -> None:
    """So are the topics of records from functions behind endpoints; other messages have no topic."""
    sent = KafkaEgressMessage("a/b", topic="records", key="k", value="{}")

    for each in (sent, EgressMessage("a/b", sent.typed_value)):
        assert (line_record(each).topic, line_record(each).value) == ("records", b"{}")
    assert line_record(message(b"{}")).topic == OWN_FOLDER


@pytest.mark.parametrize("topic", ["_x", ".x", OWN_FOLDER, "a.jsonl", "a.parquet"])
def test_topics_that_readers_of_folders_leave_out_are_refused(topic: str) -> None:
    """So are topics that end as names of files do."""
    sent = KafkaEgressMessage("a/b", topic=topic, value="{}")

    with pytest.raises(DefinitionError, match=f"a/b: topic {topic} cannot name a folder"):
        line_record(sent)


FILES = """\
kind: io.statefun.file.v1/egress
spec: {id: test/lines, folder: OWN_FOLDER, format: json-lines}
---
kind: io.statefun.file.v1/egress
spec:
  id: test/rows
  folder: OWN_FOLDER
  format: parquet
  schema:
    n: bigint
"""


@pytest.mark.parametrize(
    ("egress", "topic", "value", "cure"),
    [
        ("lines", "out", b"no JSON", "send a value of a JSON type, such as of a dataclass"),
        ("lines", "out", b'{"n": NaN}', "send a value of a JSON type, such as of a dataclass"),
        ("lines", "out", b'{"n":' * 101 + b"1" + b"}" * 101, "send a value that is nested less"),
        ("lines", "out", b'{"n": "' + b"a" * 2**20 + b'"}', "send less"),
        ("lines", "_out", b'{"n": 1}', "choose another topic"),
        ("rows", "out", b'{"n": "one"}', "send a value that fits, or change the schema"),
    ],
)
def test_records_are_refused_on_both_ways(
    tmp_path: Path, egress: str, topic: str, value: bytes, cure: str
) -> None:
    """Bad records are refused when they are sent, in a test's process and in a task; others are not."""
    file = tmp_path / "module.yaml"
    file.write_text(FILES.replace("OWN_FOLDER", str(tmp_path)))
    functions = StatefulFunctions()

    @functions.bind("test/f")
    def send(context: Context, message: Message) -> None:
        del message
        context.send(KafkaEgressMessage(f"test/{egress}", topic="out", value=b'{"n": 1}'))
        if context.address.id == "bad":
            context.send(KafkaEgressMessage(f"test/{egress}", topic=topic, value=value))

    app = InProcessApplication(functions=functions, module=file)
    sender = Sender(
        Program.of(functions, load_module_files([file])), BatchClock(SystemClock(), 0), count()
    )
    app.send("test/f", "good", 1)
    app.send("test/f", "bad", 1)

    with pytest.raises(FunctionError, match=f"a record for egress test/{egress}.*{cure}"):
        app.drain()
    with pytest.raises(DefinitionError, match=f"a record for egress test/{egress}.*{cure}"):
        sender.check(KafkaEgressMessage(f"test/{egress}", topic=topic, value=value))
