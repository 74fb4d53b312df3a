# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import typing
from collections import OrderedDict
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Generic, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from statefun import (
    Address,
    DefinitionError,
    KafkaEgressMessage,
    KinesisEgressMessage,
    Type,
    TypeRegistry,
    egress_message_builder,
    make_json_type,
    make_msgpack_type,
    message_builder,
    types,
)
from statefun.runtime.spark_internals.closures import pickled_closure, unpickled_closure
from statefun.sdk.annotations import automatic_type, type_of_value
from statefun.sdk.encoding import typed
from statefun.sdk.fields import is_immutable, text_of_annotation
from statefun.sdk.message import message_to
from statefun.sdk.structured import StructuredType
from statefun.sdk.types import SimpleType

V = TypeVar("V")


class Kind(enum.Enum):
    """Small and large."""

    SMALL = "small"
    LARGE = "large"


@dataclasses.dataclass
class Item:
    """Of an order."""

    sku: str
    count: int = 1
    kind: Kind = Kind.SMALL


@attrs.define
class Order:
    """With everything that fields can be."""

    id: UUID
    at: datetime
    items: list[Item]
    total: Decimal
    note: str | None = None
    tags: frozenset[str] = frozenset()
    more: dict[str, int] = attrs.field(factory=dict)
    raw: bytes = b""
    day: date | None = None
    took: timedelta = timedelta(0)
    number: int = attrs.field(default=1, validator=attrs.validators.ge(0))


class Model(pydantic.BaseModel):
    """Of Pydantic."""

    name: str
    at: datetime | None = None
    sizes: list[int] = []


@dataclasses.dataclass
class Node:
    """Holds its like."""

    value: int
    next: Node | None = None


@dataclasses.dataclass
class Box(Generic[V]):
    """Holds something."""

    content: V


class Plain(TypedDict):
    """A dict, for a type checker."""

    a: int


@dataclasses.dataclass
class Base:
    """A class that another one extends."""

    n: int


@dataclasses.dataclass
class Derived(Base):
    """The other one."""

    more: str = ""


class Aliased(pydantic.BaseModel):
    """Its field has another name in JSON."""

    name: str = pydantic.Field("x", alias="userName")


@pydantic.dataclasses.dataclass
class Checked:
    """A dataclass of Pydantic's."""

    n: int = 0


@dataclasses.dataclass(eq=False)
class Unequal:
    """Two of the same content differ."""

    n: int


orders = st.builds(
    Order,
    id=st.uuids(),
    at=st.datetimes(timezones=st.just(timezone.utc)),
    items=st.lists(st.builds(Item, sku=st.text(), count=st.integers(), kind=st.sampled_from(Kind))),
    total=st.decimals(allow_nan=False, allow_infinity=False),
    note=st.none() | st.text(),
    tags=st.frozensets(st.text()),
    more=st.dictionaries(st.text(), st.integers()),
    raw=st.binary(),
    day=st.none() | st.dates(),
    number=st.integers(0, 9),
)
FORMATS = ["json", "msgpack"]


def type_of(annotation: Any, encoding: str) -> Type[Any]:
    """Return a type that is not registered."""
    return StructuredType("test.structured/type", annotation, encoding)  # type: ignore[arg-type] # one of FORMATS


@pytest.mark.parametrize("encoding", FORMATS)
@given(order=orders)
def test_orders_come_back(encoding: str, order: Order) -> None:
    """All kinds of fields, in both encodings; large numbers only in JSON."""
    type_ = type_of(Order, encoding)
    if encoding == "msgpack" and any(abs(item.count) >= 2**63 for item in order.items):
        order.items = []
    if encoding == "msgpack" and any(abs(each) >= 2**63 for each in order.more.values()):
        order.more = {}

    assert type_.decode(*typed(order, type_)) == order


@pytest.mark.parametrize("encoding", FORMATS)
@given(model=st.builds(Model, name=st.text(), sizes=st.lists(st.integers(-9, 9))))
def test_models_come_back(encoding: str, model: Model) -> None:
    """Pydantic's own methods encode and decode."""
    type_ = type_of(Model, encoding)

    assert type_.decode(*typed(model, type_)) == model


