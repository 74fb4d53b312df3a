# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import dataclasses
import types
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any, ClassVar
from uuid import UUID, uuid4

import attrs
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from statefun import (
    DefinitionError,
    IntType,
    State,
    StateDecodeError,
    StringType,
    TypedValue,
    make_json_type,
    make_msgpack_type,
    state_value,
)
from statefun.protocol.types_pb2 import IntWrapper
from statefun.sdk.encoding import typed
from statefun.sdk.state import attached, state_specs, write_changes
from statefun.sdk.storage import Storage
from statefun.sdk.value_spec import value_specs
from statefun.sdk.values import Values


class Color(Enum):
    """An immutable value."""

    RED = "red"


@attrs.frozen
class Point:
    """Immutable, with immutable fields."""

    x: int
    color: Color = Color.RED


@attrs.define
class Basket:
    """Can be changed."""

    items: list[str]


class Model(pydantic.BaseModel):
    """Can be changed."""

    n: int = 0


@dataclasses.dataclass(frozen=True)
class Holder:
    """Frozen, around what can be changed."""

    items: list[int]


class Everything(State):
    """A value of each kind."""

    count: int = 0
    text: str = ""
    at: datetime | None = None
    point: Point | None = None
    basket: Basket | None = None
    model: Model = state_value(default_factory=Model)
    holder: Holder | None = None
    wrapper: IntWrapper | None = None
    numbers: list[int] = state_value(default_factory=list)
    small: Annotated[int, IntType] = 7
    either: int | str = 0
    kinds: ClassVar[int] = 11

    @property
    def double(self) -> int:
        """Methods and properties are as in any class."""
        return 2 * self.count


STORAGE = value_specs(state_specs(Everything))


def state_of(values: Values) -> Everything:
    """Return the state that an invocation gets."""
    return attached(Everything, values)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "count": st.integers(-(2**63), 2**63 - 1),
    "text": st.text(),
    "at": st.datetimes() | st.none(),
    "point": st.builds(Point, st.integers(-(2**53), 2**53)) | st.none(),
    "basket": st.builds(Basket, st.lists(st.text())) | st.none(),
    "model": st.builds(Model, n=st.integers()),
    "numbers": st.lists(st.integers(-9, 9)),
    "small": st.integers(-(2**31), 2**31 - 1),
    "either": st.integers(-9, 9) | st.text(),
}
DEFAULTS = {name: getattr(Everything(), name) for name in VALUES}
assignments = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: st.tuples(st.just(name), VALUES[name])
)


class StateModel(RuleBasedStateMachine):
    """A state behaves like an object with these attributes, from invocation to invocation."""

    stored: dict[str, TypedValue]
    model: dict[str, Any]
    state: Everything
    values: Values

    @initialize()
    def begin(self) -> None:
        """Start with a new address."""
        self.stored, self.model = {}, {}
        self.next_invocation()

    def next_invocation(self) -> None:
        """Begin an invocation with what is stored."""
        self.values = Values(STORAGE, self.stored)
        self.state = state_of(self.values)

    @rule(name_and_value=assignments)
    def assign(self, name_and_value: tuple[str, Any]) -> None:
        """Set a value; None deletes it."""
        name, value = name_and_value
        setattr(self.state, name, value)
        self.model[name] = copy.deepcopy(value)

    @rule(name=st.sampled_from(sorted(VALUES)))
    def delete(self, name: str) -> None:
        """Go back to the default."""
        delattr(self.state, name)
        self.model.pop(name, None)

    @rule(number=st.integers(0, 9))
    def change_inside(self, number: int) -> None:
        """Change values without assigning them."""
        self.state.numbers.append(number)
        self.model["numbers"] = [*self.model.get("numbers", []), number]
        self.state.model.n = number
        self.model["model"] = Model(n=number)
        if self.state.basket is not None:
            self.state.basket.items.append(str(number))
            self.model["basket"] = Basket([*self.model["basket"].items, str(number)])

    @rule()
    def commit(self) -> None:
        """Write what has changed, and go on with the next invocation."""
        write_changes(self.state)
        for name, value in self.values.changed.items():
            self.stored = {each: self.stored[each] for each in self.stored if each != name}
            if value is not None:
                self.stored[name] = value
        self.next_invocation()

    @rule()
    def fail(self) -> None:
        """Nothing of a failed invocation is kept."""
        kept = {name: self.stored[name] for name in self.stored}
        self.next_invocation()
        self.model = {
            name: getattr(state_of(Values(STORAGE, kept)), name) for name in VALUES if name in kept
        }

    @invariant()
    def reads_as_the_model(self) -> None:
        """Every value reads as it was written last."""
        for name, default in DEFAULTS.items():
            expected = self.model.get(name, default)
            assert getattr(self.state, name) == (default if expected is None else expected)


