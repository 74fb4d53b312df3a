# SPDX-License-Identifier: Apache-2.0
"""YAML as a tree of nodes with locations; values are texts, which readers convert later."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import yaml

from statefun.module.location import Location
from statefun.module.yaml.config_maps import YamlText, config_map_keys, is_resource, module_texts
from statefun.module.yaml.problems import Invalid, Problems
from statefun.module.yaml.substitution import Substitution, SubstitutionError
from statefun.sdk.shortening import shortened

MAX_DEPTH = 64
"""The deepest allowed nesting, so that the stack cannot overflow; module files have about ten levels."""
MAX_ALIASED_NODES = 10_000
"""The largest number of nodes that aliases may add, as aliases can make a document huge."""

_MAX_QUOTED = 80
_QUOTED = "while scanning a quoted scalar"
"""What PyYAML does, by its error texts, when it looks for the end of a quoted text."""
_TAG_PREFIX = "tag:yaml.org,2002:"
# YAML 1.1 gives a plain `=` the tag "value", and a plain `<<` the tag "merge".
_SCALAR_TAGS = {
    _TAG_PREFIX + name
    for name in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge")
}
_COLLECTION_TAGS = {_TAG_PREFIX + "map", _TAG_PREFIX + "seq"}


@attrs.frozen
class Node:
    """A value in a YAML file."""

    location: Location
    path: str
    """The keys from the document's root to the value, such as ``spec.topics[0].targets``."""


@attrs.frozen
class ScalarNode(Node):
    """A single value, which readers parse as a number, a date and so on."""

    source: str
    """The text in the file, with references such as ``${HOST}``; error texts may quote this text."""
    text: str = attrs.field(repr=False)
    """The text with resolved references, which may be a secret: error texts must not quote this text."""
    is_null: bool = False

    @property
    def quoted(self) -> str:
        """The source for error texts: in quotes, and shortened if it is long."""
        return repr(shortened(self.source, _MAX_QUOTED))


@attrs.frozen
class ListNode(Node):
    """A sequence (list) of YAML."""

    items: tuple[Node, ...]


@attrs.frozen
class Entry:
    """One ``key: value`` of a mapping; the path of the key node ends with the key itself."""

    key: ScalarNode
    value: Node


@attrs.frozen
class MapNode(Node):
    """A mapping of YAML, without duplicate keys."""

    entries: tuple[Entry, ...]

    def get(self, name: str) -> Node | None:
        """Return the node with the value of a key; None if the mapping does not have the key."""
        return next((entry.value for entry in self.entries if entry.key.text == name), None)


@attrs.frozen
class BrokenNode(Node):
    """A value whose problem has been reported; readers raise Invalid without another report."""


def compose(text: str, file: str, substitution: Substitution, problems: Problems) -> list[Node]:
    """Return the documents of a YAML text, except for empty ones, up to a syntax error, which is reported.

    A ConfigMap of Kubernetes, or a list of them, is replaced by the documents of the module files in it.

    >>> [node] = compose("kind: a/b", "module.yaml", Substitution({}), Problems())
    >>> node.get("kind")
    ScalarNode(location=Location(file='module.yaml', line=1, column=7), path='kind', source='a/b', is_null=False)
    """
    return list(_documents(YamlText(text, file), substitution, problems))


def keys_of_config_maps(text: str, file: str) -> list[str]:
    """Return the keys of the ConfigMaps in a YAML text, which :func:`compose` has read without problems."""
    documents = _raw_documents(YamlText(text, file), Problems())
    return [key for each in documents if is_resource(each) for key in config_map_keys(each)]


def _documents(
    text: YamlText, substitution: Substitution, problems: Problems, *, is_inner: bool = False
) -> Iterator[Node]:
    try:
        for raw in _raw_documents(text, problems):
            if isinstance(raw, yaml.ScalarNode) and not raw.value and raw.style is None:
                continue  # nothing between two `---`
            if is_resource(raw) and not is_inner:
                for inner in module_texts(raw, text):
                    yield from _documents(inner, substitution, problems, is_inner=True)
                continue
            try:
                yield _Builder(text, substitution, problems).build(raw, "", 0)
            except Invalid:
                # A placeholder, as a file with a problem is not an empty file.
                yield BrokenNode(text.location(raw.start_mark), "")
    except Invalid:
        yield BrokenNode(Location(text.file, 1, 1), "")


