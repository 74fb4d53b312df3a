# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import addresses, typed_values

from statefun import (
    Address,
    Context,
    FunctionError,
    IntType,
    InvocationError,
    KafkaEgressMessage,
    Message,
    SimpleType,
    StatefulFunctions,
    TypedValue,
    ValueDecodeError,
    ValueSpec,
    message_builder,
)
from statefun.sdk.encoding import typed
from statefun.sdk.invocation import invoke, invoke_async
from statefun.sdk.invocation_batch import Invocation, InvocationBatch, InvocationResult
from statefun.sdk.stateful_function import StatefulFunction

TARGET = Address("com.example.fns", "counter", "Ada")
CALLER = Address("com.example.fns", "greeter", "Bob")

ZEROS = SimpleType("test.invocation/zeros", bytes, len)

Run = Callable[[Callable[[Context, Message], None], InvocationBatch], InvocationResult]


def _registered(fun: Any) -> StatefulFunction:
    functions = StatefulFunctions()
    functions.register(TARGET.typename, fun, [ValueSpec("count", IntType)])
    return functions.for_typename(TARGET.typename)


def _run_plain(fun: Callable[[Context, Message], None], batch: InvocationBatch) -> InvocationResult:
    return invoke(_registered(fun), batch)


def _run_coroutine(
    fun: Callable[[Context, Message], None], batch: InvocationBatch
) -> InvocationResult:
    async def coroutine(context: Context, message: Message) -> None:
        await asyncio.sleep(0)
        fun(context, message)

    return asyncio.run(invoke_async(_registered(coroutine), batch))