TestStateModel = StateModel.TestCase


def test_what_is_only_read_is_not_written() -> None:
    """Also where the stored bytes are those of an older version of the class."""
    stored = {
        "point": TypedValue("io.statefun.python/Point", b'{"x":1,"gone":2}'),
        "basket": TypedValue("io.statefun.python/Basket", b'{ "items" : ["a"], "gone": 2}'),
    }
    values = Values(STORAGE, stored)
    state = state_of(values)

    assert state.point == Point(1)
    assert state.basket == Basket(["a"])
    assert (state.model, state.numbers, state.double) == (Model(), [], 0)
    write_changes(state)

    assert values.changed == {}


def test_only_what_has_changed_inside_is_written() -> None:
    """A list, in a frozen class, in what the address begins with."""
    values = Values(STORAGE, {"holder": TypedValue("io.statefun.python/Holder", b'{"items":[1]}')})
    state = state_of(values)

    assert state.holder is not None
    state.holder.items.append(2)
    state.numbers.append(3)
    assert state.basket is None
    write_changes(state)

    assert {name: value and value.value for name, value in values.changed.items()} == {
        "holder": b'{"items":[1,2]}',
        "numbers": b"[3]",
    }


def test_values_are_decoded_when_they_are_read() -> None:
    """A value that cannot be decoded is no trouble to a function that does not read it."""
    values = Values(STORAGE, {"count": TypedValue("io.statefun.types/long", b"\xff")})
    state = state_of(values)

    state.text = "fine"
    write_changes(state)
    with pytest.raises(StateDecodeError, match=r"value 'count' \(1 bytes\) does not decode"):
        _ = state.count


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("count", None, "value 'count' cannot be set to None; delete it with 'del'"),
        ("count", "1", "value 'count': '1' does not encode as io.statefun.types/long: TypeError"),
        ("count", True, "value 'count': True does not encode as io.statefun.types/long"),
        ("count", 2**63, "value 'count': 9223372036854775808 does not encode"),
        ("small", 2**31, "value 'small': 2147483648 does not encode as io.statefun.types/int"),
        ("text", 1, "value 'text': 1 does not encode as io.statefun.types/string"),
        ("text", "\ud800", "value 'text': '\\ud800' does not encode"),
        ("point", Basket([]), "TypeError: the value is not of class Point"),
        ("point", Point("x"), "ValidationError: Expected `int`, got `str` - at `$.x`"),  # type: ignore[arg-type]
        ("basket", Basket([1]), "Expected `str`, got `int` - at `$.items[0]`"),  # type: ignore[list-item]
        ("either", 0.5, "Expected `int | str`, got `float`"),
        ("numbers", (object(),), "does not encode as io.statefun.python/json: TypeError"),
    ],
)
def test_what_a_value_cannot_be_is_refused_where_it_is_assigned(
    name: str, value: Any, problem: str
) -> None:
    """The error names the value; nothing is stored that could not be read."""
    values = Values(STORAGE, {})

    with pytest.raises(DefinitionError) as raised:
        setattr(state_of(values), name, value)

    assert problem in raised.value.message
    assert values.changed == {}


def test_what_became_wrong_inside_is_refused_at_the_end() -> None:
    """In the invocation that made it so."""
    state = state_of(Values(STORAGE, {}))
    state.basket = Basket([])
    state.basket.items.append(1)  # type: ignore[arg-type] # what is tested

    with pytest.raises(DefinitionError, match=r"value 'basket'.*Expected `str`, got `int`"):
        write_changes(state)


def test_unknown_names_are_errors() -> None:
    """A typo is no new attribute."""
    with pytest.raises(AttributeError, match="'Everything' object has no attribute 'cuont'"):
        Everything().cuont = 3  # type: ignore[attr-defined] # what is tested
    with pytest.raises(AttributeError):
        Everything().cuont  # type: ignore[attr-defined] # noqa: B018 - what is tested
    with pytest.raises(TypeError, match="has no value 'cuont'"):
        Everything(cuont=3)  # type: ignore[call-arg] # what is tested


