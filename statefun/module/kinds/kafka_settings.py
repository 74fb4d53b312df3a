# SPDX-License-Identifier: Apache-2.0
"""Reads settings of Kafka ingresses and egresses, given as keys of a module file or as Kafka properties."""

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
    "the Kafka brokers to connect to first, comma-separated host:port",
    default="(the property `bootstrap.servers`)",
    example="kafka:9092",
)
ADDRESS_PROPERTY = "bootstrap.servers"
PROPERTIES = Key(
    "properties",
    properties,
    "further properties of the Kafka client, each 'name: value'",
    default=[],
    example=[{"security.protocol": "SASL_SSL"}],
)


class KafkaSettings:
    """Reads settings from keys and properties; a key has priority over the property of the same meaning."""

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
        """Return the value of the key, or else of the property, and remove the property from `rest`."""
        if self._values.attempted(key):
            self._properties.pop(property_name, None)
            return self._values.get(key)
        return self.take_property(property_name, key.read)

    def take_property(self, name: str, read: Reader[T]) -> T | None:
        """Return the value of a property, and remove the property from `rest`."""
        node = self._properties.pop(name, None)
        try:
            return None if node is None else read(node, self._problems)
        except Invalid:
            return None

    def require(self, key: Key[T], property_name: str, because: str) -> None:
        """Report a required setting if neither its key nor its property is given; call this before `get`.

        ``because`` is the end of the error text, which says why the setting is required.
        """
        is_given = self._values.attempted(key) or property_name in self._properties
        if not is_given and not self._unknown_properties:
            sentence = f"missing key {key.name!r} or property {property_name!r}: {because}"
            self._problems.report(self._node.location, self._node.path, sentence)

    def forbid(self, reasons: Mapping[str, str]) -> None:
        """Report each property that must not be set, with the reason from ``reasons``."""
        for name, node in self._properties.items():
            if name in reasons:
                sentence = f"property {name!r} must not be set: {reasons[name]}"
                self._problems.report(node.location, node.path, sentence)

    def rest(self) -> dict[str, str]:
        """Return the properties that no other method has read."""
        nodes = self._properties.items()
        return {name: node.text for name, node in nodes if isinstance(node, ScalarNode)}

    def address(self) -> str:
        """Return the addresses of the brokers; report a problem if the component has none."""
        self.require(ADDRESS, ADDRESS_PROPERTY, ADDRESS.doc)
        return self.get(ADDRESS, ADDRESS_PROPERTY) or ""
