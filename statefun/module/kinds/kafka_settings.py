# SPDX-License-Identifier: Apache-2.0
"""Settings that a Kafka component takes as a separate key or as a Kafka property."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from statefun.module.yaml.nodes import Node, ScalarNode
from statefun.module.yaml.problems import Invalid, Problems
from statefun.module.yaml.readers import properties, text
from statefun.module.yaml.shapes import Key, Reader, Values

T = TypeVar("T")

ADDRESS = Key(
    "address",
    text,
    "the Kafka brokers to start from, comma-separated host:port",
    default="(the property `bootstrap.servers`)",
    example="kafka:9092",
)
ADDRESS_PROPERTY = "bootstrap.servers"
PROPERTIES = Key(
    "properties",
    properties,
    "further Kafka client properties, 'name: value' each",
    default=[],
    example=[{"security.protocol": "SASL_SSL"}],
)


class KafkaSettings:
    """Brings keys and properties together; a key wins over the property of the same meaning."""

    def __init__(
        self,
        node: Node,
        values: Values,
        problems: Problems,
        properties_key: Key[dict[str, Node]] = PROPERTIES,
    ) -> None:
        self._node = node
        self._values = values
        self._problems = problems
        self._properties = dict(values.get(properties_key, {}))
        self._unknown_properties = values.attempted(properties_key) and properties_key not in values

    def get(self, key: Key[T], property_name: str) -> T | None:
        """The key's value, or else the property's; the property is not among the `rest` then."""
        if self._values.attempted(key):
            self._properties.pop(property_name, None)
            return self._values.get(key)
        return self.take_property(property_name, key.read)

    def take_property(self, name: str, read: Reader[T]) -> T | None:
        """A property's value; the property is not among the `rest` then."""
        node = self._properties.pop(name, None)
        try:
            return None if node is None else read(node, self._problems)
        except Invalid:
            return None

    def require(self, key: Key[T], property_name: str, because: str) -> None:
        """Report a setting that is given in neither way; to be called before `get`."""
        given = self._values.attempted(key) or property_name in self._properties
        if not given and not self._unknown_properties:
            sentence = f"missing key {key.name!r} or property {property_name!r}: {because}"
            self._problems.report(self._node.location, self._node.path, sentence)

    def forbid(self, reasons: Mapping[str, str]) -> None:
        """Report properties that cannot be set, each with its reason."""
        for name, node in self._properties.items():
            if name in reasons:
                sentence = f"property {name!r} cannot be set: {reasons[name]}"
                self._problems.report(node.location, node.path, sentence)

    def rest(self) -> dict[str, str]:
        """The properties that no key stands for."""
        nodes = self._properties.items()
        return {name: node.text for name, node in nodes if isinstance(node, ScalarNode)}

    def address(self) -> str:
        """The brokers' addresses, which every Kafka component needs."""
        self.require(ADDRESS, ADDRESS_PROPERTY, ADDRESS.doc)
        return self.get(ADDRESS, ADDRESS_PROPERTY) or ""
