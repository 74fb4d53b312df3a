# SPDX-License-Identifier: Apache-2.0
"""Each transform does what Kafka Connect's own does, on generated records."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import pytest
from connect_process import ConnectProcess
from connect_records import names, records, texts
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from statefun.module.kinds.transforms import PREFIX, transform
from statefun.module.location import Location
from statefun.module.yaml.nodes import Entry, MapNode, ScalarNode
from statefun.module.yaml.problems import Problems
from statefun.transforms.connect_json import (
    json_of_schema,
    json_of_value,
    schema_of_json,
    value_of_json,
)
from statefun.transforms.data import LOGICAL, Data, Schema, TransformError
from statefun.transforms.java_numbers import single
from statefun.transforms.transform import Record, Transform

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("javac") is None, reason="it needs java and javac"
)

_LISTS = st.lists(names, unique=True, min_size=1, max_size=3).map(",".join)
_FLAGS = st.sampled_from(("true", "false"))
_KINDS = st.sampled_from(
    ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
)
_INSERTED = st.builds("{}{}".format, names | st.just("new"), st.sampled_from(("", "!", "?")))
_PATTERNS = st.sampled_from(
    ("yyyy-MM-dd", "yyyyMMdd", "yyyy-MM-dd'T'HH:mm:ss.SSSX", "d MMM yyyy h:mm a", "yy/M/d", "D y E")
)


def _options(
    required: Mapping[str, st.SearchStrategy[str]], optional: Mapping[str, st.SearchStrategy[str]]
) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({**required}, optional={**optional})


OPTIONS = {
    "ReplaceField": _options(
        {},
        {
            "exclude": _LISTS,
            "include": _LISTS,
            "renames": st.sampled_from(("a:x", "a:x,b:y", "a:b", "c:a,a:c")),
            "replace.null.with.default": _FLAGS,
        },
    ),
    "MaskField": _options(
        {"fields": _LISTS},
        {
            "replacement": st.sampled_from(("***", "7", "-1.5", "1e2", "300")),
            "replace.null.with.default": _FLAGS,
        },
    ),
    "HoistField": _options({"field": names}, {}),
    "ExtractField": _options(
        {"field": names | st.sampled_from(("a.b", "b.`d.e`", "a.b.c"))},
        {
            "field.syntax.version": st.sampled_from(("V1", "V2")),
            "replace.null.with.default": _FLAGS,
        },
    ),
    "SetSchemaMetadata": _options(
        {"schema.name": st.sampled_from(("com.example.Renamed", "x"))},
        {"schema.version": st.sampled_from(("1", "5")), "replace.null.with.default": _FLAGS},
    ),
    "Flatten": _options({}, {"delimiter": st.sampled_from((".", "_", "--"))}),
    "Cast": _options(
        {
            "spec": _KINDS
            | st.dictionaries(names, _KINDS, min_size=1, max_size=3).map(
                lambda casts: ",".join(f"{name}:{kind}" for name, kind in casts.items())
            )
        },
        {"replace.null.with.default": _FLAGS},
    ),
    "TimestampConverter": _options(
        {
            "target.type": st.sampled_from(("string", "unix", "Date", "Time", "Timestamp")),
            "format": _PATTERNS,
        },
        {
            "field": names,
            "unix.precision": st.sampled_from(
                ("seconds", "milliseconds", "microseconds", "nanoseconds")
            ),
            "replace.null.with.default": _FLAGS,
        },
    ),
    "InsertField": _options(
        {"static.field": _INSERTED, "static.value": texts.filter(str.strip)},
        {
            "topic.field": _INSERTED,
            "partition.field": _INSERTED,
            "offset.field": _INSERTED,
            "timestamp.field": _INSERTED,
            "replace.null.with.default": _FLAGS,
        },
    ),
    "ValueToKey": _options({"fields": _LISTS}, {"replace.null.with.default": _FLAGS}),
    "TimestampRouter": _options(
        {},
        {
            "topic.format": st.sampled_from(
                ("${topic}-${timestamp}", "x.${timestamp}", "${topic}${topic}")
            ),
            "timestamp.format": _PATTERNS,
        },
    ),
    "RegexRouter": st.sampled_from(
        (
            {"regex": ".*", "replacement": r"a\$1\\$0"},
            {"regex": "(.*)-v([0-9]+)", "replacement": "$2$1"},
            {"regex": "users|users-v2", "replacement": "b"},
            {"regex": "(u)(s).*", "replacement": "$10-$20x"},
            {"regex": "(a)?(.*)", "replacement": "$1$2"},
            {"regex": "(?<first>.)(.*)", "replacement": "${first}-$2"},
            {"regex": r"[(?<uU]+(.*?)\(?<?", "replacement": "$1"},
        )
    ),
}
_GREGORIAN = -12_219_292_800
"""When the Gregorian calendar began, in seconds since the epoch."""
_NEGATIVE = re.compile(r"-\d+")
FOR_PARTS = set(OPTIONS) - {"ValueToKey", "TimestampRouter", "RegexRouter"}


@pytest.fixture(scope="module")
def connect() -> Iterator[ConnectProcess]:
    """Return Connect's transforms."""
    with ConnectProcess() as process:
        yield process


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(drawn=st.data())
@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_transforms_give_the_results_of_connect(
    connect: ConnectProcess, name: str, drawn: st.DataObject
) -> None:
    """Both return the same record, or both refuse it."""
    options = drawn.draw(OPTIONS[name])
    part = drawn.draw(st.sampled_from(("$Key", "$Value"))) if name in FOR_PARTS else ""
    record = drawn.draw(records)
    asked = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _json(record.key),
        "value": _json(record.value),
    }
    # Java's dates before that are Julian ones.
    old = [number for number in _NEGATIVE.findall(str(asked)) if int(number) < _GREGORIAN]
    assume(not (name == "TimestampConverter" and old))
    transforms = [(name + part, options)]
    if name == "TimestampConverter" and drawn.draw(st.booleans()):
        # Connect does not write dates without a schema: numbers have to follow them.
        transforms.append((name + part, options | {"target.type": "unix"}))
    theirs = connect.apply([(PREFIX + type_, options) for type_, options in transforms], asked)
    ours = _ours(transforms, record)
    for each in (record.key, record.value):
        # Connect keeps the name of such a schema, and refuses the value for it.
        assume(not (name == "Cast" and each.schema is not None and each.schema.name in LOGICAL))
        # Connect gives a field that has the new name of another one the other's value.
        assume(not (each.schema is not None and _new_names(options) & {*dict(each.schema.fields)}))
    if isinstance(ours, str):
        # Java knows more years, and takes a sign for a part of a number in a text without separators.
        assume("the year must be from 1 to 9999" not in ours)
        assume("does not match the pattern yyyyMMdd" not in ours)
        assert "error" in theirs, ours
        return
    assume(not _has_infinity(ours.key.value) and not _has_infinity(ours.value.value))
    try:
        written = [_json(ours.key), _json(ours.value)]
    except TransformError:
        written = []
    if not written:
        assert "error" in theirs, ours
        return
    # Connect's own mask of a decimal number has no decimals, which its schema refuses.
    assume("mismatching scale" not in theirs.get("error", ""))
    assume("class java.util.Date does not have" not in theirs.get("error", ""))
    assert "error" not in theirs, theirs
    assert ours.topic == theirs["topic"]
    is_single = "float32" in str(options)
    assert [_same(each, is_single=is_single) for each in written] == [
        _same(theirs[part], is_single=is_single) for part in ("key", "value")
    ]


