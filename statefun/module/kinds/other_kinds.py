# SPDX-License-Identifier: Apache-2.0
"""Kinds that are known, so that their components are checked, but that cannot be run yet."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import attrs

from statefun.module.kinds import kinesis
from statefun.module.kinds.kafka_ingress import (
    AUTO_OFFSET_RESET,
    CONSUMER_GROUP_ID,
    STARTUP_POSITION,
)
from statefun.module.kinds.kafka_settings import ADDRESS, PROPERTIES
from statefun.module.model import Unsupported
from statefun.module.yaml.components import ID, Component
from statefun.module.yaml.nodes import Node, ScalarNode
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import (
    choice,
    duration,
    functions,
    integer,
    list_of,
    text,
    typename,
)
from statefun.module.yaml.shapes import Key, Reader, Shape, expect

_Keys = tuple[Key[Any], ...]
_SCHEMES = ("http", "https", "http+unix", "https+unix")


def _url(node: Node, problems: Problems) -> str:
    url = text(node, problems)
    scalar = expect(node, ScalarNode, "a URL", problems)
    try:
        parts = urlsplit(url)
    except ValueError:  # such as an unclosed bracket of an IPv6 address
        parts = urlsplit("")
    if parts.scheme not in _SCHEMES or not (parts.netloc or parts.path):
        sentence = f"{scalar.quoted} is not a URL with one of the schemes {', '.join(_SCHEMES)}"
        raise problems.report(node.location, node.path, sentence)
    return url


def _nested(*keys: Key[Any]) -> Reader[Any]:
    return Shape(keys).reader


def _timeouts(*names: str) -> _Keys:
    return tuple(Key(name, duration, f"the {name} timeout", example="10s") for name in names)


_FUNCTIONS = Key(
    "functions",
    functions,
    "the functions behind it, <namespace>/<name> or /*",
    required=True,
    example="com.example.fns/*",
)
_MAX_BATCH = Key(
    "maxNumBatchRequests", integer(1), "how many messages to send at once", example=1000
)
_TIMEOUTS = Key("timeouts", _nested(*_timeouts("call", "connect", "read", "write")), "timeouts")
_TRANSPORT = Key(
    "transport",
    _nested(
        Key(
            "type",
            choice(
                "transport type",
                {f"io.statefun.transports.v1/{name}": name for name in ("async", "okhttp")},
            ),
            "the transport",
            example="io.statefun.transports.v1/async",
        ),
        _TIMEOUTS,
        *_timeouts("call", "connect", "pool_ttl"),
        Key("pool_size", integer(1), "how many connections to keep", example=1024),
        Key(
            "payload_max_bytes",
            integer(1),
            "how large a request or response may be",
            example=33554432,
        ),
        Key(
            "trust_cacerts",
            text,
            "the file of trusted certificate authorities",
            example="cacerts.pem",
        ),
        Key("client_cert", text, "the file of the client's certificate", example="client.pem"),
        Key("client_key", text, "the file of the client's private key", example="client.key"),
        Key(
            "client_key_password",
            text,
            "the file of the private key's password",
            example="${file:password}",
        ),
    ),
    "how to reach the functions",
)
_ENDPOINT = (
    _FUNCTIONS,
    Key(
        "urlPathTemplate",
        _url,
        "the URL, which may hold {function.name}",
        required=True,
        example="https://functions/{function.name}",
    ),
    _MAX_BATCH,
)
_PORT = Key("port", integer(1, 65_535), "the port to listen on", required=True, example=8090)
_FUNCTION_TYPE = Key("type", typename, "the function's type, <namespace>/<name>", required=True)
_MESSAGE = (
    Key("messageType", text, "the full name of the protobuf message", required=True),
    Key("descriptorSet", text, "the file of the message's descriptors", required=True),
)

_ROUTED_INGRESS = Key("ingress", typename, "the ingress that it routes from", required=True)


def _state(node: Node, problems: Problems) -> Any:
    """A state is a name in version 1.0, and a mapping in version 2.0."""
    return text(node, problems) if isinstance(node, ScalarNode) else _STATE.read(node, problems)


_STATE = Shape(
    (
        Key("name", text, "the state's name", required=True),
        Key("expireAfter", duration, "when the state expires"),
        Key(
            "expireMode",
            choice(
                "expireMode",
                {name: name for name in ("none", "after-invoke", "after-write")},
            ),
            "what the expiration counts from",
        ),
    )
)


@attrs.frozen
class OtherKind:
    """The keys of a kind that cannot run yet; ``id_key`` is unique within a ``group``."""

    group: str | None
    id_key: Key[Any]
    keys: _Keys
    legacy_keys: _Keys | None = None
    """The keys in documents with ``version`` and ``module``, if they differ."""

    def read(self, component: Component, problems: Problems) -> Unsupported:
        """Check a component."""
        keys = self.legacy_keys if component.legacy and self.legacy_keys else self.keys
        values = Shape(keys).read(component.spec, problems)
        return Unsupported(component.kind, str(values[self.id_key]), component.location)


OTHER_KINDS = {
    "io.statefun.endpoints.v1/http": OtherKind("endpoint", _FUNCTIONS, (*_ENDPOINT, _TIMEOUTS)),
    "io.statefun.endpoints.v2/http": OtherKind("endpoint", _FUNCTIONS, (*_ENDPOINT, _TRANSPORT)),
    "io.statefun.kinesis.v1/ingress": OtherKind(
        "ingress", ID, kinesis.ingress_keys(legacy=False), kinesis.ingress_keys(legacy=True)
    ),
    "io.statefun.kinesis.v1/egress": OtherKind("egress", ID, kinesis.EGRESS_KEYS),
    "io.statefun.playground.v1/ingress": OtherKind("ingress", _PORT, (_PORT,)),
    "io.statefun.playground.v1/egress": OtherKind(
        "egress",
        _PORT,
        (
            _PORT,
            Key(
                "topics",
                list_of(text, "topics"),
                "its topics",
                required=True,
                example=["greetings"],
            ),
        ),
    ),
}

LEGACY_ONLY_KINDS = {
    "functions/http": OtherKind(
        "function",
        _FUNCTION_TYPE,
        (
            _FUNCTION_TYPE,
            Key("endpoint", _url, "the URL of the function", required=True),
            Key("states", list_of(_state, "states"), "the function's states"),
            _MAX_BATCH,
            *_timeouts("timeout", "connectTimeout", "readTimeout", "writeTimeout"),
        ),
    ),
    "functions/grpc": OtherKind(
        "function",
        _FUNCTION_TYPE,
        (
            _FUNCTION_TYPE,
            Key("host", text, "the host of the function", required=True),
            Key("port", integer(1, 65_535), "the port of the function", required=True),
            Key("states", list_of(_state, "states"), "the function's states"),
            _MAX_BATCH,
        ),
    ),
    "org.apache.flink.statefun.sdk/protobuf-router": OtherKind(
        None,
        _ROUTED_INGRESS,
        (_ROUTED_INGRESS, Key("target", text, "where to", required=True), *_MESSAGE),
    ),
    "statefun.kafka.io/protobuf-ingress": OtherKind(
        "ingress",
        ID,
        (
            ID,
            ADDRESS,
            CONSUMER_GROUP_ID,
            STARTUP_POSITION,
            AUTO_OFFSET_RESET,
            PROPERTIES,
            Key("topics", list_of(text, "topics"), "the topics to read", required=True),
            *_MESSAGE,
        ),
    ),
}
"""Kinds that only documents with ``version`` and ``module`` can name."""
