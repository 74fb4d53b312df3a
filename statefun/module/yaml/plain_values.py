# SPDX-License-Identifier: Apache-2.0
"""A YAML document as plain Python values, without anything that YAML would silently change or leave out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from statefun.module.yaml.nodes import MAX_ALIASED_NODES, MAX_DEPTH, BoundedLoader
from statefun.sdk.errors import ConfigurationError

_TAG_PREFIX = "tag:yaml.org,2002:"
_KEPT = {_TAG_PREFIX + name for name in ("null", "timestamp", "merge")}
_SCALARS = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": ("[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+", "-+0123456789"),
    "float": (
        (
            r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*|(\.[0-9]*)?[eE][-+]?[0-9]+))"
            r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
        ),
        "-+.0123456789",
    ),
}
"""By type: the pattern of its values without quotes, and their first characters.

As in JSON and YAML 1.2: in YAML 1.1, ``12:30`` is 750, ``010`` is 8, and ``no`` is false."""


class _Loader(BoundedLoader):
    """A loader of PyYAML that refuses keys which occur twice, and says where a value cannot be read."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                is_merge = key.tag == f"{_TAG_PREFIX}merge"
                value = key.tag if is_merge else self.construct_object(key)  # 16 and 0x10 are equal
                if value in keys:
                    raise _refusal("this key occurs twice", key)
                keys.add(value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - as PyYAML has it
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError, AttributeError, KeyError) as error:
            text = "this date or number cannot be read; put it in quotes if it is text"
            raise _refusal(text, node) from error

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        try:
            return _joined(value) if isinstance(value, str) else value
        except UnicodeError as error:
            text = "this text has characters that are not Unicode text"
            raise _refusal(text, node) from error


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _name, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(
        _TAG_PREFIX + _name, re.compile(f"(?:{_pattern})$", re.ASCII), [*_first]
    )


def plain_value(text: str, file: str) -> Any:
    """Return the value of the only document of a YAML text; None if it is empty.

    >>> plain_value("{a: 010, b: 12:30, c: 1e3, d: 7, e: no, f: null}", "f.yaml")
    {'a': '010', 'b': '12:30', 'c': 1000.0, 'd': 7, 'e': 'no', 'f': None}

    Args:
        text: the text.
        file: the name of the file, for errors.

    Raises:
        ConfigurationError: if the text is not YAML, or too deep, if a key occurs twice in a mapping, or if there is
            no such date or number. The error does not quote the text, which may have secrets.
    """
    what, place = f"file {file} is not YAML", ""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_size(node)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        cause: Exception = error
        place = _place(error.problem_mark)
        if type(error) is yaml.MarkedYAMLError:  # it is one of this package
            what, place = f"file {file}{place}", f": {error.problem}"
        elif isinstance(error, (yaml.scanner.ScannerError, yaml.parser.ParserError)):
            place += f" ({error.problem})"  # other errors quote the text
    except yaml.YAMLError as error:
        cause = error
    except (ValueError, OverflowError) as error:
        # PyYAML raises them for numbers out of range, such as "\UFFFFFFFF" or %YAML 9999….
        cause, place = error, _place(loader.get_mark())
    raise ConfigurationError(f"{what}{place}") from cause


def _check_size(root: yaml.Node) -> None:
    """Check that aliases make a document neither too deep nor too large: one may contain itself.

    Raises:
        MarkedYAMLError: if they do.
    """
    seen: set[int] = set()
    aliased = 0
    path = [iter((root,))]
    while path:
        node = next(path[-1], None)
        if node is None:
            path.pop()
            continue
        aliased += id(node) in seen
        seen.add(id(node))
        if len(path) > MAX_DEPTH + 1 or aliased > MAX_ALIASED_NODES:
            raise _refusal("aliases make the document too deep, or too large", node)
        path.append(_children(node))


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair


def _refusal(text: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=node.start_mark)


def _joined(text: str) -> str:
    r"""Join surrogates, as JSON escapes a character outside of the basic plane as two: ``"\ud83d\ude00"``.

    Raises:
        UnicodeError: if a surrogate is alone.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


def _place(mark: yaml.Mark | None) -> str:
    return "" if mark is None else f": line {mark.line + 1}, column {mark.column + 1}"