def _new_names(options: Mapping[str, str]) -> set[str]:
    return {pair.partition(":")[2] for pair in options.get("renames", "").split(",")}


def _ours(transforms: Sequence[tuple[str, Mapping[str, str]]], record: Record) -> Record | str:
    """Return what becomes of a record, or the error."""
    problems = Problems()
    changed = attrs.evolve(record)
    for type_, options in transforms:
        made = _transform(type_, options, problems)
        if made is None:
            return str(problems.in_file_order(["options"]))
        try:
            made.apply(changed)
        except TransformError as error:
            return str(error)
    return changed


def _transform(type_: str, options: Mapping[str, str], problems: Problems) -> Transform | None:
    here = Location("options", 1, 1)
    entries = [
        Entry(ScalarNode(here, name, name, name), ScalarNode(here, name, value, value))
        for name, value in ({"type": type_} | dict(options)).items()
    ]
    try:
        return transform(MapNode(here, "", tuple(entries)), problems)
    except Exception:
        if not problems.in_file_order(["options"]):
            raise
        return None


def _json(data: Data) -> dict[str, Any]:
    return {
        "schema": json_of_schema(data.schema),
        "payload": json_of_value(data.schema, data.value),
    }


def _same(content: dict[str, Any] | None, *, is_single: bool) -> Any:
    """Return what compares: 1 and 1.0 and true are equal in Python.

    Java 17 does not always write the fewest digits of a float of 32 bits.
    """
    if content is None:
        return (None, repr(None))
    schema = schema_of_json(content["schema"])
    if schema is None:
        return (None, repr(_sorted(content["payload"], is_single=is_single)))
    return (schema, value_of_json(_without_defaults(schema), content["payload"]))


def _without_defaults(schema: Schema) -> Schema:
    """Return a schema whose null is not replaced."""
    return attrs.evolve(
        schema,
        is_optional=True,
        default=None,
        fields=tuple(
            each._replace(schema=_without_defaults(each.schema)) for each in schema.fields
        ),
        items=schema.items and _without_defaults(schema.items),
    )


def _sorted(value: Any, *, is_single: bool) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name], is_single=is_single) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(each, is_single=is_single) for each in value]
    return single(value) if is_single and isinstance(value, float) else value


def _has_infinity(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_infinity, value.values()))
    if isinstance(value, list):
        return any(map(_has_infinity, value))
    return isinstance(value, float) and not math.isfinite(value)
