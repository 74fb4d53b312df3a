# SPDX-License-Identifier: Apache-2.0
"""Reads the routes of an ingress: topics or streams, with the functions that get their records."""

from __future__ import annotations

from typing import TypeVar

import attrs

from statefun.module.kinds.chains import INGRESS, format_after, read_chain
from statefun.module.kinds.transforms import TRANSFORMS
from statefun.module.kinds.value_formats import KEY_FORMAT, TEXT, VALUE_FORMAT
from statefun.module.topic_routes import Deserializer, TopicRoute
from statefun.module.transforming import transformed_values
from statefun.module.yaml.nodes import ListNode, MapNode, Node, ScalarNode
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import list_of, member, target, text, typename
from statefun.module.yaml.shapes import Key, Reader, Shape, Values, described, schema_of
from statefun.sdk.address import TypeName
from statefun.sdk.failure import OnFailure
from statefun.sdk.primitives import StringType

T = TypeVar("T")

_PROTOBUF_NAMESPACE = "type.googleapis.com"


@described(schema_of(text))
def _type_url(node: Node, problems: Problems) -> TypeName:
    """Read the type URL or, in documents of version 1.0, the full name of a Protobuf message as a typename."""
    name = text(node, problems)
    return typename(node, problems) if "/" in name else TypeName(_PROTOBUF_NAMESPACE, name)


_TARGET_LIST = list_of(target, "functions, <namespace>/<name>")


@described({**schema_of(_TARGET_LIST), "uniqueItems": True})
def _targets(node: Node, problems: Problems) -> tuple[TypeName, ...]:
    """Read the targets of a route; each must be listed once, or it would get each record twice."""
    targets = _TARGET_LIST(node, problems)
    first: dict[TypeName, Node] = {}
    for name, item in zip(targets, node.items if isinstance(node, ListNode) else (), strict=True):
        if first.setdefault(name, item) is not item:
            sentence = (
                f"duplicate target {str(name)!r}; it is first listed at {first[name].location}"
            )
            problems.report(item.location, item.path, sentence)
    return targets


VALUE_TYPE = Key(
    "valueType",
    typename,
    "the type of the records' values",
    required=True,
    example="com.example/User",
)
TARGETS = Key(
    "targets",
    _targets,
    "the functions that get every record",
    required=True,
    example=["com.example.fns/greeter"],
)
FAILURE_POLICY = Key(
    "failurePolicy",
    member("failurePolicy", OnFailure),
    "what happens to a record that no function can receive: fail stops the application, skip leaves "
    "the record out, dead-letter makes it a dead letter",
    default="(dead-letter if an egress has a deadLetterTopic, else fail)",
    example="skip",
)
"""The key with the policy of an ingress for records that no function can receive."""
ROUTE_FAILURE_POLICY = attrs.evolve(FAILURE_POLICY, default="(the policy of the ingress)")
"""The key with the policy of a route for records that no function can receive."""
_OPTIONAL_TYPE = attrs.evolve(
    VALUE_TYPE, required=False, default="(required, unless valueFormat is text)"
)
COMMON = (
    _OPTIONAL_TYPE,
    VALUE_FORMAT,
    KEY_FORMAT,
    TRANSFORMS,
    TARGETS,
    ROUTE_FAILURE_POLICY,
)
"""The keys that routes of all kinds of ingresses have."""
# Legacy documents use either name, so neither is required on its own.
_LEGACY_VALUE_TYPE = Key("valueType", _type_url, VALUE_TYPE.doc)
_TYPE_URL = Key("typeUrl", _type_url, "the type of the records' values: a protobuf type URL")


def routes(read_route: Reader[T], *sources: str) -> Reader[tuple[T, ...]]:
    """Return a reader of a list of routes, which reports a topic or stream that is listed twice.

    Args:
        read_route: reads one route.
        sources: the keys of a route that name its topic or stream.
    """
    read_list = list_of(read_route, f"mappings with a {sources[0]}")

    @described(schema_of(read_list))
    def read(node: Node, problems: Problems) -> tuple[T, ...]:
        try:
            return read_list(node, problems)
        finally:
            for source in sources:
                _report_duplicates(node, source, problems)

    return read


def made_route(source: str, values: Values, node: Node, problems: Problems) -> TopicRoute:
    """Make the route of a topic or stream.

    Args:
        source: the topic or stream.
        values: the values of the keys :data:`COMMON`.
        node: the node of the route, for the location of problems.
        problems: the object that collects problems.

    Raises:
        Invalid: if there are no targets or no value type, or the transforms do not fit each
            other or the formats.
    """
    value_format = values.get(VALUE_FORMAT)
    chain = read_chain(INGRESS, values, node, problems)
    changes = chain is not None and chain.changes_value
    is_text = value_format is TEXT and not changes
    if is_text and values.attempted(_OPTIONAL_TYPE):
        sentence = f"a topic with valueFormat text must not have a valueType; its type is {StringType.typename}"
        problems.report(node.location, node.path, sentence)
    if not is_text and not values.attempted(_OPTIONAL_TYPE):
        sentence = f"missing required key {VALUE_TYPE.name!r}: {VALUE_TYPE.doc}"
        raise problems.report(node.location, node.path, sentence)
    route = TopicRoute(
        source,
        TypeName.parse(StringType.typename) if is_text else values[_OPTIONAL_TYPE],
        values[TARGETS],
        node.location,
        values.get(ROUTE_FAILURE_POLICY),
        deserializer=TEXT if is_text else None,
        value_format=None if isinstance(value_format, Deserializer) else value_format,
        chain=chain,
    )
    if chain is None or not changes:
        return route
    return attrs.evolve(
        route,
        value_format=format_after(chain),
        deserializer=transformed_values(source, str(route.value_type), chain),
    )


def plain_route(source: Key[str]) -> Reader[TopicRoute]:
    """Return a reader of a route whose topic or stream is the value of the key ``source``."""
    shape = Shape((source, *COMMON))

    @described(shape.schema)
    def read(node: Node, problems: Problems) -> TopicRoute:
        values = shape.read(node, problems)
        return made_route(values[source], values, node, problems)

    return read


def legacy_route(source: Key[str]) -> Reader[TopicRoute]:
    """Return a reader of a route of an older document; the route's value type may be a type URL."""
    shape = Shape((source, _TYPE_URL, _LEGACY_VALUE_TYPE, TARGETS))

    @described(shape.schema)
    def read(node: Node, problems: Problems) -> TopicRoute:
        values = shape.read(node, problems)
        written_keys = [key for key in (_TYPE_URL, _LEGACY_VALUE_TYPE) if values.attempted(key)]
        if len(written_keys) != 1:
            sentence = "needs either typeUrl or valueType" + (", not both" if written_keys else "")
            raise problems.report(node.location, node.path, sentence)
        return TopicRoute(values[source], values[written_keys[0]], values[TARGETS], node.location)

    return read


def _report_duplicates(node: Node, source: str, problems: Problems) -> None:
    """Report each topic or stream that is listed twice, also in routes that have other problems."""
    first: dict[str, Node] = {}
    for item in node.items if isinstance(node, ListNode) else ():
        name = item.get(source) if isinstance(item, MapNode) else None
        if isinstance(name, ScalarNode) and first.setdefault(name.text, name) is not name:
            where = first[name.text].location
            sentence = f"duplicate {source} {name.quoted}; it is first listed at {where}"
            problems.report(name.location, name.path, sentence)