@pytest.mark.parametrize("encoding", FORMATS)
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Node, Node(1, Node(2))),
        (Box[int], Box(3)),
        (Box[Node], Box(Node(1, Node(2)))),
        (list[Item], [Item("a")]),
        (dict[int, str], {1: "a"}),
        (Plain, {"a": 1}),
        (Kind, Kind.LARGE),
        (Any, {"a": [1, None, "b"]}),
        (int | str, "text"),
        (Node | None, None),
        (Aliased, Aliased(userName="Ada")),
        (Checked, Checked(3)),
    ],
)
def test_what_annotations_can_say(encoding: str, annotation: Any, value: Any) -> None:
    """Classes that hold their like, generic ones, and what is no class."""
    type_ = type_of(annotation, encoding)

    assert type_.decode(*typed(value, type_)) == value
    assert unpickled_closure(pickled_closure(type_)).decode(*typed(value, type_)) == value


class Secret(pydantic.BaseModel):
    """Its JSON hides what it holds."""

    password: pydantic.SecretStr


class Renamed(pydantic.BaseModel):
    """Its fields have other names where it is written, or are left out."""

    a: int = pydantic.Field(1, serialization_alias="A")
    b: int | None = pydantic.Field(None, exclude=True)
    _cache: dict[str, int] = pydantic.PrivateAttr(default_factory=dict)


@attrs.define
class Cached:
    """What it has computed would become a part of it."""

    xs: list[int]

    @functools.cached_property
    def total(self) -> int:
        """Return the sum."""
        return sum(self.xs)


@dataclasses.dataclass
class Narrow(Item):
    """Another annotation of the same field."""

    sku: typing.Literal["narrow"] = "narrow"


def test_secrets_are_not_lost_silently() -> None:
    """A model that would come back without them is refused."""
    with pytest.raises(DefinitionError, match="decoding would return another value"):
        typed(Secret(password=pydantic.SecretStr("x")), type_of(Secret, "json"))


@pytest.mark.parametrize("encoding", FORMATS)
def test_models_are_written_as_they_are_read(encoding: str) -> None:
    """By their names, if their aliases differ; what they exclude is left out."""
    type_ = type_of(Renamed, encoding)
    value = Renamed(a=5, b=3)
    value._cache["a"] = 1  # noqa: SLF001 - a part that is not encoded

    assert type_.decode(*typed(value, type_)) == Renamed(a=5, b=None)


@pytest.mark.parametrize("encoding", FORMATS)
def test_hours_that_come_twice(encoding: str) -> None:
    """The end of summer time: the same instant, though it is not equal in another time zone."""
    at = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    type_ = type_of(datetime, encoding)

    assert type_.decode(*typed(at, type_)).timestamp() == at.timestamp()


def test_annotations_of_subclasses_stay_theirs() -> None:
    """A base that was used through a subclass is as it was."""
    type_of(Narrow, "json")

    assert typing.get_type_hints(Item)["sku"] is str
    assert typed(Item("other"), type_of(Item, "json")).value


def test_values_that_only_seem_to_differ() -> None:
    """NaN is not equal to itself, and some classes do not compare by their fields."""
    nan = type_of(float, "msgpack")
    unequal = type_of(Unequal, "json")

    assert math.isnan(nan.decode(*typed(math.nan, nan)))
    assert unequal.decode(*typed(Unequal(3), unequal)).n == 3
    struct = type_of(msgspec.defstruct("Measure", [("value", float)]), "msgpack")
    measure: Any = struct.python_type
    assert math.isnan(struct.decode(*typed(measure(math.nan), struct)).value)