def _raw_documents(text: YamlText, problems: Problems) -> Iterator[yaml.Node]:
    try:
        loader = BoundedLoader(text.content)
        while loader.check_node():
            raw = loader.get_node()
            if raw is not None:  # it never is None, although its type allows it
                yield raw
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        if error.context == _QUOTED and error.context_mark:
            # PyYAML finds the end of the document, which may be far from the mistake.
            mark, what = error.context_mark, f"this quote is not closed: {what}"
        location = text.location(mark) if mark else Location(text.file, 1, 1)
        raise problems.report(location, "", f"not valid YAML: {what}") from None
    except yaml.reader.ReaderError as error:
        before = text.content[: error.position]
        line, column = before.count("\n"), len(before) - before.rfind("\n") - 1
        what = f"the character U+{ord(text.content[error.position]):04X} is not allowed"
        raise problems.report(text.place(line, column), "", f"not valid YAML: {what}") from None
    except (ValueError, OverflowError):
        # PyYAML raises them for numbers out of range, such as "\UFFFFFFFF" or %YAML 9999….
        mark = loader.get_mark()
        what = "an escape or a version number is out of range"
        raise problems.report(text.location(mark), "", f"not valid YAML: {what}") from None


class BoundedLoader(yaml.SafeLoader):
    """A loader of PyYAML that composes nodes recursively, up to a depth of MAX_DEPTH."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        """Compose a node and all nodes inside of it.

        Raises:
            MarkedYAMLError: if it is too deep in the document.
        """
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise yaml.MarkedYAMLError(
                    problem=f"the document nests deeper than {MAX_DEPTH} levels",
                    problem_mark=self.get_mark(),
                )
            return super().compose_node(parent, index)  # type: ignore[arg-type]
        finally:
            self._depth -= 1


class _Builder:
    """Converts one document from nodes of PyYAML to nodes of this module."""

    def __init__(self, text: YamlText, substitution: Substitution, problems: Problems) -> None:
        self._text = text
        self._substitution = substitution
        self._problems = problems
        self._built_ids: set[int] = set()
        self._aliased = 0

    def build(self, raw: yaml.Node, path: str, depth: int) -> Node:
        """Convert a node of PyYAML and all nodes inside of the node.

        Raises:
            Invalid: if aliases make the document too deep or too large.
        """
        location = self._text.location(raw.start_mark)
        self._check_size(raw, location, depth)
        if isinstance(raw, yaml.ScalarNode):
            return self._scalar(raw, location, path)
        if raw.tag not in _COLLECTION_TAGS:
            return self._unknown_tag(raw, location, path)
        if isinstance(raw, yaml.SequenceNode):
            items = enumerate(raw.value)
            return ListNode(
                location,
                path,
                tuple(self.build(item, f"{path}[{index}]", depth + 1) for index, item in items),
            )
        return self._mapping(raw, location, path, depth)

    def _check_size(self, raw: yaml.Node, location: Location, depth: int) -> None:
        if depth > MAX_DEPTH:
            text = f"aliases make the document nest deeper than {MAX_DEPTH} levels"
            raise self._problems.report(location, "", text)
        self._aliased += id(raw) in self._built_ids
        self._built_ids.add(id(raw))
        if self._aliased > MAX_ALIASED_NODES:
            text = f"aliases make the document larger by more than {MAX_ALIASED_NODES} nodes"
            raise self._problems.report(location, "", text)

    def _unknown_tag(self, raw: yaml.Node, location: Location, path: str) -> Node:
        tag = raw.tag.replace(_TAG_PREFIX, "!!")
        self._problems.report(location, path, f"the YAML tag {tag!r} is not supported; remove it")
        return BrokenNode(location, path)

    def _scalar(self, raw: yaml.ScalarNode, location: Location, path: str) -> Node:
        if raw.tag not in _SCALAR_TAGS:
            return self._unknown_tag(raw, location, path)
        try:
            text = self._substitution.apply(raw.value)
        except SubstitutionError as error:
            for sentence in error.texts:
                self._problems.report(location, path, sentence)
            return BrokenNode(location, path)
        try:
            text.encode()
        except UnicodeEncodeError:
            # From an escape such as "\ud800", or from an environment variable that is not UTF-8.
            self._problems.report(location, path, "contains characters that are not Unicode text")
            return BrokenNode(location, path)
        is_null = raw.tag == _TAG_PREFIX + "null"
        return ScalarNode(location, path, source=raw.value, text=text, is_null=is_null)

    def _mapping(self, raw: yaml.Node, location: Location, path: str, depth: int) -> Node:
        entries: dict[str, Entry] = {}
        for raw_key, raw_value in raw.value:
            key = self._key(raw_key, path)
            if key is None:
                continue
            value = self.build(raw_value, key.path, depth + 1)
            first = entries.setdefault(key.text, Entry(key, value))
            if first.key is not key:
                text = f"duplicate key {key.quoted}; it first appears at {first.key.location}"
                self._problems.report(key.location, key.path, text)
        return MapNode(location, path, tuple(entries.values()))

    def _key(self, raw: yaml.Node, path: str) -> ScalarNode | None:
        location = self._text.location(raw.start_mark)
        if not isinstance(raw, yaml.ScalarNode) or raw.tag == _TAG_PREFIX + "null":
            self._problems.report(location, path, "a key must be a string")
            return None
        key = self._scalar(raw, location, f"{path}.{raw.value}" if path else raw.value)
        return key if isinstance(key, ScalarNode) else None
