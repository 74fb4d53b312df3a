# SPDX-License-Identifier: Apache-2.0
"""Values that functions declare in another way than they are stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from harness import KafkaHarness, run

from statefun import (
    Address,
    CheckpointError,
    Context,
    FloatType,
    IntType,
    Message,
    StatefulFunctions,
    StringType,
    ValueSpec,
)
from statefun.formats.avro import AvroType
from statefun.inspect.stored_findings import checkpoint_findings
from statefun.module.loader import parse_module
from statefun.runtime.checkpoint.declarations import Declarations, with_present
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.known_functions import (
    KnownFunctions,
    known_functions,
    write_functions,
)
from statefun.runtime.preflight.stored_values import StoredValues, changed_values, dropped_names
from statefun.runtime.spark.session import open_session
from statefun.runtime.stored.stored_state import stored_state
from statefun.sdk.encoding import typed
from statefun.sdk.structured import StructuredType
from statefun.sdk.types import Type, TypedValue

COUNTER = "test.fns/counter"


@attrs.frozen
class Payment:
    """A payment as it was first stored."""

    amount: int


@attrs.frozen
class Grown:
    """A payment with a field that older ones have not."""

    amount: int
    currency: str


@attrs.frozen
class Defaulted:
    """A payment with a field that older ones need not have."""

    amount: int
    currency: str = "EUR"


def keeping(value: Type[Any], new: Callable[[], Any] | None = None) -> StatefulFunctions:
    """Return a function that keeps a value."""
    functions = StatefulFunctions()

    @functions.bind(COUNTER, specs=[ValueSpec("last", value)])
    def keep(ctx: Context, message: Message) -> None:
        ctx.storage.last = None if new is None else new()

    return functions


def adding(spec: ValueSpec) -> StatefulFunctions:
    """Return a function that adds one to its value ``amount``."""
    functions = StatefulFunctions()

    @functions.bind(COUNTER, specs=[spec])
    def add(ctx: Context, message: Message) -> None:
        ctx.storage.amount = (ctx.storage.amount or 0) + 1

    return functions


def payment(class_: type) -> Type[Any]:
    """Return the JSON type of payments as a class."""
    return StructuredType("test.stored/Payment", class_)


def findings(stored: TypedValue, declared: Type[Any]) -> list[str]:
    """Return what keeps a function from reading the value of an address."""
    state = [(Address(COUNTER, id_), {"last": stored}) for id_ in ("Ada", "Alan")]
    return list(StoredValues(state, keeping(declared), {}).unreadable())


def test_values_of_another_type_are_found() -> None:
    """They are no problem if the declared type has upgrades= for them."""
    stored = TypedValue("io.statefun.types/float", FloatType.serializer().serialize(1.5))
    upgraded = StructuredType("test.stored/Number", float, "json", {FloatType: float})

    assert findings(stored, FloatType) == findings(stored, upgraded) == []
    assert findings(stored, IntType) == [
        (
            f"value 'last' of function {COUNTER} is stored at 2 addresses as io.statefun.types/float, "
            "but declared as io.statefun.types/int; use another name, or add upgrades= for the stored type"
        )
    ]


def test_values_that_no_longer_decode_are_found() -> None:
    """A new required field is a problem for stored values; a field with a default is none."""
    stored = TypedValue("test.stored/Payment", b'{"amount": 3}')

    assert findings(stored, payment(Payment)) == findings(stored, payment(Defaulted)) == []
    (finding,) = findings(stored, payment(Grown))
    assert finding.startswith(f"value 'last' of function {COUNTER} is stored at 2 addresses")
    assert f"2 of them cannot be decoded ({COUNTER}/Ada: ValidationError: " in finding
    assert "`currency`" in finding
    assert "give new fields defaults" in finding


def test_only_values_with_changed_declarations_are_problems() -> None:
    """A value that could not be decoded before, and whose declaration is the same, does not prevent a start."""
    stored = TypedValue("test.stored/Payment", b'{"amount": 3}')
    values = StoredValues(
        [(Address(COUNTER, "Ada"), {"last": stored})], keeping(payment(Grown)), {}
    )

    assert len(list(values.unreadable([(COUNTER, "last")]))) == 1
    assert list(values.unreadable([(COUNTER, "other")])) == []


def declared(*starts: StatefulFunctions) -> Declarations:
    """Return the declarations of functions at some starts, each after a micro-batch."""
    declarations: Declarations = {}
    for since, functions in enumerate(starts):
        declarations = with_present(declarations, functions, since)
    return declarations


def test_values_of_windows_are_not_undeclared() -> None:
    """Their classes declare them; there are as many names as windows."""
    value = typed(3, IntType)
    state = [(Address(COUNTER, "Ada"), {"count@1767225600000": value, "last": value})]

    values = StoredValues(state, keeping(IntType), {})

    assert [*values.undeclared(), *values.unreadable()] == []


def test_only_changed_declarations_are_read_again() -> None:
    """New functions and values have nothing stored; other fields, types or upgrades are changes."""
    first = keeping(payment(Payment))
    number: Type[Any] = StructuredType("test.stored/Number2", float)
    upgraded = StructuredType("test.stored/Number2", float, "json", {FloatType: float})

    assert changed_values({}, first) == []
    assert changed_values(declared(first), keeping(payment(Payment))) == []
    assert changed_values(declared(first), keeping(payment(Grown))) == [(COUNTER, "last")]
    assert changed_values(declared(keeping(IntType)), keeping(FloatType)) == [(COUNTER, "last")]
    assert changed_values(declared(keeping(upgraded)), keeping(number)) == [(COUNTER, "last")]


def test_values_with_another_avro_schema_are_read_again() -> None:
    """Values in Avro have no names of fields: one of an older schema may be too short for the present one."""
    number = {"name": "n", "type": "long"}
    before, after = (
        AvroType("test.stored/Avro", json.dumps({"type": "record", "name": "R", "fields": fields}))
        for fields in ([number], [number, {"name": "m", "type": "long"}])
    )

    assert changed_values(declared(keeping(before)), keeping(before)) == []
    assert changed_values(declared(keeping(before)), keeping(after)) == [(COUNTER, "last")]
    assert findings(typed({"n": 1}, before), before) == []
    assert "2 of them cannot be decoded" in findings(typed({"n": 1}, before), after)[0]


def declaring(*specs: ValueSpec) -> StatefulFunctions:
    """Return a function with these values."""
    functions = StatefulFunctions()
    functions.register(COUNTER, lambda ctx, message: None, specs)
    return functions


def stored(**values: int) -> list[tuple[Address, dict[str, TypedValue]]]:
    """Return the state of one address with whole numbers."""
    content = {name: typed(value, IntType) for name, value in values.items()}
    return [(Address(COUNTER, "Ada"), content)]


def declaring_all(*specs: ValueSpec) -> StatefulFunctions:
    """Return a function for the whole namespace with these values."""
    functions = StatefulFunctions()
    functions.register("test.fns/*", lambda ctx, message: None, specs)
    return functions


def test_values_of_a_whole_namespace_are_read_under_the_names_of_its_functions() -> None:
    """The function ``namespace/*`` declares them, and each address stores them under its own type."""
    before = declared(
        declaring_all(ValueSpec("a", IntType)), declaring_all(ValueSpec("b", IntType))
    )
    other = declaring_all(ValueSpec("b", StringType))
    unreadable = StoredValues(stored(b=1), other, before).unreadable(changed_values(before, other))

    assert [*unreadable] == [
        (
            f"value 'b' of function {COUNTER} is stored at 1 address as io.statefun.types/int, but declared as "
            "io.statefun.types/string; use another name, or add upgrades= for the stored type"
        )
    ]


def test_former_names_of_values_of_a_whole_namespace_must_stay_declared() -> None:
    """So must the values that have both names be found."""
    renamed = declaring_all(ValueSpec("b", IntType, renamed_from="a"))
    before = declared(declaring_all(ValueSpec("a", IntType)), renamed)
    forgetful = declaring_all(ValueSpec("c", IntType, renamed_from="b"))
    dropped = StoredValues(stored(a=1), forgetful, before)
    (problem,) = dropped.unreadable(changed_values(before, forgetful))
    first = declared(declaring_all(ValueSpec("a", IntType)))
    (twice,) = StoredValues(stored(a=1, b=2), renamed, first).unreadable(
        changed_values(first, renamed)
    )

    assert problem.endswith("no longer declares that; declare renamed_from='a' again")
    assert [*dropped.undeclared()] == []
    assert twice.endswith(
        "but values at 1 address have both names; give one of the two another name"
    )


def test_renamed_values_are_read_under_former_names() -> None:
    """They may be upgraded as well; their declarations are changes."""
    renamed = declaring(ValueSpec("now", StringType, renamed_from="was", upgrades={IntType: str}))
    before = declared(declaring(ValueSpec("was", IntType)))
    values = StoredValues(stored(was=3), renamed, before)

    assert changed_values(before, renamed) == [(COUNTER, "now")]
    assert list(values.unreadable()) == list(values.undeclared()) == []
    not_upgraded = declaring(ValueSpec("now", StringType, renamed_from="was"))
    (problem,) = StoredValues(stored(was=3), not_upgraded, before).unreadable([(COUNTER, "now")])
    assert problem == (
        f"value 'was' of function {COUNTER} is stored at 1 address as io.statefun.types/int, but declared as "
        "io.statefun.types/string; use another name, or add upgrades= for the stored type"
    )


def test_former_names_must_stay_declared_while_values_have_them() -> None:
    """A value that was renamed twice keeps both; a name without stored values may go."""
    first = declaring(ValueSpec("a", IntType))
    second = declaring(ValueSpec("b", IntType, renamed_from="a"))
    forgetful = declaring(ValueSpec("c", IntType, renamed_from="b"))
    right = declaring(ValueSpec("c", IntType, renamed_from=["b", "a"]))
    before = declared(first, second)

    assert dropped_names(before, forgetful) == {(COUNTER, "a"): "c"}
    assert dropped_names(before, right) == {}
    assert changed_values(before, forgetful) == [(COUNTER, "c")]
    values = StoredValues(stored(a=1), forgetful, before)
    assert list(values.unreadable([(COUNTER, "c")])) == [
        (
            f"value 'a' of function {COUNTER} is stored at 1 address as io.statefun.types/int, and value 'c', "
            "which was renamed from it, no longer declares that; declare renamed_from='a' again"
        )
    ]
    assert list(values.undeclared()) == []
    assert list(StoredValues(stored(b=1), forgetful, before).unreadable()) == []


def test_values_under_two_names_are_found() -> None:
    """None of the two is given up in silence."""
    renamed = declaring(ValueSpec("now", IntType, renamed_from="was"))

    assert list(StoredValues(stored(was=1, now=2), renamed, {}).unreadable()) == [
        (
            f"value 'now' of function {COUNTER} is declared as renamed from 'was', but values at 1 address have "
            "both names; give one of the two another name"
        )
    ]


def test_declarations_are_kept_with_their_first_micro_batch(tmp_path: Path) -> None:
    """Equal declarations are one; a removed value has an end, and may come back."""
    kept, folder = ValueSpec("kept", IntType), Folder.at(tmp_path)
    gone = ValueSpec("gone", StringType, expire_after_call=timedelta(minutes=5))
    starts = [declaring(kept, gone), declaring(kept, gone), declaring(kept), declaring(kept, gone)]

    write_functions(folder, KnownFunctions(declarations=declared(*starts)))

    known = known_functions(folder)
    assert known is not None
    assert known.declarations == declared(*starts)
    values = known.declarations[COUNTER]
    assert [each.since for each in values["kept"]] == [0]
    assert [(each.since, each.typename != "") for each in values["gone"]] == [
        (0, True),
        (2, False),
        (3, True),
    ]
    assert values["gone"][0].expires == "0:05:00 after the last call"
    assert changed_values(known.declarations, declaring(ValueSpec("gone", IntType))) != []


@pytest.mark.long(minutes=0.5)
@pytest.mark.broker
@pytest.mark.spark
def test_a_start_that_cannot_read_the_state_is_refused(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Each such start is refused before a message is handled; functions that can read their values go on."""
    users = kafka.topic("users")
    module = kafka.module({users: [COUNTER]})
    kafka.send(users, [("Ada", "a")])
    run(module, keeping(payment(Payment), lambda: Payment(3)), checkpoint)
    kafka.send(users, [("Alan", "a")])

    for _ in range(2):
        with pytest.raises(CheckpointError, match=f"{COUNTER}/Ada: ValidationError"):
            run(module, keeping(payment(Grown), lambda: Grown(3, "USD")), checkpoint)
    with pytest.raises(CheckpointError, match=r"declared as io\.statefun\.types/int"):
        run(module, keeping(IntType, lambda: 3), checkpoint)
    went_on = run(module, keeping(payment(Defaulted), lambda: Defaulted(4)), checkpoint)
    kafka.send(users, [("Alan", "b")])
    spec = ValueSpec(
        "amount",
        IntType,
        renamed_from="last",
        upgrades={payment(Defaulted): lambda each: int(each.amount)},
    )
    upgraded = run(module, adding(spec), checkpoint)
    dropped = adding(attrs.evolve(spec, type=IntType, upgrades={}))
    with pytest.raises(CheckpointError) as refused:
        run(module, dropped, checkpoint)

    assert went_on.invocations == upgraded.invocations == 1
    found = checkpoint_findings(Folder.at(checkpoint), parse_module(module), dropped)
    assert [each.problem.text for each in found if each.is_error] == [
        str(refused.value).partition("\n  ")[2]
    ]
    assert "'last' of function test.fns/counter is stored at 1 address as" in str(refused.value)
    session = open_session(debug=False, state_partitions=None)
    with stored_state(session, Folder.at(checkpoint)) as state:
        values = {address.id: content for address, content in state}
    assert values["Alan"] == {"amount": typed(5, IntType)}
    assert [*values["Ada"]] == ["last"]