@pytest.mark.parametrize(
    ("annotation", "content", "value"),
    [
        (Item, b'{"sku": "a", "gone": 7}', Item("a")),
        (Model, b'{"name": "a", "gone": 7}', Model(name="a")),
        (Box[int], b'{"content": 1, "gone": {"x": []}}', Box(1)),
    ],
)
def test_fields_may_come_and_go(annotation: Any, content: bytes, value: Any) -> None:
    """What a class no longer has is ignored; what is missing has its default."""
    assert type_of(annotation, "json").decode("", content) == value


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (Item, Item(5), "Expected `str`, got `int` - at `$.sku`"),  # type: ignore[arg-type]
        (Item, {"sku": "a"}, "the value is not of class Item"),
        (Order, None, "the value is not of class Order"),
        (Model, Item("a"), "the value is not of class Model"),
        (float, float("nan"), "Expected `float`, got `null`"),
        (Item, Item("\ud800"), "surrogates not allowed"),
        (list[int], [1, True], "Expected `int`, got `bool`"),
        (list[Base], [Derived(1, "more")], "decoding would return another value, [Base(n=1)]"),
        (dict, {5: (1, 2)}, "decoding would return another value, {'5': [1, 2]}"),
        (list[float | None], [float("nan")], "decoding would return another value, [None]"),
        (Aliased, Aliased.model_construct(name=5), "should be a valid string"),
    ],
)
def test_values_that_could_not_be_decoded_are_not_encoded(
    annotation: Any, value: Any, problem: str
) -> None:
    """The mistake shows where it is made, not where the value is read."""
    with pytest.raises(DefinitionError) as raised:
        typed(value, type_of(annotation, "json"))

    assert problem in raised.value.message


class Color(str, enum.Enum):
    """A text with a class of its own."""

    RED = "red"


class Level(enum.IntEnum):
    """A number with a class of its own."""

    LOW = 1


def like_json() -> st.SearchStrategy[Any]:
    """Return values that JSON has, and others that Python programs put in their place."""
    numbers = st.integers() | st.floats() | st.decimals() | st.sampled_from(Level)
    leaves = st.none() | st.booleans() | numbers | st.text() | st.binary() | st.datetimes()
    keys = st.text() | st.integers() | st.none() | st.booleans() | st.sampled_from(Color)
    return st.recursive(
        leaves | st.sampled_from(Color) | st.builds(Item, sku=st.text()),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner, inner)
            | st.frozensets(st.integers())
            | st.dictionaries(keys, inner, max_size=3)
            | st.dictionaries(keys, inner, max_size=3).map(OrderedDict)
        ),
        max_leaves=6,
    )


