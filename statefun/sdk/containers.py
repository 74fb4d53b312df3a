# SPDX-License-Identifier: Apache-2.0
"""Compares the classes of containers: a Counter equals the dict that decoding returns, but behaves differently."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

Compare = Callable[[Any, Any], bool]
"""Returns whether the containers in a decoded value have the same classes in another, equal value."""


def comparison(annotation: Any) -> Compare | None:
    """Return a function that compares the classes of dicts, lists, tuples and sets; None if values contain none.

    The function gets a decoded value of the annotation and another, equal value.

    >>> from collections import Counter
    >>> compare = comparison(list[dict[str, int]])
    >>> compare([{"a": 1}], [{"a": 1}]), compare([{"a": 1}], [Counter("a")]), comparison(int | None)
    (True, False, None)
    """
    import msgspec  # noqa: PLC0415 - workers of programs without structured types do without

    return _Comparisons().of(msgspec.inspect.type_info(annotation))


class _Comparisons:
    """Makes the comparisons of a value's parts, each from msgspec's description of the part's type."""

    def __init__(self) -> None:
        self._of_classes: dict[int, _Fields] = {}
        """By the identity of the class's description; a class may have parts of its own class."""

    def of(self, described: Any) -> Compare | None:  # noqa: PLR0911 - one for each kind of container
        """Return the comparison of values of a type; None if they contain no containers."""
        import msgspec  # noqa: PLC0415 - as above

        kinds = msgspec.inspect
        if isinstance(described, kinds.UnionType):
            table = {_class_of(each): self.of(each) for each in described.types}
            return partial(_of_union, table) if any(table.values()) else None
        if isinstance(described, kinds.SetType | kinds.FrozenSetType):
            return _have_same_class  # the items cannot be changed
        if isinstance(described, kinds.DictType):
            return self._container(described.value_type, _of_dicts)
        if isinstance(described, kinds.CollectionType):
            return self._container(described.item_type, _of_items)
        if isinstance(described, kinds.TupleType):
            return partial(_of_tuples, [self.of(each) for each in described.item_types])
        if isinstance(described, kinds.TypedDictType):
            fields = self._fields(described.fields)
            return partial(_of_typed_dicts, fields)
        if not hasattr(described, "fields"):
            return None
        known = self._of_classes.get(id(described))
        if known is None:
            known = self._of_classes[id(described)] = _Fields()
            known.fields = self._fields(described.fields)
            known.is_whole = True
        # A part of a class that is not whole yet has the containers that the class is still to get.
        return known if known.fields or not known.is_whole else None

    def _container(self, item: Any, compare: Callable[[Compare, Any, Any], bool]) -> Compare:
        of_items = self.of(item)
        return _have_same_class if of_items is None else partial(compare, of_items)

    def _fields(self, fields: Iterable[Any]) -> list[tuple[str, Compare]]:
        compared = ((each.name, self.of(each.type)) for each in fields)
        return [(name, compare) for name, compare in compared if compare is not None]


class _Fields:
    """Compares the fields of objects that contain containers."""

    __slots__ = ("fields", "is_whole")

    def __init__(self) -> None:
        self.fields: list[tuple[str, Compare]] = []
        self.is_whole = False

    def __call__(self, one: Any, other: Any) -> bool:
        return all(
            compare(getattr(one, name), getattr(other, name)) for name, compare in self.fields
        )


def _class_of(described: Any) -> Any:
    """Return the class of decoded values of a type."""
    import msgspec  # noqa: PLC0415 - as above

    kinds = msgspec.inspect
    classes: list[tuple[Any, type]] = [
        (kinds.DictType | kinds.TypedDictType, dict),
        (kinds.ListType, list),
        (kinds.TupleType | kinds.VarTupleType, tuple),
        (kinds.SetType, set),
        (kinds.FrozenSetType, frozenset),
    ]
    class_ = getattr(described, "cls", None)
    built_in = next((built_in for each, built_in in classes if isinstance(described, each)), None)
    return built_in or typing.get_origin(class_) or class_


def _have_same_class(one: Any, other: Any) -> bool:
    return type(one) is type(other)


def _of_union(table: dict[Any, Compare | None], one: Any, other: Any) -> bool:
    compare = table.get(type(one))
    return compare is None or compare(one, other)


def _of_dicts(compare: Compare, one: Any, other: Any) -> bool:
    return type(one) is type(other) and all(map(compare, one.values(), other.values()))


def _of_items(compare: Compare, one: Any, other: Any) -> bool:
    return type(one) is type(other) and all(map(compare, one, other))


def _of_tuples(comparisons: list[Compare | None], one: Any, other: Any) -> bool:
    return type(one) is type(other) and all(
        compare is None or compare(each, its_other)
        for compare, each, its_other in zip(comparisons, one, other, strict=True)
    )


def _of_typed_dicts(fields: list[tuple[str, Compare]], one: Any, other: Any) -> bool:
    return type(one) is type(other) and all(
        compare(one[name], other[name]) for name, compare in fields if name in one
    )
