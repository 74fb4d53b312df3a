# SPDX-License-Identifier: Apache-2.0
"""Values that functions declare in another way than they are stored."""

from __future__ import annotations

from collections.abc import Callable
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
    ValueSpec,
    make_json_type,
)
from statefun.runtime.checkpoint.declarations import Declarations, with_present
from statefun.runtime.preflight.stored_values import StoredValues, changed_values
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
    upgraded = make_json_type("test.stored/Number", float, upgrades={FloatType: float})

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


def test_only_changed_declarations_are_read_again() -> None:
    """New functions and values have nothing stored; other fields, types or upgrades are changes."""
    first = keeping(payment(Payment))
    number = make_json_type("test.stored/Number2", float)
    upgraded = make_json_type("test.stored/Number2", float, upgrades={FloatType: float})

    assert changed_values({}, first) == []
    assert changed_values(declared(first), keeping(payment(Payment))) == []
    assert changed_values(declared(first), keeping(payment(Grown))) == [(COUNTER, "last")]
    assert changed_values(declared(keeping(IntType)), keeping(FloatType)) == [(COUNTER, "last")]
    assert changed_values(declared(keeping(upgraded)), keeping(number)) == [(COUNTER, "last")]


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

    assert went_on.invocations == 1
