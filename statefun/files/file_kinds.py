# SPDX-License-Identifier: Apache-2.0
"""Reads the components of files in module files: ``io.statefun.file.v1/ingress`` and ``/egress``."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import attrs

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
    duration,
    integer,
    made_route,
    member,
    parsed,
    routes,
    scalar_schema,
    text,
)
from statefun.files.file_records import line_record, row_record
from statefun.files.file_settings import (
    AfterRead,
    EgressFiles,
    FileFormat,
    Files,
    IngressFiles,
    OnChange,
    UnfinishedLine,
)
from statefun.files.path_identity import identity_of
from statefun.files.schemas import SCHEMA


def _one_character(string: str) -> str:
    if len(string) != 1 or string in '\r\n"':
        raise ValueError("must be one character, and neither a quotation mark nor a line break")
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
    "the character between fields",
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
    "the format of the files, and the field that is the id; of lines, the id is the line",
    required=True,
    example={"type": "json-lines", "idField": "name"},
)
ON_CHANGE = Key(
    "onChange",
    member("onChange", OnChange),
    "what to do when a file was cut off or replaced after a part of it was read, or deleted before "
    "all of it was read: go-on reads the present file from its beginning",
    default="fail",
    example="go-on",
)
UNFINISHED_LINE = Key(
    "unfinishedLine",
    member("unfinishedLine", UnfinishedLine),
    "what to do with a last line that has no line break: read takes it when its file has not changed "
    "for 10 seconds, and at the end of a bounded run; wait never takes it",
    default="read",
    example="wait",
)
AFTER_READ = Key(
    "afterRead",
    member("afterRead", AfterRead),
    "what becomes of a file when its last record is committed and the file has not changed for 10 "
    "seconds: move puts it into the folder _read inside its folder",
    default="keep",
    example="move",
)
_ROUTE = Shape((PATH, FORMAT, *COMMON_ROUTE))


@described(_ROUTE.schema)
def _files(node: Node, problems: Problems) -> tuple[TopicRoute, Files]:
    values = _ROUTE.read(node, problems)
    path = _absolute(values[PATH], node.location.file)
    route = made_route(identity_of(path), values, node, problems)
    route = attrs.evolve(route, alias=identity_of(values[PATH]))
    kind, options = values[FORMAT]
    files = Files(
        path,
        FileFormat(kind),
        None if kind == "lines" else options[ID_FIELD],
        options.get(DELIMITER, ",") if kind == "csv" else ",",
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
OUTPUT_FORMAT = Key(
    "format",
    choice("format", {each.value: each for each in (FileFormat.JSON_LINES, FileFormat.PARQUET)}),
    "the format of the files",
    default="json-lines",
    example="parquet",
)
ROLL_EVERY = Key(
    "rollEvery",
    duration,
    "how long records are gathered before they become a file; 0 s: each micro-batch becomes one",
    default="1 min",
    example="15 min",
)
ROLL_SIZE = Key(
    "rollSize",
    integer(1),
    "how many bytes of gathered records become a file before rollEvery is over",
    default=64 * 1024 * 1024,
    example=128 * 1024 * 1024,
)
INGRESS = Shape((ID, FILES, ON_CHANGE, UNFINISHED_LINE, AFTER_READ, FAILURE_POLICY))
EGRESS = Shape((ID, FOLDER, OUTPUT_FORMAT, SCHEMA, ROLL_EVERY, ROLL_SIZE))

_NO_SCHEMA = (
    "format parquet needs the key 'schema', the columns and their types: without it, files of one "
    "folder would have different columns"
)
_NEEDLESS_SCHEMA = "'schema' is only used with format parquet"


def read_ingress(component: Component, problems: Problems) -> ConnectorIngress:
    """Return the ingress that a component of a module file declares; report problems of its keys."""
    values = INGRESS.read(component.spec, problems)
    routes_with_files = values[FILES]
    files: dict[str, Files] = {}
    for route, each in routes_with_files:
        if files.setdefault(route.topic, each).path != each.path:
            sentence = f"two paths must not differ only in options or login: {route.topic}"
            problems.report(route.location, "files", sentence)
    settings = IngressFiles(
        f"ingress {values[ID]}",
        files,
        values.get(ON_CHANGE, OnChange.FAIL),
        values.get(UNFINISHED_LINE, UnfinishedLine.READ),
        values.get(AFTER_READ, AfterRead.KEEP),
    )
    return ConnectorIngress(
        id=values[ID],
        kind=component.kind,
        topics=tuple(route for route, _ in routes_with_files),
        location=component.location,
        reader="statefun.files.file_source:read_files",
        checker="statefun.files.file_checks:check_ingress",
        settings=settings,
        failure_policy=values.get(FAILURE_POLICY),
    )


def read_egress(component: Component, problems: Problems) -> ConnectorEgress:
    """Return the egress that a component of a module file declares; report problems of its keys."""
    values = EGRESS.read(component.spec, problems)
    is_parquet = values.get(OUTPUT_FORMAT) is FileFormat.PARQUET
    has_format = OUTPUT_FORMAT in values or not values.attempted(OUTPUT_FORMAT)
    if has_format and is_parquet != values.attempted(SCHEMA):
        problem = _NO_SCHEMA if is_parquet else _NEEDLESS_SCHEMA
        problems.report(component.spec.location, component.spec.path, problem)
    columns = values.get(SCHEMA)
    folder = _absolute(values[FOLDER], component.location.file)
    defaults = EgressFiles(f"egress {values[ID]}", folder, columns)
    return ConnectorEgress(
        id=values[ID],
        kind=component.kind,
        location=component.location,
        writer="statefun.files.file_writing:write_files",
        checker="statefun.files.file_checks:check_egress",
        address=folder,
        convert=line_record if columns is None else partial(row_record, columns),
        settings=attrs.evolve(
            defaults,
            roll_every=values.get(ROLL_EVERY, defaults.roll_every),
            roll_size=values.get(ROLL_SIZE, defaults.roll_size),
        ),
        chunk_records=50_000,
        is_exactly_once=True,
    )


KINDS = (
    Kind("io.statefun.file.v1/ingress", read_ingress, INGRESS, "ingress"),
    Kind("io.statefun.file.v1/egress", read_egress, EGRESS, "egress"),
)


def _absolute(path: str, file: str) -> str:
    """Return a path of a module file as an absolute path; return a URI as it is.

    Args:
        path: the path, relative to the folder of the module file.
        file: the module file.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path):
        return path
    return str(Path(file).absolute().parent / Path(path).expanduser())