def test_states_of_tests_hold_their_values() -> None:
    """They compare and print by their values."""

    class Small(State):
        n: int = 0
        items: list[str] = state_value(default_factory=list)

    class Other(State):
        n: int = 0
        items: list[str] = state_value(default_factory=list)

    state = Small(n=3)
    state.items.append("x")

    assert repr(state) == "Small(n=3, items=['x'])"
    assert state == Small(n=3, items=["x"])
    assert state != Small(n=3)
    assert Small() != Other()
    with pytest.raises(TypeError, match="unhashable"):
        hash(state)


@dataclasses.dataclass(eq=False)
class Mutable:
    """Hashable, and yet to be changed."""

    n: int = 0


class Defaults(State):
    """Values whose defaults could be shared."""

    items: list[int] = []  # noqa: RUF012 - what is tested
    holder: Holder = Holder([])
    lists: tuple[list[int], ...] = ([],)
    mutable: Mutable = Mutable()
    id: UUID = state_value(default_factory=uuid4)


def test_defaults_belong_to_one_address() -> None:
    """What is changed inside one is stored, and no other address sees it."""
    specs = value_specs(state_specs(Defaults))
    values = Values(specs, {})
    state = attached(Defaults, values)

    state.items.append(1)
    state.holder.items.append(2)
    state.lists[0].append(3)
    state.mutable.n = 4
    write_changes(state)

    other = attached(Defaults, Values(specs, {}))
    assert (other.items, other.holder, other.lists, other.mutable.n) == ([], Holder([]), ([],), 0)
    stored = {name: value for name, value in values.changed.items() if value is not None}
    again = attached(Defaults, Values(specs, stored))
    assert (again.items, again.holder, again.lists, again.mutable.n) == (
        [1],
        Holder([2]),
        ([3],),
        4,
    )


def test_what_a_factory_makes_is_stored_when_it_is_assigned() -> None:
    """It is another value in each call, and the same one within it; reading writes nothing."""
    specs = value_specs(state_specs(Defaults))
    values = Values(specs, {})
    state = attached(Defaults, values)

    made = state.id
    assert state.id == made
    assert attached(Defaults, Values(specs, {})).id != made
    write_changes(state)
    assert values.changed == {}
    state.id = made
    write_changes(state)
    stored = {name: value for name, value in values.changed.items() if value is not None}
    assert set(stored) == {"id"}
    assert attached(Defaults, Values(specs, stored)).id == made


def test_a_value_may_be_changed_in_one_way_at_a_time() -> None:
    """By the state, or by ctx.storage: in the same call, neither is lost silently."""
    specs = value_specs(state_specs(Defaults))
    for is_deleted in (False, True):
        values = Values(specs, {})
        state = attached(Defaults, values)
        state.items.append(1)
        Storage(values).items = [2]
        if is_deleted:
            del Storage(values).items
        with pytest.raises(DefinitionError, match=r"value 'items' was changed both through"):
            write_changes(state)

    values = Values(specs, {})
    state = attached(Defaults, values)
    state.items.append(1)
    Storage(values).items = [2]
    with pytest.raises(DefinitionError, match=r"value 'items' was changed both through"):
        _ = state.items

    Storage(values).items = [3]
    state = attached(Defaults, values)
    assert state.items == [3]
    write_changes(state)
    assert values.changed["items"] == TypedValue("io.statefun.python/json", b"[3]")


def test_bases_that_could_lose_values_are_refused() -> None:
    """A mixin's attributes would not be stored."""

    class Mixin:
        count: int = 0

    with pytest.raises(DefinitionError, match=r"its base class .*Mixin is not a State"):

        class Mixed(Mixin, State):
            n: int = 0


def test_values_of_any_kind() -> None:
    """None is the default where an annotation does not say otherwise."""

    class Loose(State):
        anything: Any = None
        noted: Annotated[int | None, "a note"] = None

    state = Loose(anything={"a": [1]}, noted=5)
    assert (state.anything, state.noted) == ({"a": [1]}, 5)
    state.anything = state.noted = None
    assert state == Loose()


def test_a_class_may_add_to_another() -> None:
    """Values are inherited, and may be replaced."""

    class Base(State):
        a: int = 1
        b: int = 2

    class Sub(Base):
        b: str = "two"  # type: ignore[assignment] # what is tested
        c: int = 3

    assert repr(Sub()) == "Sub(a=1, b='two', c=3)"
    assert [spec.name for spec in state_specs(Sub)] == ["a", "b", "c"]
    assert repr(Base()) == "Base(a=1, b=2)"


