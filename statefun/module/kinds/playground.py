# SPDX-License-Identifier: Apache-2.0
"""Reads ingresses and egresses of the playground, whose clients send messages and get records."""

from __future__ import annotations

from functools import partial

from statefun.module.connectors import ConnectorEgress
from statefun.module.kinds.kind import Kind
from statefun.module.model import (
    LOOPBACK,
    MAX_RECORD_SIZE,
    PLAYGROUND,
    PlaygroundDoor,
    PlaygroundIngress,
)
from statefun.module.playground_records import playground_record
from statefun.module.yaml.components import Component
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import integer, list_of, text, typename
from statefun.module.yaml.shapes import Key, Shape

PORT = Key("port", integer(1, 65_535), "the port to listen on", required=True, example=8090)
HOST = Key(
    "host",
    text,
    "the address to listen on; with 0.0.0.0, other machines can connect",
    default=LOOPBACK,
    example="0.0.0.0",  # noqa: S104 - an example, not the default
)
ID = Key(
    "id",
    typename,
    "the name of this egress, <namespace>/<name>",
    default=str(PLAYGROUND),
    example="com.example/greets",
)
TOPICS = Key(
    "topics",
    list_of(text, "topics"),
    "the topics that functions may write to",
    required=True,
    example=["greetings"],
)

INGRESS = Shape((PORT, HOST))
EGRESS = Shape((PORT, TOPICS, ID, HOST))


def read_ingress(component: Component, problems: Problems) -> PlaygroundIngress:
    """Read a component as an ingress of the playground; report its problems."""
    values = INGRESS.read(component.spec, problems)
    return PlaygroundIngress(values[PORT], component.location, values.get(HOST, LOOPBACK))


def read_egress(component: Component, problems: Problems) -> ConnectorEgress:
    """Read a component as an egress of the playground; report its problems."""
    values = EGRESS.read(component.spec, problems)
    port, topics, id_ = values[PORT], values[TOPICS], values.get(ID, PLAYGROUND)
    host = values.get(HOST, LOOPBACK)
    return ConnectorEgress(
        id_,
        component.kind,
        component.location,
        "statefun.runtime.egress.playground_writing:playground_connection",
        f"playground at {host}:{port}",
        partial(playground_record, topics),
        PlaygroundDoor(port, topics, host),
        MAX_RECORD_SIZE,
        is_exactly_once=True,
    )


KINDS = (
    Kind("io.statefun.playground.v1/ingress", read_ingress, INGRESS, "ingress", PORT.name),
    Kind("io.statefun.playground.v1/egress", read_egress, EGRESS, "egress", PORT.name),
)
