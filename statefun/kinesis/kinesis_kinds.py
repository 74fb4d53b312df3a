# SPDX-License-Identifier: Apache-2.0
"""Reads the components of Kinesis in module files: ``io.statefun.kinesis.v1/ingress`` and ``/egress``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from statefun.components import (
    FAILURE_POLICY,
    ID,
    Component,
    ConnectorEgress,
    ConnectorIngress,
    Key,
    Kind,
    Problems,
    Shape,
    TopicRoute,
    Values,
    Variants,
    date,
    integer,
    legacy_route,
    member,
    plain_route,
    routes,
    text,
)
from statefun.kinesis.client_properties import (
    EGRESS_PROPERTIES,
    PROPERTIES,
    THREADS,
    client_settings,
)
from statefun.kinesis.connection import (
    Connection,
    Credentials,
    EgressSettings,
    FromEnd,
    IngressSettings,
    OnDataLoss,
)
from statefun.kinesis.outgoing import kinesis_record

_REGION_ID = Key(
    "id", text, "the id of the AWS region, such as eu-west-1", required=True, example="eu-west-1"
)
_ENDPOINT = Key(
    "endpoint", text, "the URL of the endpoint", required=True, example="https://kinesis:4567"
)
_REGIONS = Variants(
    "Invalid AWS region type: {type}; valid values are [{types}]",
    {"default": (), "specific": (_REGION_ID,), "custom-endpoint": (_ENDPOINT, _REGION_ID)},
)
_ACCESS_KEY_ID = Key(
    "accessKeyId",
    text,
    "the id of the access key",
    required=True,
    example="${AWS_ACCESS_KEY_ID}",
)
_SECRET_ACCESS_KEY = Key(
    "secretAccessKey",
    text,
    "the secret access key",
    required=True,
    example="${AWS_SECRET_ACCESS_KEY}",
)
_PROFILE_NAME = Key(
    "profileName", text, "the name of the AWS profile", required=True, example="default"
)
_PROFILE_PATH = Key(
    "profilePath",
    text,
    "the path of the AWS profile's file, relative to the module file's folder",
    default="(boto3's files)",
    example="aws/config",
)
_CREDENTIALS = Variants(
    "Invalid AWS credential type: {type}; valid values are [{types}]",
    {
        "default": (),
        "basic": (_ACCESS_KEY_ID, _SECRET_ACCESS_KEY),
        "profile": (_PROFILE_NAME, _PROFILE_PATH),
    },
)
_DATE = Key(
    "date",
    date,
    "when the first record to read was written, with a time zone",
    required=True,
    example="2026-01-31 12:00:00.000 +0100",
)
_STARTUP_POSITIONS = Variants(
    "Invalid startup position type: {type}; valid values are [{types}]",
    {"earliest": (), "latest": (), "date": (_DATE,)},
)
AWS_REGION = Key(
    "awsRegion",
    _REGIONS.reader,
    "the AWS region",
    default={"type": "default"},
    example={"type": "specific", "id": "eu-west-1"},
)
AWS_CREDENTIALS = Key(
    "awsCredentials",
    _CREDENTIALS.reader,
    "the identity in AWS; by default the one that boto3 finds in the environment, its files or the "
    "machine",
    default={"type": "default"},
    example={"type": "profile", "profileName": "default"},
)
STARTUP_POSITION = Key(
    "startupPosition",
    _STARTUP_POSITIONS.reader,
    "where to start reading; only used on a fresh checkpoint",
    default={"type": "latest"},
    example={"type": "earliest"},
)
STREAM = Key("stream", text, "the Kinesis stream to read", required=True, example="users")
_STREAMS = "the streams to read, each with its valueType and targets"
STREAMS = Key("streams", routes(plain_route(STREAM), STREAM.name), _STREAMS, required=True)
LEGACY_STREAMS = Key("streams", routes(legacy_route(STREAM), STREAM.name), _STREAMS, required=True)
_WINDOW = 10_000
"""How many records the writer gets at once: enough to write records of other keys while one key waits."""
MAX_OUTSTANDING_RECORDS = Key(
    "maxOutstandingRecords",
    integer(1),
    "how many records may be sent and not yet confirmed",
    default=1000,
    example=500,
)

ON_DATA_LOSS = Key(
    "onDataLoss",
    member("onDataLoss", OnDataLoss),
    "what to do when records of a planned micro-batch, or a shard with unread records, have expired",
    default="fail",
    example="go-on",
)
_COMMON = (ID, AWS_REGION, AWS_CREDENTIALS)
INGRESS = Shape((*_COMMON, STARTUP_POSITION, STREAMS, FAILURE_POLICY, ON_DATA_LOSS, PROPERTIES))
_LEGACY_INGRESS = Shape(
    (*_COMMON, STARTUP_POSITION, LEGACY_STREAMS, FAILURE_POLICY, ON_DATA_LOSS, PROPERTIES)
)
EGRESS = Shape((*_COMMON, MAX_OUTSTANDING_RECORDS, EGRESS_PROPERTIES))


def read_ingress(component: Component, problems: Problems) -> ConnectorIngress:
    """Return the ingress that a component of a module file declares; report problems of its keys."""
    streams = LEGACY_STREAMS if component.legacy else STREAMS
    values = (_LEGACY_INGRESS if component.legacy else INGRESS).read(component.spec, problems)
    client = client_settings(values.get(PROPERTIES, {}), problems)
    topics: tuple[TopicRoute, ...] = values[streams]
    connection = _connection(f"ingress {values[ID]}", component, values, client)
    return ConnectorIngress(
        id=values[ID],
        kind=component.kind,
        topics=topics,
        location=component.location,
        reader="statefun.kinesis.reading:read_kinesis",
        checker="statefun.kinesis.checking:check_ingress",
        settings=IngressSettings(
            connection, _start(values), values.get(ON_DATA_LOSS, OnDataLoss.FAIL)
        ),
        failure_policy=values.get(FAILURE_POLICY),
    )


def read_egress(component: Component, problems: Problems) -> ConnectorEgress:
    """Return the egress that a component of a module file declares; report problems of its keys."""
    values = EGRESS.read(component.spec, problems)
    client = client_settings(values.get(EGRESS_PROPERTIES, {}), problems, is_egress=True)
    threads, most = client.pop(THREADS, None), values.get(MAX_OUTSTANDING_RECORDS, 1000)
    connection = _connection(f"egress {values[ID]}", component, values, client)
    return ConnectorEgress(
        id=values[ID],
        kind=component.kind,
        location=component.location,
        writer="statefun.kinesis.writing:write_kinesis",
        checker="statefun.kinesis.checking:check_egress",
        address=connection.place,
        convert=kinesis_record,
        settings=EgressSettings(connection, most, threads),
        chunk_records=max(_WINDOW, most),
    )


KINDS = (
    Kind("io.statefun.kinesis.v1/ingress", read_ingress, INGRESS, "ingress"),
    Kind("io.statefun.kinesis.v1/egress", read_egress, EGRESS, "egress"),
)


def _connection(
    owner: str, component: Component, values: Values, client: Mapping[str, Any]
) -> Connection:
    region, where = values.get(AWS_REGION, ("default", None))
    kind, who = values.get(AWS_CREDENTIALS, ("default", None))
    credentials = Credentials()
    if kind == "basic" and who is not None:
        credentials = Credentials(who[_ACCESS_KEY_ID], who[_SECRET_ACCESS_KEY])
    elif kind == "profile" and who is not None:
        path = who.get(_PROFILE_PATH)
        folder = Path(component.location.file).parent
        file = None if path is None else str(folder / Path(path).expanduser())
        credentials = Credentials(profile=who[_PROFILE_NAME], profile_file=file)
    return Connection(
        owner,
        where[_REGION_ID] if where is not None and region != "default" else None,
        where[_ENDPOINT] if where is not None and region == "custom-endpoint" else None,
        credentials,
        client,
    )


def _start(values: Values) -> FromEnd | datetime:
    kind_of_start, details = values.get(STARTUP_POSITION, ("latest", None))
    if details is not None and kind_of_start == "date":
        return details[_DATE]
    return FromEnd(kind_of_start)