@pytest.fixture(params=[_run_plain, _run_coroutine], ids=["plain", "coroutine"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a runner of a function over a batch: as a plain function, or as a coroutine."""
    runner: Run = request.param
    return runner


def _batch(
    *numbers: int, state: dict[str, TypedValue] | None = None, caller: Address | None = None
) -> InvocationBatch:
    invocations = [Invocation(caller, typed(number, IntType)) for number in numbers]
    return InvocationBatch(TARGET, state or {}, invocations)


def _record(number: int) -> KafkaEgressMessage:
    return KafkaEgressMessage("com.example/out", topic="numbers", value=number)


def _add(context: Context, message: Message) -> None:
    context.storage.count = (context.storage.count or 0) + message.as_int()


def test_a_batch_runs_in_order_with_one_storage(run: Run) -> None:
    """Each invocation sees the values that earlier ones stored, and the last value remains."""
    seen: list[tuple[int | None, int]] = []

    def add(context: Context, message: Message) -> None:
        seen.append((context.storage.count, message.as_int()))
        _add(context, message)

    result = run(add, _batch(1, 2, 3, state={"count": typed(10, IntType)}))

    assert seen == [(10, 1), (11, 2), (13, 3)]
    assert result == InvocationResult({"count": typed(16, IntType)}, [], [], [], [], wake_ups=[])


@given(st.lists(st.integers(-1000, 1000)), st.integers(0, 10))
def test_batches_can_be_cut_anywhere(numbers: list[int], cut: int) -> None:
    """Two batches in a row end in the state that one batch of both ends in."""
    function = _registered(_add)

    whole = invoke(function, _batch(*numbers)).state_mutations
    first = invoke(function, _batch(*numbers[:cut])).state_mutations
    state = {name: value for name, value in first.items() if value is not None}
    second = invoke(function, _batch(*numbers[cut:], state=state)).state_mutations

    assert {**first, **second} == whole
    assert whole == ({"count": typed(sum(numbers), IntType)} if numbers else {})


@given(addresses(), st.lists(st.tuples(st.none() | addresses(), typed_values())))
def test_each_message_arrives_with_its_caller(
    target: Address, sent: Sequence[tuple[Address | None, TypedValue]]
) -> None:
    """A message is addressed to the target; the caller is whoever sent this one, or None."""
    received: list[tuple[Address | None, TypedValue]] = []

    def receive(context: Context, message: Message) -> None:
        assert context.address == target
        assert (message.target_typename, message.target_id) == (target.typename, target.id)
        received.append((context.caller, message.typed_value))

    invoke(_registered(receive), InvocationBatch(target, {}, [Invocation(*each) for each in sent]))

    assert received == list(sent)


def test_effects_are_collected_over_the_batch(run: Run) -> None:
    """Messages and records of all invocations are returned, in the order of sending."""

    def send(context: Context, message: Message) -> None:
        number = message.as_int()
        assert context.caller == CALLER
        context.send(message_builder(CALLER.typename, context.caller.id, int_value=number))
        context.send(_record(number))

    result = run(send, _batch(1, 2, caller=CALLER))

    assert [message.as_int() for message in result.messages] == [1, 2]
    assert [message.typed_value for message in result.egress_messages] == [
        _record(1).typed_value,
        _record(2).typed_value,
    ]
    assert result.state_mutations == {}


def test_a_deleted_value_is_a_mutation(run: Run) -> None:
    """Deleting is told by None; a value set afterwards wins."""

    def delete(context: Context, message: Message) -> None:
        del context.storage.count
        if message.as_int():
            context.storage.count = message.as_int()

    deleted = run(delete, _batch(1, 0, state={"count": typed(1, IntType)}))
    replaced = run(delete, _batch(0, 1, state={"count": typed(1, IntType)}))

    assert deleted.state_mutations == {"count": None}
    assert replaced.state_mutations == {"count": typed(1, IntType)}


def test_an_empty_batch_has_no_effects(run: Run) -> None:
    """Without messages the function is not called."""
    result = run(_add, _batch())

    assert result == InvocationResult({}, [], [], [], [], wake_ups=[])


def _fail_on_two(context: Context, message: Message) -> None:
    _add(context, message)
    if message.as_int() == 2:
        raise KeyError("user")


def test_a_failure_says_where_it_was(run: Run) -> None:
    """The error has the function, the address, the exception, and the invocation's index."""
    (failed,) = run(_fail_on_two, _batch(1, 2, 3)).failures

    assert failed.index == 1
    assert type(failed.error) is FunctionError
    assert failed.error.message == (
        "function com.example.fns/counter failed at address com.example.fns/counter/Ada: "
        "KeyError: 'user'"
    )


def test_a_failure_leaves_the_state_alone(run: Run) -> None:
    """The batch's input does not change."""
    state = {"count": typed(7, IntType)}

    run(_fail_on_two, _batch(1, 2, state=state))

    assert state == {"count": typed(7, IntType)}


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=8), st.sampled_from([0, 1]))
def test_what_fails_leaves_no_trace(commands: list[tuple[int, bool]], kind: int) -> None:
    """The effects of a batch are exactly the effects of the messages that do not fail."""

    def work(context: Context, message: Message) -> None:
        number = message.as_int()
        if number % 3 == 0:
            del context.storage.count
        _add(context, message)
        context.send(message_builder(CALLER.typename, "x", int_value=number))
        context.send(_record(number))
        context.send_after(timedelta(number), message_builder("a/b", "x", int_value=number), "t")
        context.cancel_delayed_message(f"token {number}")
        if number >= 100:
            raise ValueError(number)

    run = [_run_plain, _run_coroutine][kind]
    done = run(work, _batch(*(n + 100 * fails for n, fails in commands)))
    expected = run(work, _batch(*(n for n, fails in commands if not fails)))

    assert done.state_mutations == expected.state_mutations
    assert [m.typed_value for m in done.messages] == [m.typed_value for m in expected.messages]
    assert [m.typed_value for m in done.egress_messages] == [
        m.typed_value for m in expected.egress_messages
    ]
    assert [(type(each), each.cancellation_token) for each in done.delayed] == [
        (type(each), each.cancellation_token) for each in expected.delayed
    ]
    assert [f.index for f in done.failures] == [i for i, (_, fails) in enumerate(commands) if fails]


def test_a_traceback_starts_in_the_users_code() -> None:
    """The traceback omits the frames of the loop that calls functions."""
    (failed,) = invoke(_registered(_fail_on_two), _batch(2)).failures

    lines = failed.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{__file__}"')
    assert lines[1].endswith("in _fail_on_two")
    assert lines[-1] == "KeyError: 'user'"


def test_a_stored_value_that_does_not_decode_has_its_address() -> None:
    """The function, the address and the value, so that the value can be found."""

    def read(context: Context, _message: Message) -> None:
        _ = context.storage.count

    batch = _batch(1, state={"count": TypedValue("test/other", b"one")})
    (failed,) = invoke(_registered(read), batch).failures

    assert failed.error.code == "SF305"
    assert failed.error.message.startswith(
        f"function {TARGET.typename} at address {TARGET}: value 'count' is stored as"
    )


