# SPDX-License-Identifier: Apache-2.0
"""Finds module files in a ConfigMap of Kubernetes: values that are texts with YAML documents."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import yaml

from statefun.module.location import Location

_MODULE_FILES = ("module.yaml", "module.yml")


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
    """Yield the texts of the module files in a resource; only a ConfigMap contains module files.

    Args:
        resource: the document of the resource.
        within: the text that the document is a part of.
    """
    kind, data = _value(resource, "kind"), _value(resource, "data")
    if not (isinstance(kind, yaml.ScalarNode) and kind.value == "ConfigMap"):
        return
    for key, value in data.value if isinstance(data, yaml.MappingNode) else ():
        is_text = isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)
        if is_text and key.value.endswith(_MODULE_FILES):
            yield _inner(value, within)


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
