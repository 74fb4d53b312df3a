# SPDX-License-Identifier: Apache-2.0
"""Malformed bytes from outside cause documented errors at worst.

A few hundred cases for each test; ``make fuzz`` tries a million.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from statefun import (
    BoolType,
    CheckpointError,
    DefinitionError,
    DoubleType,
    FloatType,
    IntType,
    KafkaEgressMessage,
    LongType,
    Message,
    ModuleError,
    StringType,
    Type,
    TypedValue,
    ValueDecodeError,
)
from statefun.engine.address_values import AddressValues
from statefun.engine.effects import EffectRows
from statefun.engine.sinks import EgressRecord
from statefun.module.loader import parse_module
from statefun.protocol.runtime_pb2 import AddressState, EffectStream, Manifest, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import write_framed
from statefun.runtime.checkpoint.outbox import MANIFEST, Outbox, effect_stream
from statefun.runtime.letters.dead_letter import DeadLetter
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, arrow_stream, read_egress_records
from statefun.sdk.egress import KAFKA_RECORD_TYPENAME
from statefun.sdk.encoding import typed

CASES = int(os.environ.get("STATEFUN_FUZZ_CASES", "300"))
fuzzed = settings(
    max_examples=CASES,
    phases=[Phase.generate],
    database=None,
    deadline=None,
    derandomize=False,  # else it would try the same cases each night where CI is set
    suppress_health_check=list(HealthCheck),
)

Edit = tuple[float, int, bytes]


def mutated(*corpus: bytes) -> st.SearchStrategy[bytes]:
    """Bytes that are almost right, or not at all."""

    def edit(original: bytes, edits: Sequence[Edit]) -> bytes:
        content = bytearray(original)
        for where, length, new in edits:
            start = int(where * (len(content) + 1))
            content[start : start + length] = new
        return bytes(content)

    edits = st.tuples(st.floats(0, 1), st.integers(0, 4), st.binary(max_size=4))
    almost = st.builds(edit, st.sampled_from(corpus), st.lists(edits, min_size=1, max_size=4))
    return almost | st.binary(max_size=64)


PRIMITIVES: list[tuple[Type[Any], Any]] = [
    (BoolType, True),
    (IntType, -7),
    (LongType, 2**60),
    (FloatType, 0.5),
    (DoubleType, 1e300),
    (StringType, "Ada"),
]


@fuzzed
@given(
    st.sampled_from([type_ for type_, _ in PRIMITIVES]),
    mutated(*(typed(value, type_).value for type_, value in PRIMITIVES)),
)
def test_values_on_the_wire(type_: Type[Any], content: bytes) -> None:
    """A primitive value decodes as its type or is a ValueDecodeError."""
    message = Message("a/b", "c", TypedValue(type_.typename, content))
    with contextlib.suppress(ValueDecodeError):
        message.as_type(type_)


RECORD = KafkaEgressMessage("a/b", topic="topic", key="key", value=b"value").typed_value.value


@fuzzed
@given(mutated(RECORD))
def test_egress_records_on_the_wire(content: bytes) -> None:
    """A record for Kafka decodes or is a DefinitionError."""
    with contextlib.suppress(DefinitionError):
        KafkaEgressMessage.from_typed_value("a/b", TypedValue(KAFKA_RECORD_TYPENAME, content))


DOCUMENTS = [
    path.read_bytes()
    for path in sorted((Path(__file__).parent / "module" / "documents").rglob("*"))
    if path.is_file()
]


@fuzzed
@given(mutated(*DOCUMENTS))
def test_module_files(content: bytes) -> None:
    """A module file is read, or has problems with places."""
    try:
        parse_module(content.decode(errors="replace"))
    except ModuleError as error:
        problems = error.problems
        assert problems


STATE = AddressState(
    values=[AddressState.Value(name="a", typename="t/a", value=b"1", expires=7)],
    wake=[7],
    crowded=3,
).SerializeToString()


@fuzzed
@given(mutated(STATE))
def test_stored_state(content: bytes) -> None:
    """A stored state is read, and written again, or is a CheckpointError."""
    with contextlib.suppress(CheckpointError):
        AddressValues(content).encoded()


def _manifest() -> Manifest:
    stream = EffectStream(content=b"content", records=3)
    segment = Segment(partition=1, egress={"a/b": stream}, messages=stream, buckets=[1, 2])
    return Manifest(batch=7, query_id="query", run_id="run", lanes=2, segments=[segment])


@fuzzed
@given(content=mutated(_manifest().SerializeToString()))
def test_manifests(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """A manifest is read, or is a CheckpointError."""
    checkpoint = Folder.at(tmp_path_factory.getbasetemp() / "fuzz")
    write_framed(checkpoint, f"outbox/7/{MANIFEST}", content)
    with contextlib.suppress(CheckpointError):
        Outbox(checkpoint).manifest(7)


def _effects() -> bytes:
    rows = EffectRows()
    rows.append(EgressRecord("topic", b"key", b"value", [("a", b"1"), ("b", None)], 1, 2))
    rows.append(EgressRecord("topic", None, None, None))
    return arrow_stream(rows.take(), EGRESS_SCHEMA)


@fuzzed
@given(content=mutated(_effects()))
def test_staged_effects(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Staged records are read as they were staged, or are a CheckpointError."""
    outbox = Outbox(Folder.at(tmp_path_factory.getbasetemp() / "fuzz"))
    staged = effect_stream(_effects(), 2, "1.arrow")
    outbox.batch_folder(8).write("1.arrow", content)
    with contextlib.suppress(CheckpointError):
        assert [record.key for record in read_egress_records(outbox.open(8, staged))] == [
            b"key",
            None,
        ]


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["statefun-time", "statefun-target", "statefun-", "x"]) | st.text(),
        st.none() | st.binary() | st.text() | st.integers().map(str),
    )
)


@fuzzed
@given(st.none() | st.binary(), st.none() | st.binary(), HEADERS)
def test_headers_of_dead_letters(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, str | bytes | None]]
) -> None:
    """Any record in the dead-letter topic can be listed."""
    letter = DeadLetter.of(0, 1, key, value, headers)

    assert letter.time.year >= 1
    assert all(isinstance(text, str) for text in letter.facts.values())
