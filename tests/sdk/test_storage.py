# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from strategies import JSON, PRIMITIVE_TYPES, values_of

from statefun import (
    DefinitionError,
    IntType,
    StateDecodeError,
    StringType,
    Type,
    TypedValue,
    ValueSpec,
)
from statefun.sdk.encoding import typed
from statefun.sdk.storage import Storage
from statefun.sdk.value_spec import value_specs
from statefun.sdk.values import Values

TYPES: dict[str, Type[Any]] = {
    **{type_.typename.rpartition("/")[2] + "_": type_ for type_ in PRIMITIVE_TYPES},
    "json_": JSON,
}
SPECS = value_specs(ValueSpec(name, type_) for name, type_ in TYPES.items())

names = st.sampled_from(sorted(TYPES))
names_and_values = names.flatmap(lambda name: st.tuples(st.just(name), values_of(TYPES[name])))
states = st.lists(names_and_values).map(dict)


def _encoded(values: dict[str, Any]) -> dict[str, TypedValue]:
    return {name: typed(value, TYPES[name]) for name, value in values.items()}


def _storage(specs: Mapping[str, ValueSpec], stored: dict[str, TypedValue]) -> Storage:
    return Storage(Values(specs, stored))


def _changes(storage: Storage) -> dict[str, TypedValue | None]:
    return storage.__statefun_values__.changed


def _counter(stored: TypedValue | None = None) -> Storage:
    """Make a storage of one value, `visits`."""
    state = {} if stored is None else {"visits": stored}
    return _storage(value_specs([ValueSpec("visits", IntType)]), state)


class StorageModel(RuleBasedStateMachine):
    """A storage behaves like a dict, and remembers its changes."""

    stored: dict[str, Any]
    model: dict[str, Any]
    changed: set[str]
    storage: Storage

    @initialize(stored=states)
    def begin(self, stored: dict[str, Any]) -> None:
        """Start a turn with some state."""
        self.stored, self.model, self.changed = stored, dict(stored), set()
        self.storage = _storage(SPECS, _encoded(stored))

    @rule(name_and_value=names_and_values)
    def assign(self, name_and_value: tuple[str, Any]) -> None:
        """Set a value."""
        name, value = name_and_value
        setattr(self.storage, name, value)
        self.model[name] = value
        self.changed.add(name)

    @rule(name=names)
    def delete(self, name: str) -> None:
        """Delete a value that may be set or not."""
        delattr(self.storage, name)
        self.model.pop(name, None)
        self.changed.add(name)

    @rule(name=names)
    def assign_none(self, name: str) -> None:
        """Fail to set a value to None."""
        with pytest.raises(DefinitionError):
            setattr(self.storage, name, None)

    @rule(name=names)
    def assign_nonsense(self, name: str) -> None:
        """Fail to set a value to an object that no type takes."""
        with pytest.raises(DefinitionError):
            setattr(self.storage, name, object())

    @rule()
    def commit(self) -> None:
        """Apply the mutations, and start the next turn with the outcome."""
        state = dict(_encoded(self.stored))
        for name, value in _changes(self.storage).items():
            if value is None:
                state.pop(name, None)
            else:
                state[name] = value
        assert state == _encoded(self.model)
        self.stored, self.changed = dict(self.model), set()
        self.storage = _storage(SPECS, state)

    @invariant()
    def reads_like_the_model(self) -> None:
        """Every value reads as the model has it, unset ones as None."""
        for name in TYPES:
            assert repr(getattr(self.storage, name)) == repr(self.model.get(name))

    @invariant()
    def changes_are_what_was_touched(self) -> None:
        """There is one mutation per name that was set or deleted."""
        encoded = _encoded(self.model)
        assert _changes(self.storage) == {name: encoded.get(name) for name in self.changed}


TestStorageModel = StorageModel.TestCase


@given(states)
def test_reading_changes_nothing(state: dict[str, Any]) -> None:
    """A function that only reads has no mutations."""
    storage = _storage(SPECS, _encoded(state))

    read = {name: getattr(storage, name) for name in TYPES}

    assert repr({name: value for name, value in read.items() if value is not None}) == repr(
        {name: state[name] for name in TYPES if name in state}
    )
    assert _changes(storage) == {}


