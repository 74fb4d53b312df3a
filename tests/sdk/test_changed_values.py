# SPDX-License-Identifier: Apache-2.0
"""Values that had other names or types before."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun import (
    Context,
    DefinitionError,
    DoubleType,
    IntType,
    LongType,
    Message,
    RequestReplyHandler,
    State,
    StatefulFunctions,
    StringType,
    TypedValue,
    ValueSpec,
    make_json_type,
    state_value,
)
from statefun.protocol.request_reply_pb2 import FromFunction, ToFunction
from statefun.sdk.address import Address
from statefun.sdk.encoding import typed
from statefun.sdk.invocation import invoke
from statefun.sdk.invocation_batch import Invocation, InvocationBatch, InvocationResult
from statefun.sdk.value_spec import value_specs

COUNTER = "t.fns/counter"
ADA = Address(COUNTER, "Ada")
NAMES = ("now", "newer", "older", "other")
RENAMED = ValueSpec("now", IntType, renamed_from=("newer", "older"))


def counting(*specs: ValueSpec) -> StatefulFunctions:
    """Return a function that does what a message says with its value ``now``."""
    functions = StatefulFunctions()

    @functions.bind(COUNTER, specs=specs)
    def count(ctx: Context, message: Message) -> None:
        text = message.as_string()
        if text == "fail":
            raise ValueError(text)
        if text == "delete":
            del ctx.storage.now
        elif text == "add":
            ctx.storage.now = (ctx.storage.now or 0) + 1

    return functions


def called(
    functions: StatefulFunctions, stored: Mapping[str, TypedValue], *texts: str
) -> InvocationResult:
    """Call the function at one address with messages."""
    messages = [Invocation(None, typed(text, StringType)) for text in texts]
    return invoke(functions.for_typename(COUNTER), InvocationBatch(ADA, stored, messages))


def after(stored: Mapping[str, TypedValue], result: InvocationResult) -> dict[str, TypedValue]:
    """Return the stored values after a call."""
    values = {**stored, **result.state_mutations}
    return {name: value for name, value in values.items() if value is not None}


@given(
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9)),
    st.lists(st.sampled_from(["add", "delete", "read", "fail"]), min_size=1),
)
def test_a_renamed_value_goes_on_under_its_present_name(
    stored: dict[str, int], texts: list[str]
) -> None:
    """The newest of its names counts, the others are gone after any call, and other values stay."""
    encoded = {name: typed(value, IntType) for name, value in stored.items()}
    expected = next((stored[name] for name in NAMES[:3] if name in stored), None)
    for text in texts:
        if text == "add":
            expected = (expected or 0) + 1
        elif text == "delete":
            expected = None

    values = after(encoded, called(counting(RENAMED), encoded, *texts))

    decoded = {name: IntType.decode(*value) for name, value in values.items()}
    others = {"other": stored["other"]} if "other" in stored else {}
    assert decoded == others | ({} if expected is None else {"now": expected})


def test_a_value_of_an_older_type_is_converted_when_it_is_read() -> None:
    """It gets its new type when it is next written, and not before."""
    upgraded = ValueSpec("now", LongType, renamed_from="was", upgrades={StringType: int})
    functions, stored = counting(upgraded), {"was": typed("41", StringType)}

    read = after(stored, called(functions, stored, "read"))
    added = after(read, called(functions, read, "add"))

    assert read == {"now": typed("41", StringType)}
    assert added == {"now": typed(42, LongType)}
    assert upgraded.type.typename == LongType.typename
    assert not LongType.reads(StringType.typename)


def test_a_state_class_declares_former_names_and_types() -> None:
    """The annotation ``int`` names all types of whole numbers."""

    class Account(State):
        balance: float = state_value(
            default=0.0, renamed_from="cents", upgrades={int: lambda cents: cents / 100}
        )

    functions = StatefulFunctions()

    @functions.bind(COUNTER)
    def pay(ctx: Context, amount: float, account: Account) -> None:
        account.balance += amount

    for older in (IntType, LongType):
        stored = {"cents": typed(250, older)}
        batch = InvocationBatch(ADA, stored, [Invocation(None, typed(0.5, DoubleType))])
        values = after(stored, invoke(functions.for_typename(COUNTER), batch))
        assert values == {"balance": typed(3.0, DoubleType)}


@pytest.mark.parametrize(
    ("specs", "problem"),
    [
        (
            [ValueSpec("now", IntType, renamed_from="was"), ValueSpec("was", IntType)],
            "value 'now' is renamed from 'was', but is still declared",
        ),
        (
            [
                ValueSpec("a", IntType, renamed_from="was"),
                ValueSpec("b", IntType, renamed_from="was"),
            ],
            "value 'b' is renamed from 'was', but value 'a' is renamed from it as well",
        ),
        (
            [ValueSpec("a", IntType, renamed_from="b"), ValueSpec("b", IntType, renamed_from="a")],
            "value 'a' is renamed from 'b', but",
        ),
        ([ValueSpec("a", IntType, renamed_from="a")], "value 'a' is renamed from 'a', but"),
    ],
)
def test_a_name_belongs_to_one_value(specs: list[ValueSpec], problem: str) -> None:
    """Swapped names, chains, and former names that are still declared are refused."""
    with pytest.raises(DefinitionError, match=problem):
        value_specs(specs)


def test_handlers_of_a_function_share_its_names() -> None:
    """A value of one handler's state class cannot be renamed from a value of another handler's."""
    functions = StatefulFunctions()

    class Old(State):
        was: int = 0

    class New(State):
        now: int = state_value(default=0, renamed_from="was")

    @functions.bind(COUNTER)
    def count(ctx: Context, number: int, state: Old) -> None:
        pass

    with pytest.raises(
        DefinitionError, match="value 'now' is renamed from 'was', but is still declared"
    ):

        @count.on(str)
        def read(ctx: Context, text: str, state: New) -> None:
            pass


@pytest.mark.parametrize("renamed_from", [[""], ["a", "a"], [3]])
def test_former_names_must_be_names(renamed_from: Any) -> None:
    """They are text, and different."""
    with pytest.raises(DefinitionError, match="renamed_from must be a former name of the value"):
        ValueSpec("now", IntType, renamed_from=renamed_from)


def test_upgrades_are_checked() -> None:
    """They are functions by types, and not from the declared type itself."""
    with pytest.raises(DefinitionError, match=r"value 'now': type .*/int: upgrades must map"):
        ValueSpec("now", IntType, upgrades={"int": int})  # type: ignore[dict-item]
    with pytest.raises(DefinitionError, match="must not contain the type's own typename"):
        ValueSpec("now", IntType, upgrades={IntType: int})
    with pytest.raises(DefinitionError, match="expire_after_call"):
        ValueSpec(
            "now",
            IntType,
            expire_after_call=timedelta(1),
            expire_after_write=timedelta(1),
            upgrades={LongType: int},
        )


def test_upgrades_of_a_value_come_before_those_of_its_type() -> None:
    """The value knows better what it held."""
    money = make_json_type("t.types/Money", float, upgrades={IntType: float})
    spec = ValueSpec("now", money, upgrades={IntType: lambda cents: cents / 100})

    assert spec.type.decode(*typed(250, IntType)) == 2.5
    assert money.decode(*typed(250, IntType)) == 250.0
    assert spec.type.reads(money.typename)


def test_a_remote_runtime_keeps_renamed_values() -> None:
    """The first reply asks for the former names as well, and the second one deletes what they hold."""
    handler = RequestReplyHandler(counting(RENAMED))
    request = ToFunction()
    target = request.invocation.target
    target.namespace, target.type, target.id = ADA.namespace, ADA.name, ADA.id
    argument = request.invocation.invocations.add().argument
    argument.typename, argument.value = typed("add", StringType)
    argument.has_value = True
    incomplete = FromFunction.FromString(handler.handle_sync(request.SerializeToString()))
    asked = [each.state_name for each in incomplete.incomplete_invocation_context.missing_values]
    for name in asked:
        state = request.invocation.state.add()
        state.state_name = name
        if name == "older":
            state.state_value.typename, state.state_value.value = typed(4, IntType)
            state.state_value.has_value = True

    reply = FromFunction.FromString(handler.handle_sync(request.SerializeToString()))

    mutations = {
        each.state_name: each.state_value for each in reply.invocation_result.state_mutations
    }
    assert asked == ["now", "newer", "older"]
    assert sorted(mutations) == ["now", "older"]
    assert not mutations["older"].has_value
    assert IntType.decode(mutations["now"].typename, mutations["now"].value) == 5
