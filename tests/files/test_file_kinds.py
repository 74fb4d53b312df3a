# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
from datetime import timedelta

import pyarrow as pa
import pytest

from statefun.files.file_settings import EgressFiles, FileFormat, IngressFiles, OnChange
from statefun.module.loader import parse_module
from statefun.sdk.errors import ModuleError

INGRESS = """\
kind: io.statefun.file.v1/ingress
spec:
  id: a/b
  files: [{path: in, format: {type: csv, idField: name}, valueType: a/T, targets: [a/f]}]
"""
EGRESS = "kind: io.statefun.file.v1/egress\nspec:\n  id: a/b\n  folder: out\n"
PARQUET = EGRESS + "  format: parquet\n"


def test_ingresses_are_read() -> None:
    """Paths are relative to the module file; URIs stay as they are."""
    text = INGRESS.replace("path: in", "path: s3://bucket/in/*.csv") + "  onChange: go-on\n"
    [relative] = parse_module(INGRESS, "/data/m.yaml").connector_ingresses
    [uri] = parse_module(text, "/data/m.yaml").connector_ingresses

    settings: IngressFiles = relative.settings
    others: IngressFiles = uri.settings
    assert [route.topic for route in relative.topics] == list(settings.files) == ["/data/in"]
    assert settings.files["/data/in"].format is FileFormat.CSV
    assert (settings.files["/data/in"].id_field, settings.on_change) == ("name", OnChange.FAIL)
    assert (list(others.files), others.on_change) == (["s3://bucket/in/*.csv"], OnChange.GO_ON)


def test_egresses_are_read() -> None:
    """Egresses write JSON lines unless the module file names another format, exactly once."""
    more = "  rollEvery: 15 min\n  rollSize: 1000\n"
    [plain] = parse_module(EGRESS, "/data/m.yaml").connector_egresses
    [other] = parse_module(EGRESS + more, "/data/m.yaml").connector_egresses

    assert plain.settings == EgressFiles("egress a/b", "/data/out")
    assert (plain.settings.roll_every, plain.settings.roll_size) == (timedelta(minutes=1), 2**26)
    assert (other.settings.roll_every, other.settings.roll_size) == (timedelta(minutes=15), 1000)
    assert (plain.address, plain.is_exactly_once) == ("/data/out", True)


def test_schemas_are_read() -> None:
    """Schemas may have all types, lists and objects."""
    schema = "{a: string, b: boolean, c: int, d: bigint, e: double, f: date, g: timestamp, "
    schema += "h: 'decimal(10, 2)', i: [string], j: {k: [{l: bigint}]}}"
    [egress] = parse_module(f"{PARQUET}  schema: {schema}\n", "m.yaml").connector_egresses

    assert egress.settings.columns.schema == pa.schema(
        {
            "a": pa.string(),
            "b": pa.bool_(),
            "c": pa.int32(),
            "d": pa.int64(),
            "e": pa.float64(),
            "f": pa.date32(),
            "g": pa.timestamp("us", "UTC"),
            "h": pa.decimal128(10, 2),
            "i": pa.list_(pa.string()),
            "j": pa.struct({"k": pa.list_(pa.struct({"l": pa.int64()}))}),
        }
    )
    assert pickle.loads(pickle.dumps(egress.settings)) == egress.settings


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            INGRESS.replace("csv,", "xml,"),
            (
                "4:37: spec.files[0].format.type: Invalid file format type: xml; valid types are "
                "[lines, json-lines, csv, parquet]"
            ),
        ),
        (
            INGRESS.replace("csv, idField: name", "csv"),
            (
                "4:30: spec.files[0].format: missing required key 'idField': the field whose value "
                "is the id of the address"
            ),
        ),
        (
            INGRESS.replace("csv, idField: name", "json-lines, idField: name, delimiter: ','"),
            "4:64: spec.files[0].format.delimiter: 'delimiter' is only used with type csv",
        ),
        (
            INGRESS.replace("idField: name", "idField: name, delimiter: ', '"),
            (
                "4:68: spec.files[0].format.delimiter: ', ' must be one character, and neither a "
                "quotation mark nor a line break"
            ),
        ),
        (
            EGRESS + "  format: csv\n",
            "5:11: spec.format: Invalid format: csv; valid values are [json-lines, parquet]",
        ),
        (
            PARQUET,
            (
                "3:3: spec: format parquet needs the key 'schema', the columns and their types: "
                "without it, files of one folder would have different columns"
            ),
        ),
        (
            EGRESS + "  schema: {a: string}\n",
            "3:3: spec: 'schema' is only used with format parquet",
        ),
        (PARQUET + "  schema: {}\n", "6:11: spec.schema: must have at least one column"),
        (
            PARQUET + "  schema: {a: text}\n",
            (
                "6:15: spec.schema.a: Invalid type: text; valid types are [string, boolean, int, "
                "bigint, double, date, timestamp, decimal(10,2)], lists and mappings"
            ),
        ),
        (
            PARQUET + "  schema: {a: string, b: {A: int}, A: int}\n",
            (
                "6:12: spec.schema.a: a column must have a name of its own; upper and lower case count as "
                "equal"
            ),
        ),
        (
            PARQUET + "  schema: {a: [string, int]}\n",
            "6:15: spec.schema.a: a list must have exactly one type, that of its items, such as [string]",
        ),
        (
            PARQUET + f"  schema: {{a: {'[' * 31}string{']' * 31}}}\n",
            f"6:45: spec.schema.a{'[0]' * 30}: must not be nested more than 30 deep",
        ),
        (
            EGRESS.replace("folder", "foldr"),
            (
                "4:3: spec.foldr: unknown key 'foldr'; did you mean 'folder'? allowed keys: folder, "
                "format, id, rollEvery, rollSize, schema"
            ),
        ),
        (
            INGRESS.replace(
                "[{path: in",
                "[{path: in, format: {type: lines}, targets: [a/f], valueType: a/T}, {path: in",
            ),
            "4:85: spec.files[1].path: duplicate path 'in'; it is first listed at m.yaml:4:18",
        ),
    ],
)
def test_mistakes_are_reported(text: str, problem: str) -> None:
    """Each mistake is one problem, with its place and a correction."""
    with pytest.raises(ModuleError) as raised:
        parse_module(text, "m.yaml", {})

    assert [str(each) for each in raised.value.problems] == [f"m.yaml:{problem}"]


def test_paths_that_differ_in_credentials_are_one() -> None:
    """The topic of a route is its path without credentials: two such paths would be one topic."""
    text = """
kind: io.statefun.file.v1/ingress
spec:
  id: test/in
  files:
    - {path: "s3://data/in?access_key=ONE", format: {type: lines}, valueType: a/T, targets: [a/f]}
    - {path: "s3://data/in?access_key=TWO", format: {type: lines}, valueType: a/T, targets: [a/f]}
"""
    with pytest.raises(ModuleError) as raised:
        parse_module(text, "module.yaml")

    assert "two paths must not differ only in options or login: s3://data/in" in str(raised.value)
    assert "ONE" not in str(raised.value)
    assert "TWO" not in str(raised.value)
