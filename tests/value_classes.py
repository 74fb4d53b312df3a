# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for annotations of values, with classes made at random, and for values of them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import count
from typing import Any, Literal, NamedTuple, Optional, TypedDict, Union
from uuid import UUID

import attrs
import msgspec
import pydantic
from hypothesis import reject
from hypothesis import strategies as st
from strategies import unicode_texts

_NAMES = ("first", "second_part", "third")
_numbers = count()


class Kind(NamedTuple):
    """An annotation, and its values."""

    annotation: Any
    values: st.SearchStrategy[Any]


class Colour(enum.Enum):
    """An enum of texts, one of which looks like JSON."""

    RED = "red"
    LIST = "[1]"


class Level(enum.IntEnum):
    """An enum of numbers."""

    LOW = 1
    HIGH = 20


_TEXTS = st.sampled_from(["[a remark in brackets]", "{", "5", "null", '"quoted"']) | unicode_texts()
_LONGS = st.integers(-(2**63), 2**63 - 1)
_ZONES = st.sampled_from([timezone.utc, timezone(timedelta(hours=-5, minutes=-30))])
_LIMITS = datetime(1, 1, 3), datetime(9999, 12, 29)  # noqa: DTZ001 - as Hypothesis takes them
_MOMENTS = st.datetimes(*_LIMITS) | st.datetimes(*_LIMITS, timezones=_ZONES)
_ANYTHING = st.recursive(
    st.none() | st.booleans() | _LONGS | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXTS, inner, max_size=2),
    max_leaves=4,
)
_PLAIN = [
    Kind(bool, st.booleans()),
    Kind(int, _LONGS | st.integers(-(2**64), 2**64)),
    Kind(str, _TEXTS),
    Kind(Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    Kind(UUID, st.uuids()),
    Kind(date, st.dates()),
    Kind(Colour, st.sampled_from(Colour)),
    Kind(Level, st.sampled_from(Level)),
    Kind(Literal["a", "b"], st.sampled_from(["a", "b"])),
    Kind(Literal["1", 1], st.sampled_from(["1", 1])),
]
"""Annotations whose values can be the keys of a dict."""
_SINGLE = [
    *_PLAIN,
    Kind(float, st.floats()),
    Kind(bytes, st.binary(max_size=8)),
    Kind(datetime, _MOMENTS),
    Kind(time, st.times()),
    Kind(timedelta, st.timedeltas(timedelta(days=-999), timedelta(days=999))),
    Kind(Any, _ANYTHING),
    Kind(type(None), st.none()),
]


def kinds() -> st.SearchStrategy[Kind]:
    """Annotations with classes of all kinds, and their values; not each of them can be encoded."""
    return st.recursive(st.sampled_from(_SINGLE), _containing, max_leaves=5)


def _containing(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda each: Kind(list[each.annotation], st.lists(each.values, max_size=3))),  # type: ignore[name-defined] # made at random
        inner.map(lambda each: Kind(Optional[each.annotation], st.none() | each.values)),  # noqa: UP045 - also of other than classes
        several.map(_tuple),
        several.map(lambda some: Kind(Union[tuple(e.annotation for e in some)], _one_of(some))),  # noqa: UP007 - as above
        st.sampled_from(_PLAIN).map(
            lambda each: Kind(frozenset[each.annotation], st.frozensets(each.values, max_size=3))  # type: ignore[name-defined] # made at random
        ),
        st.tuples(st.sampled_from(_PLAIN), inner).map(_dict),
        st.tuples(st.sampled_from(_CLASSES), several).map(lambda pair: pair[0](pair[1])),
    )


def _one_of(some: Sequence[Kind]) -> st.SearchStrategy[Any]:
    return st.one_of([each.values for each in some])


def _tuple(some: Sequence[Kind]) -> Kind:
    values = st.tuples(*(each.values for each in some))
    return Kind(tuple[tuple(each.annotation for each in some)], values)  # type: ignore[misc] # made at random


def _dict(pair: tuple[Kind, Kind]) -> Kind:
    key, value = pair
    values = st.dictionaries(key.values, value.values, max_size=3)
    return Kind(dict[key.annotation, value.annotation], values)  # type: ignore[name-defined] # made at random


def _annotations(some: Sequence[Kind]) -> list[tuple[str, Any]]:
    return [(name, each.annotation) for name, each in zip(_NAMES, some, strict=False)]


def _values(some: Sequence[Kind]) -> dict[str, st.SearchStrategy[Any]]:
    return {name: each.values for name, each in zip(_NAMES, some, strict=False)}


def _made(make: Callable[[str, list[tuple[str, Any]]], Any]) -> Callable[[Sequence[Kind]], Kind]:
    """Return a function that makes a class with some fields, and the strategy of its objects."""

    def kind(some: Sequence[Kind]) -> Kind:
        try:
            class_ = make(f"Made{next(_numbers)}", _annotations(some))
        except pydantic.PydanticUserError:  # Pydantic does not take classes of all kinds
            reject()
        fields = st.fixed_dictionaries(_values(some))
        return Kind(class_, fields.map(lambda each: class_(**each)))

    return kind


def _typed_dict(some: Sequence[Kind]) -> Kind:
    name = f"Made{next(_numbers)}"
    class_ = TypedDict(name, dict(_annotations(some)), total=False)  # type: ignore[misc] # noqa: UP013 - made at random
    return Kind(class_, st.fixed_dictionaries({}, optional=_values(some)))


def _pydantic(name: str, of: list[tuple[str, Any]]) -> Any:
    fields: dict[str, Any] = {n: (type_, pydantic.Field(alias=n.title())) for n, type_ in of}
    config = pydantic.ConfigDict(populate_by_name=True)
    return pydantic.create_model(name, __config__=config, **fields)


_CLASSES: Sequence[Callable[[Sequence[Kind]], Kind]] = (
    _typed_dict,
    _made(dataclasses.make_dataclass),
    _made(lambda name, of: attrs.make_class(name, {n: attrs.field(type=t) for n, t in of})),
    _made(lambda name, of: NamedTuple(name, of)),  # noqa: PLW0108 - mypy takes no NamedTuple as a function
    _made(lambda name, of: msgspec.defstruct(name, of, rename="camel")),
    _made(lambda name, of: msgspec.defstruct(name, of, tag=True, array_like=True)),
    _made(_pydantic),
)
