# SPDX-License-Identifier: Apache-2.0
"""Kinds that only older documents have; components of these kinds are checked, but cannot run."""

from __future__ import annotations

from typing import Any

import attrs

from statefun.module.kinds.endpoints import MAX_BATCH, url
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
    integer,
    list_of,
    text,
    typename,
)
from statefun.module.yaml.shapes import Key, Shape

_Keys = tuple[Key[Any], ...]


def _timeouts(*names: str) -> _Keys:
    return tuple(Key(name, duration, f"the {name} timeout", example="10s") for name in names)


_FUNCTION_TYPE = Key("type", typename, "the function's type, <namespace>/<name>", required=True)
_MESSAGE = (
    Key("messageType", text, "the full name of the protobuf message", required=True),
    Key("descriptorSet", text, "the file of the message's descriptors", required=True),
)

_ROUTED_INGRESS = Key("ingress", typename, "the ingress whose records are routed", required=True)


def _state(node: Node, problems: Problems) -> Any:
    """Read the declaration of a state: a name in version 1.0, a mapping in version 2.0."""
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
            "the event after which the state expires",
        ),
    )
)


@attrs.frozen
class LegacyKind:
    """A kind whose components are checked, but cannot run.

    Components whose kinds have the same ``group`` must have different values of ``id_key``, unless the group is None.
    """

    group: str | None
    id_key: Key[Any]
    keys: _Keys

    def read(self, component: Component, problems: Problems) -> Unsupported:
        """Check a component; return only its kind, id and location, since it cannot run."""
        values = Shape(self.keys).read(component.spec, problems)
        return Unsupported(component.kind, str(values[self.id_key]), component.location)


LEGACY_ONLY_KINDS = {
    "functions/http": LegacyKind(
        "function",
        _FUNCTION_TYPE,
        (
            _FUNCTION_TYPE,
            Key("endpoint", url, "the URL of the function", required=True),
            Key("states", list_of(_state, "states"), "the function's states"),
            MAX_BATCH,
            *_timeouts("timeout", "connectTimeout", "readTimeout", "writeTimeout"),
        ),
    ),
    "functions/grpc": LegacyKind(
        "function",
        _FUNCTION_TYPE,
        (
            _FUNCTION_TYPE,
            Key("host", text, "the host of the function", required=True),
            Key("port", integer(1, 65_535), "the port of the function", required=True),
            Key("states", list_of(_state, "states"), "the function's states"),
            MAX_BATCH,
        ),
    ),
    "org.apache.flink.statefun.sdk/protobuf-router": LegacyKind(
        None,
        _ROUTED_INGRESS,
        (_ROUTED_INGRESS, Key("target", text, "the address to route to", required=True), *_MESSAGE),
    ),
    "statefun.kafka.io/protobuf-ingress": LegacyKind(
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
"""The kinds that only documents of the older formats can name, by name."""
