# SPDX-License-Identifier: Apache-2.0
"""Finds module files in ConfigMaps of Kubernetes: values that are texts with YAML documents."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import yaml

from statefun.module.location import Location

MODULE_KEYS = ("module.yaml", "module.yml")
"""The ends of the keys of a ConfigMap whose values are module files."""


@attrs.frozen
class YamlText:
    """A YAML text, and its place in a file."""

    content: str
    file: str
    line: int = 0
    """The line of the file in which the text begins, counted from 0."""
    column: int = 0
    """The column of the file at which the lines of the text begin, counted from 0."""
    is_literal: bool = True
    """Whether the text's lines are lines of the file; if not, problems are located where the text begins."""

    def location(self, mark: yaml.Mark) -> Location:
        """Return the location in the file for a place in the text, which PyYAML gives as a mark."""
        return self.place(mark.line, mark.column)

    def place(self, line: int, column: int) -> Location:
        """Return the location in the file for a line and a column of the text, counted from 0."""
        if not self.is_literal:
            line = column = 0
        return Location(self.file, self.line + line + 1, self.column + column + 1)


def is_resource(document: yaml.Node) -> bool:
    """Return whether a document is a resource of Kubernetes: a mapping with the key ``apiVersion``."""
    return _value(document, "apiVersion") is not None


def module_texts(resource: yaml.Node, within: YamlText) -> Iterator[YamlText]:
    """Yield the texts of the module files in a resource; only ConfigMaps contain module files.

    Args:
        resource: the document of the resource, or of a list of resources.
        within: the text that the document is a part of.
    """
    for config_map in _config_maps(resource):
        for key, value in _entries(config_map, "data"):
            if key.endswith(MODULE_KEYS):
                yield _inner(value, within)


def config_map_keys(resource: yaml.Node) -> Iterator[str]:
    """Yield the keys of the ConfigMaps in a resource, such as ``data.module.yaml``."""
    for config_map in _config_maps(resource):
        for name in ("data", "binaryData"):
            yield from (f"{name}.{key}" for key, _ in _entries(config_map, name))


def _config_maps(resource: yaml.Node) -> list[yaml.Node]:
    """Return the ConfigMaps among a resource, or in it, if it is a list as ``kubectl get`` prints it."""
    resources = [resource]
    items = _value(resource, "items")
    if _has_kind(resource, "List") and isinstance(items, yaml.SequenceNode):
        resources = items.value
    return [each for each in resources if _has_kind(each, "ConfigMap")]


def _entries(resource: yaml.Node, name: str) -> Iterator[tuple[str, yaml.ScalarNode]]:
    entries = _value(resource, name)
    for key, value in entries.value if isinstance(entries, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode):
            yield key.value, value


def _has_kind(resource: yaml.Node, kind: str) -> bool:
    found = _value(resource, "kind")
    return isinstance(found, yaml.ScalarNode) and found.value == kind


def _inner(value: yaml.ScalarNode, within: YamlText) -> YamlText:
    mark = value.start_mark
    if value.style != "|":
        return YamlText(value.value, within.file, mark.line, mark.column, is_literal=False)
    lines = within.content.split("\n")[mark.line + 1 :]
    first = next((line for line in lines if line.strip()), "")
    return YamlText(value.value, within.file, mark.line + 1, len(first) - len(first.lstrip(" ")))


def _value(document: yaml.Node, name: str) -> yaml.Node | None:
    if not isinstance(document, yaml.MappingNode):
        return None
    values = (value for key, value in document.value if getattr(key, "value", None) == name)
    return next(values, None)
