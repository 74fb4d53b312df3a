# SPDX-License-Identifier: Apache-2.0
"""The base class of builders, which collect keys in Python and read them like keys of a module file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from statefun.module.location import Location
from statefun.module.yaml.components import Component
from statefun.module.yaml.nodes import Entry, ListNode, MapNode, Node, ScalarNode
from statefun.module.yaml.problems import Invalid, Problems
from statefun.sdk.errors import ModuleError
from statefun.sdk.types import Type

C = TypeVar("C")


class ComponentBuilder:
    """Collects the keys of a component's ``spec``, as a module file would have them."""

    def __init__(self, id_: str, location: Location) -> None:
        self._location = location
        self._spec: dict[str, Any] = {"id": id_}

    def _read(self, kind: str, read: Callable[[Component, Problems], C]) -> C:
        """Read the component from the collected keys; raise ModuleError if the component has problems."""
        problems = Problems()
        spec = _node(self._spec, self._location, "spec")
        try:
            component = read(Component(kind, spec, self._location), problems)
        except Invalid:
            raise self._error(problems) from None
        if problems.in_file_order([self._location.file]):
            raise self._error(problems)
        return component

    def _error(self, problems: Problems) -> ModuleError:
        return ModuleError(problems.in_file_order([self._location.file]))

    def _add_properties(self, properties: Mapping[str, Any]) -> None:
        """Add properties of the Kafka client to the key ``properties`` of the spec."""
        self._spec.setdefault("properties", {}).update(properties)


def caller() -> Location:
    """Return the location of the user's code that has called ``for_id``, which calls this function.

    Error texts about the component of a builder give this location.
    """
    frame = sys._getframe(2)  # noqa: SLF001 - the inspect module would read source files for it
    return Location(frame.f_code.co_filename, frame.f_lineno, 1)


def _node(value: Any, location: Location, path: str) -> Node:
    """Convert a Python value to the nodes that a module file would have for the value."""
    if isinstance(value, Mapping):
        entries = [
            Entry(
                ScalarNode(location, f"{path}.{name}", str(name), str(name)),
                _node(item, location, f"{path}.{name}"),
            )
            for name, item in value.items()
        ]
        return MapNode(location, path, tuple(entries))
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = [_node(item, location, f"{path}[{n}]") for n, item in enumerate(value)]
        return ListNode(location, path, tuple(items))
    text = _text(value)
    return ScalarNode(location, path, text, text, is_null=value is None)


def _text(value: Any) -> str:
    """Return the text that a module file would have for a value."""
    if isinstance(value, Type):
        return value.typename
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