def test_helpers_of_a_class_may_have_any_name() -> None:
    """No attribute of a class replaces one that the state itself uses."""

    class Named(State):
        n: int = 0
        _values: ClassVar[str] = "mine"

        def _watched(self) -> int:
            return 2 * self.n

        def both(self) -> tuple[str, int]:
            return self._values, self._watched()

    state = Named(n=3)
    state.n += 1

    assert (state.both(), state) == (("mine", 8), Named(n=4))


def test_values_may_expire() -> None:
    """Each by itself, as a value spec says it."""

    class Expiring(State):
        called: int = state_value(default=0, expire_after_call=timedelta(hours=1))
        written: str | None = state_value(default=None, expire_after_write=timedelta(days=1))
        stays: int = 0

    assert [
        (spec.expire_after_call, spec.expire_after_write) for spec in state_specs(Expiring)
    ] == [
        (timedelta(hours=1), None),
        (None, timedelta(days=1)),
        (None, None),
    ]


class _Unknown:
    pass


def _declared(content: dict[str, Any]) -> None:
    types.new_class("Declared", (State,), {}, lambda namespace: namespace.update(content))


@pytest.mark.parametrize(
    ("annotation", "default", "problem"),
    [
        (
            "int",
            ...,
            "the value needs a default, such as None, since nothing is stored for a new address",
        ),
        ("int", None, "the default is None, but the annotation does not allow None"),
        ("int | None", 5, "the default must be None, since the annotation allows None"),
        ("int", "zero", "'zero' does not encode as io.statefun.types/long"),
        ("None", None, "a value that can only be None needs no state"),
        ("_Unknown", None, "_Unknown is neither a dataclass, nor an attrs class"),
        ("Missing", None, "NameError: name 'Missing' is not defined"),
        (
            "int",
            state_value(default=0, default_factory=int),
            "both a default and a default_factory",
        ),
        ("int", state_value(default=0, expire_after_call=timedelta(0)), "positive timedelta"),
    ],
)
def test_declarations_that_cannot_work_are_refused(
    annotation: str, default: Any, problem: str
) -> None:
    """When the class is defined, naming class and value."""
    content = {"__annotations__": {"wrong": annotation}, "__module__": __name__}
    if default is not ...:
        content["wrong"] = default

    with pytest.raises(DefinitionError, match=problem) as raised:
        _declared(content)

    assert raised.value.message.startswith(f"state {__name__}.Declared: ")


class Ride(State):
    """Values that may be missing, and have no default."""

    driver: str | None
    car: str | None = state_value(renamed_from="vehicle")
    notes: Any


def test_a_value_that_may_be_none_needs_no_default() -> None:
    """Its default is None."""
    create: Any = Ride  # type checkers ask for all values that have no default in the class
    ride = create(car="tram")

    assert (ride.driver, ride.car, ride.notes) == (None, "tram", None)
    ride.driver, ride.car = "Ada", None
    assert (ride.driver, ride.car) == ("Ada", None)


@pytest.mark.parametrize("name", ["Upper", "_hidden", "class", "__class__"])
def test_names_that_no_value_can_have(name: str) -> None:
    """The rules are those of value specs; and what begins with an underscore is Python's."""
    content = {"__annotations__": {name: "int"}, "__module__": __name__, name: 0}

    with pytest.raises(DefinitionError, match=rf"Declared: {name}: int: the name of a value"):
        _declared(content)


def test_a_field_that_is_added_has_its_default_and_one_that_is_gone_is_ignored() -> None:
    """So classes may change while states of theirs are stored."""

    @attrs.frozen
    class Old:
        name: str
        gone: int = 1

    @attrs.frozen
    class New:
        name: str
        added: int | None = None

    old = make_json_type("test.state/Evolving", Old)
    content = typed(Old("Ada"), old)

    assert content.value == b'{"gone":1,"name":"Ada"}'
    new = make_msgpack_type(
        "test.state/New", New, upgrades={old: lambda each: New(each.name, each.gone)}
    )
    assert new.decode(*content) == New("Ada", 1)

    class Kept(State):
        value: New | None = None

    state = attached(Kept, Values(value_specs(state_specs(Kept)), {"value": content}))
    assert state.value == New("Ada", 1)
    with pytest.raises(DefinitionError, match="already belongs to another type"):
        make_json_type("test.state/Evolving", New)


@given(st.integers(-(2**31), 2**31 - 1), st.text())
def test_a_state_reads_what_specs_have_written(number: int, text: str) -> None:
    """The same values, by other means."""
    state = state_of(
        Values(STORAGE, {"small": typed(number, IntType), "text": typed(text, StringType)})
    )

    assert (state.small, state.text) == (number, text)