def test_the_stored_state_is_left_alone() -> None:
    """Mutations are kept beside the state: a failed batch leaves no effect."""
    stored = {"visits": typed(1, IntType)}
    storage = _storage(value_specs([ValueSpec("visits", IntType)]), stored)

    storage.visits = 2

    assert stored == {"visits": typed(1, IntType)}
    assert _changes(storage) == {"visits": typed(2, IntType)}


def test_an_unset_value_is_none() -> None:
    """Nothing has to be initialised; a zero is not unset."""
    assert _counter().visits is None
    assert _counter(typed(0, IntType)).visits == 0


def test_deleting_twice_is_deleting() -> None:
    """Deleting an unset value is no error."""
    storage = _counter()

    del storage.visits
    del storage.visits

    assert storage.visits is None
    assert _changes(storage) == {"visits": None}


def test_a_value_is_encoded_when_it_is_assigned() -> None:
    """Later changes inside an object are not stored."""
    storage = _storage(value_specs([ValueSpec("seen", JSON)]), {})
    seen = ["Ada"]

    storage.seen = seen
    seen.append("Bob")
    storage.seen.append("Cy")

    assert storage.seen == ["Ada"]


def test_unknown_stored_values_are_ignored() -> None:
    """State of a value that is not declared any more is neither readable nor changed."""
    storage = _storage(SPECS, {"old": typed(1, IntType)})

    with pytest.raises(AttributeError):
        _ = storage.old
    assert _changes(storage) == {}


@pytest.mark.parametrize(
    ("specs", "declared"),
    [
        ([], "none"),
        ([ValueSpec("visits", IntType), ValueSpec("seen", JSON)], "seen, visits"),
    ],
    ids=["none", "some"],
)
def test_undeclared_values_are_no_attributes(specs: list[ValueSpec], declared: str) -> None:
    """The errors of reading, setting and deleting name the declared values."""
    storage = _storage(value_specs(specs), {})
    expected = f"no value 'visit' is declared in specs (declared: {declared})"

    with pytest.raises(AttributeError) as read:
        _ = storage.visit
    with pytest.raises(AttributeError) as assigned:
        storage.visit = 1
    with pytest.raises(AttributeError) as deleted:
        del storage.visit

    assert [str(error.value) for error in (read, assigned, deleted)] == [expected] * 3
    assert not hasattr(storage, "visit")
    assert _changes(storage) == {}


def test_none_is_no_value() -> None:
    """Setting None is an error that says how to delete, and a ValueError as it always was."""
    storage = _counter()

    with pytest.raises(ValueError, match="cannot be set to None") as raised:
        storage.visits = None

    assert str(raised.value) == (
        "[SF200] value 'visits' cannot be set to None; delete it with 'del'"
    )


def test_a_value_of_the_wrong_type_is_refused_at_once() -> None:
    """The assignment fails, in the user's own line, and changes nothing."""
    storage = _counter(typed(1, IntType))

    with pytest.raises(DefinitionError, match="'two' does not encode as "):
        storage.visits = "two"

    assert storage.visits == 1
    assert _changes(storage) == {}


def test_a_value_keeps_its_type() -> None:
    """State that was stored as another type is not read as if it were this one."""
    storage = _counter(typed("one", StringType))

    with pytest.raises(StateDecodeError) as raised:
        _ = storage.visits

    assert raised.value.message == (
        "value 'visits' is stored as io.statefun.types/string, but declared as "
        "io.statefun.types/int, which cannot decode it: use another name for the value, or list the "
        "type io.statefun.types/string in the upgrades of io.statefun.types/int"
    )


def test_a_value_of_another_type_can_be_replaced() -> None:
    """Setting or deleting does not read the stored value."""
    replaced, deleted = _counter(typed("one", StringType)), _counter(typed("one", StringType))

    replaced.visits = 1
    del deleted.visits

    assert replaced.visits == 1
    assert deleted.visits is None


def test_stored_bytes_that_do_not_decode_are_reported() -> None:
    """The error has the value's name, type and length."""
    storage = _counter(TypedValue(IntType.typename, b"\x0d\x01"))

    with pytest.raises(StateDecodeError) as raised:
        _ = storage.visits

    assert raised.value.message.startswith(
        "value 'visits' (2 bytes) does not decode as io.statefun.types/int: DecodeError: "
    )