def test_a_traceback_has_the_causes(run: Run) -> None:
    """The traceback includes chained exceptions."""

    def fail(_context: Context, _message: Message) -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise RuntimeError("outer") from error

    (failed,) = run(fail, _batch(1)).failures

    assert "KeyError: 'inner'" in failed.traceback
    assert "RuntimeError: outer" in failed.traceback


def test_errors_of_an_invocation_pass(run: Run) -> None:
    """An error that names its own cause, such as a value that does not decode, is not wrapped."""

    def read(_context: Context, message: Message) -> None:
        message.as_int()

    batch = InvocationBatch(TARGET, {}, [Invocation(None, TypedValue("a/b", b"Hello"))])

    (failed,) = run(read, batch).failures

    assert type(failed.error) is ValueDecodeError
    assert failed.error.message.startswith("message to com.example.fns/counter/Ada: ")


def test_ill_formed_messages_are_errors_of_the_function(run: Run) -> None:
    """A definition error inside a function keeps its own code in the text."""

    def send(context: Context, _message: Message) -> None:
        context.send("Hello")  # type: ignore[call-overload]

    (failed,) = run(send, _batch(1)).failures

    assert str(failed.error) == (
        "[SF301] function com.example.fns/counter failed at address com.example.fns/counter/Ada: "
        "DefinitionError: [SF200] send takes a Message, an EgressMessage, or an Address and a value, not str"
    )


def _subclasses(class_: type[BaseException]) -> Iterator[type[BaseException]]:
    yield class_
    for subclass in class_.__subclasses__():
        yield from _subclasses(subclass)


BUILTIN = sorted(
    {each for each in _subclasses(BaseException) if each.__module__ == "builtins"},
    key=lambda each: each.__name__,
)
"""Everything that Python itself raises."""
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "UnicodeDecodeError": ("utf-8", b"", 0, 1, "why"),
    "UnicodeEncodeError": ("utf-8", "", 0, 1, "why"),
    "UnicodeTranslateError": ("", 0, 1, "why"),
    "BaseExceptionGroup": ("why", [KeyboardInterrupt(), ValueError()]),
    "ExceptionGroup": ("why", [ValueError(), TypeError()]),
}


class _BrokenMeta(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override] # that is the point
        raise ValueError("no name")


class _Nameless(Exception, metaclass=_BrokenMeta):  # noqa: N818 - as broken as can be
    pass


class _Broken(BaseException):
    """Fails at whatever the class is told to."""

    def __init__(self, broken: frozenset[str]) -> None:
        self.broken = broken

    def _maybe_fail(self, name: str) -> None:
        if name in object.__getattribute__(self, "broken"):
            raise SystemExit(name)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            object.__getattribute__(self, "_maybe_fail")(name)
        return super().__getattribute__(name)

    def __str__(self) -> str:
        self._maybe_fail("__str__")
        return "\ud800" * 100_000

    def __repr__(self) -> str:
        self._maybe_fail("__repr__")
        return "\ud800"


class _OddError(FunctionError):
    """An error of ours that users have derived from, and not as it is meant."""

    def __init__(self) -> None:
        pass


def _cycle() -> BaseException:
    first, second = ValueError(1), KeyError(2)
    first.__cause__, second.__cause__ = second, first
    first.__context__ = second.__context__ = first
    return first


def _chain(length: int) -> BaseException:
    last: BaseException = ValueError(0)
    for number in range(length):
        following = ValueError(number)
        following.__cause__ = last
        last = following
    return last


broken = st.frozensets(
    st.sampled_from(
        ["__str__", "__repr__", "__traceback__", "__cause__", "__context__", "__class__",
         "__suppress_context__", "__notes__", "__dict__", "__module__"]
    )
)  # fmt: skip
raised = st.one_of(
    st.sampled_from(BUILTIN).map(
        lambda each: partial(each, *ARGUMENTS.get(each.__name__, ("why",)))
    ),
    broken.map(lambda names: partial(_Broken, names)),
    st.sampled_from([0, 10, 10**6]).map(lambda size: lambda: FunctionError("x" * size)),
    st.sampled_from([1, 5_000]).map(lambda length: partial(_chain, length)),
    st.sampled_from(
        [
            asyncio.CancelledError,
            _Nameless,
            _OddError,
            _cycle,
            partial(FunctionError, cast("str", None)),
        ]
    ),
)
"""What makes them: to show some of them is not possible."""


