# SPDX-License-Identifier: Apache-2.0
"""Public names for packages that add connectors: to declare a kind of ingress or egress.

The names for reading and writing records are in :mod:`statefun.components.running`, which needs Spark.
"""

from __future__ import annotations

from statefun.module.connectors import ConnectorEgress, ConnectorIngress
from statefun.module.kinds.kind import Kind
from statefun.module.kinds.routes import COMMON as COMMON_ROUTE
from statefun.module.kinds.routes import (
    FAILURE_POLICY,
    legacy_route,
    made_route,
    plain_route,
    routes,
)
from statefun.module.topic_routes import TopicRoute
from statefun.module.yaml.components import ID, Component
from statefun.module.yaml.nodes import ListNode, MapNode, Node, ScalarNode
from statefun.module.yaml.problems import Invalid, Problems
from statefun.module.yaml.readers import (
    choice,
    date,
    duration,
    file_content,
    flag,
    integer,
    list_of,
    mapping,
    member,
    parsed,
    properties,
    scalar_schema,
    text,
    typename,
)
from statefun.module.yaml.shapes import Key, Shape, Values, Variants, described
from statefun.sdk.shown_uris import shown_uri, without_secrets

__all__ = [
    "COMMON_ROUTE",
    "FAILURE_POLICY",
    "ID",
    "Component",
    "ConnectorEgress",
    "ConnectorIngress",
    "Invalid",
    "Key",
    "Kind",
    "ListNode",
    "MapNode",
    "Node",
    "Problems",
    "ScalarNode",
    "Shape",
    "TopicRoute",
    "Values",
    "Variants",
    "choice",
    "date",
    "described",
    "duration",
    "file_content",
    "flag",
    "integer",
    "legacy_route",
    "list_of",
    "made_route",
    "mapping",
    "member",
    "parsed",
    "plain_route",
    "properties",
    "routes",
    "scalar_schema",
    "shown_uri",
    "text",
    "typename",
    "without_secrets",
]