def classes_in(value: Any) -> Any:
    """Return a value with the class of each part, in its order; all NaN are one."""
    if isinstance(value, dict):
        return type(value), [(classes_in(key), classes_in(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [classes_in(each) for each in value]
    return type(value), "nan" if value != value else value  # noqa: PLR0124 - NaN alone


def reading(value: Any) -> Type[Any]:
    """Return the type that a receiver has for a value that was sent without one."""
    sent = type_of_value(value)
    is_json = sent.typename == "io.statefun.python/json"
    is_one = not isinstance(value, list | tuple | dict | frozenset)
    return automatic_type(type(value) if is_one else Any) if is_json else sent


PLAIN_JSON = make_json_type("test.structured/plain-json")
ANY_JSON: Type[Any] = StructuredType("test.structured/any-json", Any)
ANY_MSGPACK: Type[Any] = StructuredType("test.structured/any-msgpack", Any, "msgpack")
DICTS: Type[Any] = StructuredType("test.structured/dicts", dict[str, Any])
TO = Address("test.structured/fn", "Ada")
GENERIC: dict[str, Callable[[Any], Any]] = {
    "json": lambda value: PLAIN_JSON.decode(*typed(value, PLAIN_JSON)),
    "any json": lambda value: ANY_JSON.decode(*typed(value, ANY_JSON)),
    "any msgpack": lambda value: ANY_MSGPACK.decode(*typed(value, ANY_MSGPACK)),
    "dicts": lambda value: DICTS.decode(*typed(value, DICTS)),
    "send": lambda value: reading(value).decode(*message_to(TO, value).typed_value),
    "builder": lambda value: (
        message_builder("test.structured/fn", "Ada", value=value, value_type=PLAIN_JSON)
    ).as_type(PLAIN_JSON),
    "egress builder": lambda value: PLAIN_JSON.decode(
        *egress_message_builder("test.structured/out", value, PLAIN_JSON).typed_value
    ),
    "Kafka": lambda value: json.loads(
        KafkaEgressMessage("a/b", topic="t", value=value, value_type=PLAIN_JSON).value or b""
    ),
    "Kinesis": lambda value: json.loads(
        KinesisEgressMessage(
            "a/b", stream="t", partition_key="", value=value, value_type=PLAIN_JSON
        ).value
    ),
}
"""What sends a value whose class says nothing of what it holds, and what its receiver sees."""
CHANGED = [
    {1: "one", "1": "uno", "ratio": math.nan, "when": (1, 2)},
    {1: "one"},
    {"ratio": math.nan},
    {"ratio": math.inf},
    {"when": (1, 2)},
    {"more": {"color": [Color.RED]}},
    {Color.RED: 1},
    {"level": Level.LOW},
    OrderedDict(a=1),
]


@pytest.mark.parametrize("path", sorted(GENERIC))
@pytest.mark.parametrize("value", CHANGED, ids=str)
def test_values_that_would_arrive_changed_are_refused(path: str, value: Any) -> None:
    """Each of them was once sent, and was another value where it arrived."""
    if path == "any msgpack" and value in CHANGED[1:4]:
        assert classes_in(GENERIC[path](value)) == classes_in(value)  # MessagePack has them
    else:
        with pytest.raises(DefinitionError, match="does not encode as"):
            GENERIC[path](value)


@pytest.mark.parametrize("path", sorted(GENERIC))
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(value=like_json() | st.dictionaries(st.text(), like_json(), max_size=3))
def test_what_is_accepted_arrives(path: str, value: Any) -> None:
    """Equal, and of equal classes; whatever else it is, it is refused where it is made."""
    try:
        arrived = GENERIC[path](value)
    except DefinitionError:
        assume(False)

    assert classes_in(arrived) == classes_in(value)


@pytest.mark.parametrize("path", sorted(GENERIC))
@given(
    value=st.dictionaries(
        st.text(),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**63 - 1)
            # MessagePack and JSON keep each other one as well
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=6,
        ),
    )
)
def test_what_json_has_is_accepted(path: str, value: Any) -> None:
    """The rule above holds, and refuses nothing of it."""
    assert classes_in(GENERIC[path](value)) == classes_in(value)


def test_a_refused_value_says_what_to_write() -> None:
    """By its annotation it comes back."""
    with pytest.raises(
        DefinitionError, match=r"make_json_type\('com.example/Pair', tuple\[int, str"
    ):
        message_to(TO, (1, "a"))

    pair: Type[Any] = StructuredType("test.structured/pair", tuple[int, str])
    assert pair.decode(*message_to(TO, (1, "a"), pair).typed_value) == (1, "a")


def test_validators_see_decoded_values() -> None:
    """Those of attrs; and what Pydantic checks."""
    with pytest.raises(Exception, match="'number' must be >= 0"):
        type_of(Order, "json").decode(
            "",
            b'{"id":"%s","at":"2020-01-01T00:00:00Z","items":[],"total":"1","number":-1}'
            % UUID(int=0).hex.encode(),
        )
    with pytest.raises(pydantic.ValidationError):
        type_of(Model, "json").decode("", b"{}")


class _Opaque:
    pass


@dataclasses.dataclass
class _Outer:
    inner: list[_Opaque]


@dataclasses.dataclass
class _WithInit:
    n: int
    extra: dataclasses.InitVar[int] = 0


@attrs.frozen
class _Private:
    _n: int


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (_Opaque, "_Opaque is neither a dataclass"),
        (_Outer, "_Opaque is neither a dataclass"),
        (_WithInit, "InitVar"),
        (_Private, "_Private has a private field, _n"),
        (Cached, "Cached has a cached property"),
        (Item | Node, "may not contain more than one dataclass"),
        ("Missing", "cannot be decoded"),
    ],
)
def test_classes_that_cannot_be_decoded_are_refused(annotation: Any, problem: str) -> None:
    """When the type is made."""
    with pytest.raises(DefinitionError, match=problem):
        make_json_type("test.structured/refused", annotation)

    assert types.find("test.structured/refused") is None