@given(make=raised, kind=st.sampled_from([0, 1]))
def test_whatever_is_raised_is_the_functions_failure(
    make: Callable[[], BaseException], kind: int
) -> None:
    """Exits, interrupts, cancellations and exceptions that cannot be shown are failures, too."""

    def fail(context: Context, message: Message) -> None:
        _add(context, message)
        if message.as_int() == 2:
            raise make()

    result = [_run_plain, _run_coroutine][kind](fail, _batch(1, 2, 3))

    assert result.state_mutations == {"count": typed(4, IntType)}
    (failed,) = result.failures
    assert failed.index == 1
    assert isinstance(failed.error, InvocationError)
    assert len(failed.error.message) < 12_000
    assert len(failed.traceback) < 120_000
    again = type(failed.error)(f"{failed.error.message} (more)")
    for text in (failed.error.message, failed.cause, failed.traceback, again.message):
        assert type(text.encode("utf-8", "backslashreplace")) is bytes


def test_a_coroutine_that_cancels_itself_fails_alone() -> None:
    """Neither the messages behind it nor other addresses are cancelled."""
    functions = StatefulFunctions()

    @functions.bind(TARGET.typename, [ValueSpec("count", IntType)])
    async def work(context: Context, message: Message) -> None:
        _add(context, message)
        task = asyncio.current_task()
        if message.as_int() == 2 and task is not None:
            task.cancel()

    batch = _batch(1, 2, 3)

    result = asyncio.run(invoke_async(functions.for_typename(TARGET.typename), batch))

    assert [failed.cause for failed in result.failures] == ["CancelledError"]
    assert result.state_mutations == {"count": typed(4, IntType)}


@pytest.mark.parametrize(
    "send",
    [
        lambda ctx: ctx.send(Message("a/b", "x", TypedValue("a/\ud800", b""))),
        lambda ctx: ctx.send(Message("a/b", "x", TypedValue("statefun.timers/wake-up", b"7"))),
        lambda ctx: ctx.send(Message("a/b", "x", TypedValue("a/b", cast("bytes", "text")))),
        lambda ctx: ctx.send(Message("a/b", "x", TypedValue("a/b", bytes(2**26 + 1)))),
        lambda ctx: ctx.send_after(
            timedelta(1), Message("a/b", "x", TypedValue("a/b", bytes(2**26 + 1)))
        ),
        lambda ctx: ctx.send(message_builder("a/b", "x", value=2**26 + 1, value_type=ZEROS)),
        lambda ctx: ctx.send_after(timedelta.max, message_builder("a/b", "x", int_value=1)),
        lambda ctx: setattr(ctx.storage, "blob", 2**26 + 1),
        lambda ctx: ctx.send(message_builder("a/\ud800", "x", int_value=1)),
        lambda ctx: ctx.send(KafkaEgressMessage("a/b", topic="t", key="\ud800", value=b"")),
        lambda ctx: ctx.send(KafkaEgressMessage("a/b", topic="t", headers={"\ud800": b""}, value=b"")),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_fails_where_it_is_sent(send: Callable[[Context], None]) -> None:
    """And not when the effects of all functions are written down."""
    functions = StatefulFunctions()
    functions.register(TARGET.typename, lambda ctx, _: send(ctx), [ValueSpec("blob", ZEROS)])

    result = invoke(functions.for_typename(TARGET.typename), _batch(1))

    (failed,) = result.failures
    assert "DefinitionError" in failed.error.message
    assert result[:4] == ({}, [], [], [])


def test_values_up_to_the_limit_can_be_sent_and_stored() -> None:
    """64 MiB are not too many."""
    functions = StatefulFunctions()

    @functions.bind(TARGET.typename, [ValueSpec("blob", ZEROS)])
    def work(ctx: Context, message: Message) -> None:
        ctx.storage.blob = 2**26
        ctx.send(message_builder("a/b", "x", value=2**26, value_type=ZEROS))

    result = invoke(functions.for_typename(TARGET.typename), _batch(1))

    assert result.failures == []
    assert len(result.messages[0].raw_value()) == 2**26