def test_a_storage_lists_its_values() -> None:
    """Completion in a notebook offers the declared values, and nothing else."""
    assert dir(_storage(SPECS, {})) == sorted(TYPES)


@pytest.mark.parametrize(
    "name", ["", "1st", "a-b", "a b", "Visits", "vISITS", "VISITS", "class", "_", "_1", None, 7]
)
def test_a_value_has_a_lower_case_name(name: Any) -> None:
    """A name has to be one that can follow a dot, and no keyword."""
    with pytest.raises(DefinitionError) as raised:
        ValueSpec(name, IntType)

    assert raised.value.message == (
        f"the name of a value must be a lower-case Python identifier, which {name!r} is not"
    )


@pytest.mark.parametrize(
    "name", ["visits", "_visits", "v1", "match", "__changed", "_values", "stored", "é"]
)
def test_other_names_are_free(name: str) -> None:
    """Soft keywords and the names that the storage itself uses are the user's."""
    storage = _storage(value_specs([ValueSpec(name, IntType)]), {})

    setattr(storage, name, 1)

    assert getattr(storage, name) == 1
    assert _changes(storage) == {name: typed(1, IntType)}


@pytest.mark.parametrize("name", ["__class__", "__init__", "__dir__", "__slots__", "__later__"])
def test_names_of_pythons_own_are_taken(name: str) -> None:
    """A value that would read as something else is refused, also if a later Python has the name."""
    with pytest.raises(DefinitionError) as raised:
        ValueSpec(name, IntType)

    assert raised.value.message == (
        f"the name of a value must not be {name!r}: Python reserves names with two underscores at both ends"
    )


@pytest.mark.parametrize("type_", [int, None, "io.statefun.types/int"])
def test_a_value_has_a_type(type_: Any) -> None:
    """Python's own types are no Types."""
    with pytest.raises(DefinitionError) as raised:
        ValueSpec("visits", type_)

    assert raised.value.message == (
        f"value 'visits': its type must be a Type such as IntType, not {type_!r}"
    )


def test_a_value_expires_in_one_way() -> None:
    """After a call or after a write."""
    day = timedelta(days=1)

    with pytest.raises(DefinitionError) as raised:
        ValueSpec("visits", IntType, expire_after_call=day, expire_after_write=day)

    assert raised.value.message == (
        "value 'visits' must not have both expire_after_call and expire_after_write"
    )
    assert ValueSpec("visits", IntType, expire_after_call=day).expire_after_call == day
    assert ValueSpec("visits", IntType, expire_after_write=day).expire_after_write == day


def test_a_short_expiration_is_not_none() -> None:
    """Its milliseconds are rounded up: 0 would stand for a value that never expires."""
    spec = ValueSpec("visits", IntType, expire_after_write=timedelta(microseconds=500))

    assert spec.duration == 1
    assert ValueSpec("visits", IntType).duration == 0


@pytest.mark.parametrize("keyword", ["expire_after_call", "expire_after_write"])
@pytest.mark.parametrize("expiration", [timedelta(0), timedelta(days=-1), 5, "5s"], ids=repr)
def test_a_value_expires_after_some_time(keyword: str, expiration: Any) -> None:
    """An expiration is a timedelta, and positive."""
    with pytest.raises(DefinitionError) as raised:
        ValueSpec("visits", IntType, **{keyword: expiration})

    assert raised.value.message == (
        f"value 'visits': the time to its expiration must be a positive timedelta, not {expiration!r}"
    )


def test_specs_are_indexed_by_name() -> None:
    """Any iterable of specs will do; its order is kept."""
    specs = [ValueSpec("b", IntType), ValueSpec("a", StringType)]

    by_name = value_specs(iter(specs))

    assert list(by_name.items()) == [("b", specs[0]), ("a", specs[1])]


def test_a_value_is_declared_once() -> None:
    """Two specs of one name are refused, even if they are equal."""
    with pytest.raises(DefinitionError) as raised:
        value_specs([ValueSpec("visits", IntType), ValueSpec("visits", IntType)])

    assert raised.value.message == "value 'visits' is declared twice"


def test_specs_are_value_specs() -> None:
    """Names alone are not enough."""
    with pytest.raises(DefinitionError) as raised:
        value_specs(["visits"])  # type: ignore[list-item]

    assert raised.value.message == "specs must contain ValueSpecs, not 'visits'"
