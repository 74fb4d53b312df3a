# SPDX-License-Identifier: Apache-2.0
"""The keys of ``io.statefun.kinesis.v1/ingress`` and ``/egress``, which cannot be run yet."""

from __future__ import annotations

from statefun.module.kinds.kafka_ingress import DATE
from statefun.module.kinds.routes import legacy_route, plain_route, routes
from statefun.module.yaml.components import ID
from statefun.module.yaml.readers import integer, properties, text
from statefun.module.yaml.shapes import Key, Variants

_REGION_ID = Key(
    "id", text, "the id of the AWS region, such as eu-west-1", required=True, example="eu-west-1"
)
_REGIONS = Variants(
    "Invalid AWS region type: {type}; valid values are [{types}]",
    {
        "default": (),
        "specific": (_REGION_ID,),
        "custom-endpoint": (
            Key(
                "endpoint",
                text,
                "the URL of the endpoint",
                required=True,
                example="https://kinesis:4567",
            ),
            _REGION_ID,
        ),
    },
)
_CREDENTIALS = Variants(
    "Invalid AWS credential type: {type}; valid values are [{types}]",
    {
        "default": (),
        "basic": (
            Key(
                "accessKeyId",
                text,
                "the id of the access key",
                required=True,
                example="${AWS_ACCESS_KEY_ID}",
            ),
            Key(
                "secretAccessKey",
                text,
                "the secret access key",
                required=True,
                example="${AWS_SECRET_ACCESS_KEY}",
            ),
        ),
        "profile": (
            Key(
                "profileName", text, "the name of the AWS profile", required=True, example="default"
            ),
            Key("profilePath", text, "the path of the AWS profile's file", example="aws/config"),
        ),
    },
)
_STARTUP_POSITIONS = Variants(
    "Invalid startup position type: {type}; valid values are [{types}]",
    {
        "earliest": (),
        "latest": (),
        "date": (Key(DATE.name, DATE.read, DATE.doc, required=True, example=DATE.example),),
    },
)
_STREAM = Key("stream", text, "the Kinesis stream to read", required=True, example="users")
_STREAMS_DOC = "the streams to read, each with its valueType and targets"
_COMMON = (
    ID,
    Key("awsRegion", _REGIONS.reader, "the AWS region"),
    Key("awsCredentials", _CREDENTIALS.reader, "who to be in AWS"),
    Key(
        "clientConfigProperties",
        properties,
        "client properties, 'name: value' each",
        example=[{"MaxConnections": 10}],
    ),
)


def ingress_keys(*, legacy: bool) -> tuple[Key[object], ...]:
    """The keys of an ingress; in legacy documents, streams may have a typeUrl."""
    route = legacy_route if legacy else plain_route
    return (
        *_COMMON,
        Key("startupPosition", _STARTUP_POSITIONS.reader, "where to start reading"),
        Key("streams", routes(route(_STREAM), _STREAM.name), _STREAMS_DOC, required=True),
    )


EGRESS_KEYS = (
    *_COMMON,
    Key(
        "maxOutstandingRecords",
        integer(1),
        "how many records may be on their way at once",
        example=1000,
    ),
)
