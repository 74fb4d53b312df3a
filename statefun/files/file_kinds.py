# SPDX-License-Identifier: Apache-2.0
"""Reading ``io.statefun.file.v1/ingress`` and ``/egress``."""

from __future__ import annotations

import re
from pathlib import Path

from statefun.components import (
    COMMON_ROUTE,
    FAILURE_POLICY,
    ID,
    Component,
    ConnectorEgress,
    ConnectorIngress,
    Key,
    Kind,
    Node,
    Problems,
    Shape,
    TopicRoute,
    Variants,
    choice,
    described,
    made_route,
    member,
    parsed,
    routes,
    scalar_schema,
    text,
)
from statefun.files.file_records import file_record
from statefun.files.file_settings import EgressFiles, FileFormat, Files, IngressFiles, OnChange


def _one_character(string: str) -> str:
    if len(string) != 1 or string in '\r\n"':
        raise ValueError("is not one character that may stand between fields")
    return string


PATH = Key(
    "path",
    text,
    "a folder, a file, or a folder with a pattern for the names of its files; relative to the "
    "module file, or the URI of a file system that pyarrow knows",
    required=True,
    example="data/users/*.jsonl",
)
ID_FIELD = Key(
    "idField",
    text,
    "the field whose value is the id of the address",
    required=True,
    example="name",
)
DELIMITER = Key(
    "delimiter",
    parsed(_one_character, "one character", scalar_schema("text", type="string", minLength=1)),
    "what stands between fields",
    default=",",
    example=";",
)
FORMATS = Variants(
    "Invalid file format type: {type}; valid types are [{types}]",
    {
        "lines": (),
        "json-lines": (ID_FIELD,),
        "csv": (ID_FIELD, DELIMITER),
        "parquet": (ID_FIELD,),
    },
)
FORMAT = Key(
    "format",
    FORMATS.reader,
    "what the files hold, and which field is the id: of lines, the line itself",
    required=True,
    example={"type": "json-lines", "idField": "name"},
)
ON_CHANGE = Key(
    "onChange",
    member("onChange", OnChange),
    "what to do when a file was cut off or replaced after a part of it was read, or deleted before "
    "all of it was: go-on reads what is there, from the beginning",
    default="fail",
    example="go-on",
)
_ROUTE = Shape((PATH, FORMAT, *COMMON_ROUTE))


@described(_ROUTE.schema)
def _files(node: Node, problems: Problems) -> tuple[TopicRoute, Files]:
    values = _ROUTE.read(node, problems)
    path = _located(values[PATH], node.location.file)
    route = made_route(path, values, node, problems)
    kind, given = values[FORMAT]
    files = Files(
        path,
        FileFormat(kind),
        None if kind == "lines" else given[ID_FIELD],
        given.get(DELIMITER, ",") if kind == "csv" else ",",
    )
    return route, files


FILES = Key("files", routes(_files, PATH.name), "the files to read", required=True)
FOLDER = Key(
    "folder",
    text,
    "the folder to write to; relative to the module file, or the URI of a file system that pyarrow "
    "knows",
    required=True,
    example="out/greetings",
)
WRITTEN = Key(
    "format",
    choice("format", {each.value: each for each in (FileFormat.JSON_LINES, FileFormat.PARQUET)}),
    "what the files hold",
    default="json-lines",
    example="parquet",
)
INGRESS = Shape((ID, FILES, ON_CHANGE, FAILURE_POLICY))
EGRESS = Shape((ID, FOLDER, WRITTEN))


def read_ingress(component: Component, problems: Problems) -> ConnectorIngress:
    """Read an ingress."""
    values = INGRESS.read(component.spec, problems)
    found = values[FILES]
    files = {each.path: each for _, each in found}
    settings = IngressFiles(f"ingress {values[ID]}", files, values.get(ON_CHANGE, OnChange.FAIL))
    return ConnectorIngress(
        id=values[ID],
        kind=component.kind,
        topics=tuple(route for route, _ in found),
        location=component.location,
        reader="statefun.files.file_source:read_files",
        checker="statefun.files.file_checks:check_ingress",
        settings=settings,
        failure_policy=values.get(FAILURE_POLICY),
    )


def read_egress(component: Component, problems: Problems) -> ConnectorEgress:
    """Read an egress."""
    values = EGRESS.read(component.spec, problems)
    format_ = values.get(WRITTEN, FileFormat.JSON_LINES)
    folder = _located(values[FOLDER], component.location.file)
    return ConnectorEgress(
        id=values[ID],
        kind=component.kind,
        location=component.location,
        writer="statefun.files.file_writing:write_files",
        checker="statefun.files.file_checks:check_egress",
        address=folder,
        convert=file_record,
        settings=EgressFiles(f"egress {values[ID]}", folder, format_),
        chunk_records=50_000,
        is_exactly_once=True,
    )


KINDS = (
    Kind("io.statefun.file.v1/ingress", read_ingress, INGRESS, "ingress"),
    Kind("io.statefun.file.v1/egress", read_egress, EGRESS, "egress"),
)


def _located(path: str, file: str) -> str:
    """Return a path as it is for every process: absolute, or a URI."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path):
        return path
    return str(Path(file).absolute().parent / Path(path).expanduser())
