# SPDX-License-Identifier: Apache-2.0
"""Reads ingresses and egresses of the playground, whose clients send messages and get records."""

from __future__ import annotations

import re
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
from statefun.module.yaml.readers import integer, list_of, parsed, scalar_schema, text, typename
from statefun.module.yaml.shapes import Key, Shape

_HOST_NAME = r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?"


def _host_name(string: str) -> str:
    if not re.fullmatch(_HOST_NAME, string):
        raise ValueError("is not the name of a host alone, such as 'playground.example.com'")
    return string.lower()


PORT = Key("port", integer(1, 65_535), "the port to listen on", required=True, example=8090)
HOST = Key(
    "host",
    text,
    "the address to listen on; with 0.0.0.0, other machines can connect",
    default=LOOPBACK,
    example="0.0.0.0",  # noqa: S104 - an example, not the default
)
_HOST_NAMES = parsed(
    _host_name,
    "the name of a host",
    scalar_schema("host name", type="string", pattern=f"^{_HOST_NAME}$"),
)
HOSTS = Key(
    "hosts",
    list_of(_HOST_NAMES, "host names"),
    "names of the host in requests, besides those of local networks",
    example=["playground.example.com"],
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

INGRESS = Shape((PORT, HOST, HOSTS))
EGRESS = Shape((PORT, TOPICS, ID, HOST, HOSTS))


def read_ingress(component: Component, problems: Problems) -> PlaygroundIngress:
    """Read a component as an ingress of the playground; report its problems."""
    values = INGRESS.read(component.spec, problems)
    host, hosts = values.get(HOST, LOOPBACK), values.get(HOSTS, ())
    return PlaygroundIngress(values[PORT], component.location, host, hosts)


def read_egress(component: Component, problems: Problems) -> ConnectorEgress:
    """Read a component as an egress of the playground; report its problems."""
    values = EGRESS.read(component.spec, problems)
    port, topics, id_ = values[PORT], values[TOPICS], values.get(ID, PLAYGROUND)
    host, hosts = values.get(HOST, LOOPBACK), values.get(HOSTS, ())
    return ConnectorEgress(
        id_,
        component.kind,
        component.location,
        "statefun.runtime.egress.playground_writing:playground_connection",
        f"playground at {host}:{port}",
        partial(playground_record, topics),
        PlaygroundDoor(port, topics, host, hosts),
        MAX_RECORD_SIZE,
        is_exactly_once=True,
    )


KINDS = (
    Kind("io.statefun.playground.v1/ingress", read_ingress, INGRESS, "ingress", PORT.name),
    Kind("io.statefun.playground.v1/egress", read_egress, EGRESS, "egress", PORT.name),
)