def test_upgrades_go_from_version_to_version() -> None:
    """A newer version reads all older ones; what it makes of them is its own."""
    first = make_json_type("test.structured/V1")
    second = make_json_type(
        "test.structured/V2", Item, upgrades={first: lambda old: Item(old["name"])}
    )
    third = make_msgpack_type(
        "test.structured/V3", Node, upgrades={second: lambda old: Node(old.count)}
    )
    stored = typed({"name": "a"}, first)

    assert third.decode(*stored) == Node(1)
    assert third.decode(*typed(Item("b", 4), second)) == Node(4)
    assert [third.reads(f"test.structured/V{n}") for n in range(5)] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert unpickled_closure(pickled_closure(third)).decode(*stored) == Node(1)
    assert not second.reads(third.typename)


@pytest.mark.parametrize(
    ("upgrades", "problem"),
    [
        ({"test.structured/V1": dict}, "must map an older Type to a function"),
        ({make_json_type("test.structured/old"): 5}, "must map an older Type to a function"),
        (
            {make_json_type("test.structured/wrong"): dict},
            "must not contain the type's own typename",
        ),
    ],
)
def test_upgrades_that_cannot_work_are_refused(upgrades: Any, problem: str) -> None:
    """When the type is made."""
    with pytest.raises(DefinitionError, match=problem):
        make_json_type("test.structured/wrong", Item, upgrades=upgrades)


def test_registries_list_their_types() -> None:
    """By name; a class may have several types, of which the first encodes."""
    one: Type[Any] = StructuredType("test/b", Item)
    two: Type[Any] = StructuredType("test/a", Item, "msgpack")
    other = SimpleType("test/c", str.encode, bytes.decode)
    registry = TypeRegistry([one, two, other])

    assert registry.list() == [two, one, other]
    assert registry.of_class(Item) == (one, two)
    assert registry.of_class(Node) == ()
    registry.add(StructuredType("test/d", Node))
    assert len(registry.of_class(Node)) == 1
    with pytest.raises(DefinitionError, match=r"another type \(.*Item as json\)"):
        registry.add(StructuredType("test/b", Node))


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, True),
        (Kind, True),
        (tuple[int, ...], True),
        (typing.Literal["a", "b"], True),
        (typing.Annotated[str, 1], True),
        (frozenset[bytes] | None, True),
        (tuple[list[int], int], False),
        (Item, False),
        (Order, False),
        (dict[str, int], False),
        (Any, False),
    ],
)
def test_immutable_annotations(annotation: Any, expected: bool) -> None:
    """Values of these need not be watched."""
    assert is_immutable(annotation) == expected


def test_annotations_are_shown_as_they_are_written() -> None:
    """In errors."""
    assert [text_of_annotation(each) for each in (int, int | None, list[str], Item)] == [
        "int",
        "int | None",
        "list[str]",
        "test_structured.Item",
    ]


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dict[str, Aliased], {"a": Aliased(userName="Ada")}),
        (list[Model], []),
        (tuple[Aliased, ...], (Aliased(userName="Ada"),)),
        (Aliased | None, Aliased(userName="Ada")),
        (Aliased | None, None),
        (dict[str, list[Aliased]], {"a": [Aliased(userName="Ada")]}),
    ],
)
def test_pydantic_models_may_be_parts_of_values(annotation: Any, value: Any, encoding: Any) -> None:
    """Of dicts, lists and whatever else Pydantic reads; a value that does not fit is refused."""
    serializer = type_of(annotation, encoding).serializer()

    assert serializer.deserialize(serializer.serialize(value)) == value
    with pytest.raises((TypeError, ValueError)):
        serializer.serialize({"a": "no model"})
