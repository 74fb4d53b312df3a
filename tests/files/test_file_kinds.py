# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

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


def test_ingresses_are_read() -> None:
    """Paths are relative to the module file; URIs stay."""
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
    """They write JSON lines unless they are told otherwise, exactly once."""
    [plain] = parse_module(EGRESS, "/data/m.yaml").connector_egresses
    [other] = parse_module(EGRESS + "  format: parquet\n", "/data/m.yaml").connector_egresses

    assert plain.settings == EgressFiles("egress a/b", "/data/out", FileFormat.JSON_LINES)
    assert other.settings.format is FileFormat.PARQUET
    assert (plain.address, plain.is_exactly_once) == ("/data/out", True)


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
                "4:68: spec.files[0].format.delimiter: ', ' is not one character that may stand "
                "between fields"
            ),
        ),
        (
            EGRESS + "  format: csv\n",
            "5:11: spec.format: Invalid format: csv; valid values are [json-lines, parquet]",
        ),
        (
            EGRESS.replace("folder", "foldr"),
            (
                "4:3: spec.foldr: unknown key 'foldr'; did you mean 'folder'? allowed keys: folder, "
                "format, id"
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
    """Each is one problem, with its place and a correction."""
    with pytest.raises(ModuleError) as raised:
        parse_module(text, "m.yaml", {})

    assert [str(each) for each in raised.value.problems] == [f"m.yaml:{problem}"]
