# SPDX-License-Identifier: Apache-2.0
"""Converts documents of the three formats of module files to components (`Component`).

* current: a document with ``kind`` and ``spec`` for each component;
* ``version: "3.0"``: a document with lists of endpoints, ingresses and egresses;
* ``version: "1.0"`` and ``"2.0"``: the same with older names, and with functions and routers.

Examples that were published in the two older formats are indented such that YAML sees another structure
than was meant. Such documents are accepted, because they can have only one meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import attrs

from statefun.module.kinds.catalogue import LEGACY_SECTIONS, LegacySection, kinds
from statefun.module.yaml.components import Component
from statefun.module.yaml.nodes import BrokenNode, Entry, ListNode, MapNode, Node, ScalarNode
from statefun.module.yaml.problems import Invalid, Problems
from statefun.module.yaml.readers import anything, choice, mapping
from statefun.module.yaml.shapes import Key, Reader, Shape, Values, did_you_mean, expect


def components(document: Node, problems: Problems) -> list[Component]:
    """Return the components of a document; report and leave out components that have problems."""
    try:
        root = expect(document, MapNode, "a mapping with the keys kind and spec", problems)
        if root.get("version") or root.get("module"):
            return _legacy_components(root, problems)
        return [_current_component(root, problems)]
    except Invalid:
        return []


def _kind_named(valid_names: Callable[[], Iterable[str]]) -> Reader[str]:
    """Return a reader of the name of a kind; if it reports an unknown name, it suggests a similar one."""

    def read(node: Node, problems: Problems) -> str:
        names = tuple(valid_names())
        scalar = expect(node, ScalarNode, "the name of a kind", problems)
        if scalar.text not in names:
            hint = did_you_mean(scalar, names).hint
            sentence = f"unknown kind {scalar.quoted}; {hint}known kinds: {', '.join(names)}"
            raise problems.report(scalar.location, scalar.path, sentence)
        return scalar.text

    return read


_KIND = Key(
    "kind",
    _kind_named(kinds),
    "the kind of the component, such as io.statefun.kafka.v1/ingress",
    required=True,
)
_SPEC = Key("spec", mapping, "the mapping that configures the component", required=True)
_CURRENT = Shape((_KIND, _SPEC))


def _current_component(root: MapNode, problems: Problems) -> Component:
    values = _CURRENT.read(root, problems)
    return Component(values[_KIND], values[_SPEC], root.location)


_VERSIONS = ("1.0", "2.0", "3.0")
_VERSION = Key(
    "version",
    choice(
        "version",
        {version: version for version in _VERSIONS},
    ),
    f"one of {', '.join(_VERSIONS)}",
    required=True,
)
_MODULE = Key("module", mapping, "the mapping with meta and spec", required=True)
_MODULE_TYPE = Key(
    "type",
    choice("module type", {"remote": "remote"}),
    "remote",
    required=True,
)
_ANY_META = Key("meta", anything, "the mapping that names the type", required=True)
_ANY_SPEC = Key("spec", anything, "the mapping with ingresses and egresses", required=True)


def _is_null(node: Node | None) -> bool:
    return isinstance(node, ScalarNode) and node.is_null


def _legacy_components(root: MapNode, problems: Problems) -> list[Component]:
    module = root.get(_MODULE.name)
    # Published documents have `spec:` at the left margin instead of inside the module.
    outdented = isinstance(module, MapNode) and module.get(_ANY_SPEC.name) is None
    root_keys = (_VERSION, _MODULE, *((_ANY_SPEC,) if outdented else ()))
    top = Shape(root_keys).read(root, problems)
    inner = _read_module(top[_MODULE], problems, with_spec=not outdented)
    spec = (top if outdented else inner)[_ANY_SPEC]
    sections = tuple(
        Key(name, partial(_section, section), f"a list of mappings with {section.wrapper}")
        for name, section in LEGACY_SECTIONS.items()
    )
    values = Shape(sections).read(spec, problems)
    return [component for key in sections for component in values.get(key, [])]


def _read_module(module: MapNode, problems: Problems, *, with_spec: bool) -> Values:
    spec_keys = (_ANY_SPEC,) if with_spec else ()
    # Published documents have `type: remote` next to an empty `meta:` instead of inside it.
    if _is_null(module.get(_ANY_META.name)):
        return Shape((_ANY_META, _MODULE_TYPE, *spec_keys)).read(module, problems)
    return Shape((_MODULE_META, *spec_keys)).read(module, problems)


_MODULE_META = Key("meta", Shape((_MODULE_TYPE,)).read, _ANY_META.doc, required=True)


def _section(section: LegacySection, node: Node, problems: Problems) -> list[Component]:
    """Read the components of a list of an older document, such as ``ingresses``."""
    if _is_null(node):
        return []  # a published template has only comments in the list
    # Published documents have the mapping of a single item without a list around it.
    items = (
        (node,)
        if isinstance(node, MapNode)
        else expect(node, ListNode, f"a list of mappings with {section.wrapper}", problems).items
    )
    read_items = []
    for item in items:
        try:
            read_items.append(_item(section, item, problems))
        except Invalid:
            continue
    return read_items


def _item(section: LegacySection, item: Node, problems: Problems) -> Component:
    what = f"a mapping with the key {section.wrapper}"
    outer = expect(item, MapNode, what, problems)
    wrapped = outer.get(section.wrapper)
    wrapper = Key(section.wrapper, anything, "the mapping with meta and spec", required=True)
    meta = _meta(section)
    # Published documents have meta and spec next to an empty `ingress:` instead of inside it.
    if _is_null(wrapped) or (wrapped is None and outer.get(meta.name) is not None):
        keys = (attrs.evolve(wrapper, required=False), meta, _SPEC)
        values = Shape(keys).read(outer, problems)
    else:
        inner = Shape((wrapper,)).read(outer, problems)[wrapper]
        values = Shape((meta, _SPEC)).read(inner, problems)
    kind, moved = values[meta]
    spec = values[_SPEC]
    for entry in spec.entries:
        if entry.key.text == section.id_name:
            sentence = f"{entry.key.quoted} belongs in meta, not in spec"
            problems.report(entry.key.location, entry.key.path, sentence)
    entries = (*moved, *spec.entries)
    return Component(kind, attrs.evolve(spec, entries=entries), item.location, legacy=True)


def _meta(section: LegacySection) -> Key[tuple[str, tuple[Entry, ...]]]:
    """Return the declaration of the key ``meta``, which a list item of an older document has.

    The key's value is a pair: the current name of the kind, and the entries of ``meta`` that a current
    document has in ``spec``, such as the id.
    """
    kind = Key(
        section.discriminator,
        _kind_named(lambda: section.kinds),
        f"one of {', '.join(section.kinds)}",
        required=True,
    )
    moved = () if section.id_name is None else (_id_key(section.id_name),)

    def read(node: Node, problems: Problems) -> tuple[str, tuple[Entry, ...]]:
        values = Shape((kind, *moved)).read(node, problems)
        meta = expect(node, MapNode, "a mapping", problems)
        entries = tuple(entry for entry in meta.entries if entry.key.text == section.id_name)
        if section.id_name and not entries:
            # A missing id was reported here; the spec must not report it again.
            key = ScalarNode(node.location, node.path, section.id_name, section.id_name)
            entries = (Entry(key, BrokenNode(node.location, node.path)),)
        return section.kinds[values[kind]], entries

    return Key("meta", read, _ANY_META.doc, required=True)


def _id_key(name: str) -> Key[Node]:
    return Key(name, anything, "the component's name, <namespace>/<name>", required=True)
