# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import util
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from published_package import PROGRAMS, published_python

from statefun import (
    Address,
    Context,
    DefinitionError,
    EgressMessage,
    IntType,
    KafkaEgressMessage,
    Message,
    RequestError,
    RequestReplyHandler,
    StatefulFunctions,
    StatefunError,
    StringType,
    TypedValue,
    UnknownFunctionError,
    ValueDecodeError,
    ValueSpec,
    kafka_egress_message,
    kinesis_egress_message,
)
from statefun.protocol.request_reply_pb2 import FromFunction, ToFunction
from statefun.protocol.request_reply_pb2 import TypedValue as WireValue

COMMANDS = "test.types/commands"

Ask = Callable[[bytes], tuple[bool, bytes]]
"""Returns whether a request was answered, and the reply or the names of an exception's classes."""


@contextmanager
def published_program(name: str) -> Iterator[Ask]:
    """Run a program with the published package, in a process of its own."""
    with subprocess.Popen(
        [*published_python(), PROGRAMS / "serve.py", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(request: bytes) -> tuple[bool, bytes]:
            stdin.write(struct.pack("<i", len(request)) + request)
            stdin.flush()
            mark = stdout.read(1)
            return mark == b"=", stdout.read(struct.unpack("<i", stdout.read(4))[0])

        yield ask
        stdin.close()


def our_program(name: str) -> Ask:
    """Load the same program with this package."""
    spec = util.spec_from_file_location(f"published_{name}", PROGRAMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    program = util.module_from_spec(spec)
    spec.loader.exec_module(program)

    def ask(request: bytes) -> tuple[bool, bytes]:
        try:
            return True, program.handler.handle_sync(request)
        except Exception as error:  # noqa: BLE001 - compared with the other one
            return False, " ".join(kind.__name__ for kind in type(error).__mro__).encode()

    return ask


@pytest.fixture(scope="session")
def published() -> Iterator[Ask]:
    """A program that does what it is told, with the published package."""
    with published_program("program") as ask:
        yield ask


@pytest.fixture(scope="session")
def ours() -> Ask:
    """The same program with this package."""
    return our_program("program")


TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
TARGETS = st.sampled_from(["test.fns/plain", "test.fns/async", "type.example.com/a.b/c"])
IDS = st.sampled_from(["Ada", "é", "0"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)
VALUES = st.one_of(
    st.tuples(st.just("int"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("long"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("bool"), st.booleans()),
    st.tuples(st.just("double"), st.floats(allow_nan=False).map(lambda x: x + 0.0)),  # no -0.0
    st.tuples(st.just("string"), TEXTS),
    st.tuples(st.just("json"), JSON.filter(lambda value: value is not None)),
    st.tuples(st.just("text"), TEXTS),
)
STATES = st.one_of(
    st.tuples(st.just("count"), st.integers(-9, 9)),
    st.tuples(st.just("name"), TEXTS),
    st.tuples(st.just("flag"), st.booleans()),
    st.tuples(st.just("things"), JSON),
    st.tuples(st.just("text"), TEXTS),
)
NAMES = st.sampled_from(["count", "name", "flag", "things", "text", "unknown"])
MILLIS = st.integers(0, 10**9).map(lambda eighths: eighths * 125)
"""Their seconds are exact in binary: the published package rounds others by a millisecond."""


def command(name: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Return a command."""
    return st.tuples(*parts).map(lambda arguments: [name, *arguments])


def flat(strategy: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[list[Any]]:
    """Put the parts of tuples in the place of the tuples."""
    return strategy.map(
        lambda parts: [
            each for part in parts for each in (part if isinstance(part, tuple) else [part])
        ]
    )


RIGHT = flat(
    st.one_of(
        command("send", TARGETS, IDS, VALUES),
        command("after", MILLIS, TARGETS, IDS, VALUES, TEXTS),
        command("cancel", TEXTS.filter(bool)),
        command("set", STATES.filter(lambda state: state[1] is not None)),
        command("del", NAMES.filter(lambda name: name != "unknown")),
        command("get", NAMES.filter(lambda name: name != "unknown")),
        command("show"),
        command("kafka", st.just("topic"), TEXTS | st.integers(-9, 9) | st.floats(), TEXTS),
        command("kafka", st.just("topic"), TEXTS, st.none()),
        command("kinesis", st.just("stream"), TEXTS, TEXTS, st.none() | TEXTS),
        command("egress", VALUES),
    )
)
WRONG = flat(
    st.one_of(
        command("get", st.just("unknown")),
        command("del", st.just("unknown")),
        command("set", st.tuples(st.just("unknown"), st.just(1))),
        command("set", st.tuples(NAMES.filter(lambda name: name != "unknown"), st.none())),
        command("send", TARGETS, st.just(""), VALUES),
        command("send", TARGETS, IDS, st.just(("int", None))),
        command("kafka", st.just("topic"), st.none(), TEXTS),
        command("kafka", st.just("topic"), st.just([1]), TEXTS),
        command("kafka", st.just(""), TEXTS, TEXTS),
        command("kinesis", st.just("stream"), st.none(), TEXTS, st.none()),
        command("kinesis", st.just("stream"), TEXTS, st.none(), st.none()),
        command("kinesis", st.just(""), TEXTS, TEXTS, st.none()),
        command("egress", st.just(("int", None))),
        command("decode", st.sampled_from(["json", "int"])),
        command("fail", st.sampled_from(["value", "key"])),
    )
)


@st.composite
def requests(draw: st.DrawFn, commands: st.SearchStrategy[list[Any]]) -> bytes:
    """Return a request: state that is known in part, and messages with commands and others."""
    request = ToFunction()
    batch = request.invocation
    target = draw(st.sampled_from(["plain", "async", "stateless"]))
    batch.target.namespace, batch.target.type, batch.target.id = "test.fns", target, draw(IDS)
    names = ["count", "name", "flag", "things", "text"]
    for name in names if draw(st.booleans()) else draw(st.lists(st.sampled_from(names))):
        value = batch.state.add(state_name=name).state_value
        if draw(st.booleans()):
            kind, content = draw(_stored(name))
            value.typename, value.has_value, value.value = kind, True, content
    batch.state.add(state_name="left_over").state_value.has_value = False
    for _ in range(draw(st.integers(1, 3))):
        invocation = batch.invocations.add()
        if draw(st.booleans()):
            caller = invocation.caller
            caller.namespace, caller.type, caller.id = "test.fns", "plain", draw(IDS)
        invocation.argument.typename = COMMANDS
        invocation.argument.has_value = True
        todo = draw(st.lists(commands, max_size=4))
        if target == "stateless":
            todo = [each for each in todo if each[0] not in {"set", "del", "get"}]
        invocation.argument.value = json.dumps(todo).encode()
        if draw(st.integers(0, 9)) == 0:
            invocation.argument.typename = draw(st.sampled_from(["a/b", StringType.typename]))
            invocation.argument.has_value = draw(st.booleans())
            invocation.argument.value = draw(st.sampled_from([b"", b"\n\x03Ada"]))
    return request.SerializeToString()


def _stored(name: str) -> st.SearchStrategy[tuple[str, bytes]]:
    ints = st.integers(-9, 9).map(IntType.serializer().serialize)
    contents = {
        "count": ("io.statefun.types/int", ints),
        "name": (StringType.typename, TEXTS.map(StringType.serializer().serialize)),
        "flag": ("io.statefun.types/bool", st.sampled_from([b"", b"\x08\x01"])),
        "things": (COMMANDS, JSON.map(lambda value: json.dumps(value).encode())),
        "text": ("test.types/text", TEXTS.map(lambda text: text.encode("utf-16"))),
    }
    kind, strategy = contents[name]
    return st.tuples(st.just(kind), strategy)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(request_=requests(RIGHT))
def test_replies_are_those_of_the_published_package(
    published: Ask, ours: Ask, request_: bytes
) -> None:
    """Missing values, several messages of a request, delays, egresses, callers: all alike."""
    was_answered, theirs = published(request_)
    assert was_answered, theirs

    is_answered, reply = ours(request_)

    assert is_answered, reply
    assert FromFunction.FromString(reply) == FromFunction.FromString(theirs)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(request_=requests(RIGHT | WRONG))
def test_exceptions_are_those_that_programs_catch(
    published: Ask, ours: Ask, request_: bytes
) -> None:
    """Where the published package raises, ours does, too, and what catches its one catches ours."""
    was_answered, theirs = published(request_)

    is_answered, reply = ours(request_)

    assert is_answered == was_answered, (theirs, reply)
    if is_answered:
        assert FromFunction.FromString(reply) == FromFunction.FromString(theirs)
    else:
        assert theirs.split()[0] in reply.split()


def test_what_the_documentation_shows() -> None:
    """Each function several times, with the state of the time before, gives the same replies."""
    ours = our_program("documented")
    user = b'{"name": "Ada", "favorite_color": "red"}'
    name = StringType.serializer().serialize("Ada")
    values = [(StringType.typename, name), ("com.example/User", user)]
    answered = 0
    with published_program("documented") as published:
        for function in ("greeter", "counter", "delayed", "egress"):
            for typename, content in values:
                request = ToFunction()
                batch = request.invocation
                batch.target.namespace, batch.target.id = "com.example.fns", "Ada"
                batch.target.type = function
                batch.invocations.add().argument.typename = typename
                batch.invocations.add().caller.CopyFrom(batch.target)
                for invocation in batch.invocations:
                    argument = invocation.argument
                    argument.typename, argument.has_value, argument.value = typename, True, content
                for _ in range(4):
                    was_answered, theirs = published(request.SerializeToString())
                    is_answered, reply = ours(request.SerializeToString())
                    assert is_answered == was_answered, (function, typename, theirs, reply)
                    if not is_answered:
                        assert theirs.split()[0] in reply.split()
                        continue
                    answered += 1
                    found = FromFunction.FromString(reply)
                    assert found == FromFunction.FromString(theirs)
                    for spec in found.incomplete_invocation_context.missing_values:
                        batch.state.add(state_name=spec.state_name)
                    state = {each.state_name: each.state_value for each in batch.state}
                    for mutation in found.invocation_result.state_mutations:
                        state[mutation.state_name].CopyFrom(mutation.state_value)
    assert answered > 15


def asked(typename: str, *values: str, known: bool = True) -> bytes:
    """Return a request with strings for the address Ada."""
    request = ToFunction()
    batch = request.invocation
    batch.target.namespace, _, batch.target.type = typename.rpartition("/")
    batch.target.id = "Ada"
    if known:
        batch.state.add(state_name="seen")
    for value in values:
        argument = batch.invocations.add().argument
        argument.typename, argument.has_value = StringType.typename, True
        argument.value = StringType.serializer().serialize(value)
    return request.SerializeToString()


def counting(calls: list[str], **options: Any) -> StatefulFunctions:
    """Return a function that counts, and fails on a certain message."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/count", [ValueSpec("seen", IntType)], **options)
    def count(ctx: Context, message: Message) -> None:
        calls.append(message.as_string())
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        if message.as_string() == "wrong":
            raise LookupError("as asked")

    return functions


def test_values_are_asked_for_first() -> None:
    """The function is not called before the runtime has told them."""
    calls: list[str] = []
    handler = RequestReplyHandler(counting(calls))

    reply = FromFunction.FromString(handler.handle_sync(asked("test.fns/count", "a", known=False)))

    assert calls == []
    (missing,) = reply.incomplete_invocation_context.missing_values
    assert (missing.state_name, missing.type_typename) == ("seen", IntType.typename)


def test_a_delay_is_never_shortened() -> None:
    """The protocol has whole milliseconds: a part of one counts as one more."""
    functions = StatefulFunctions()

    @functions.bind("t/f")
    def later(ctx: Context, message: Message) -> None:
        ctx.send_after(timedelta(microseconds=1500), Address("t/f", "x"), 1)

    request = ToFunction()
    request.invocation.target.namespace, request.invocation.target.type = "t", "f"
    request.invocation.target.id = "x"
    request.invocation.invocations.add()
    reply = FromFunction.FromString(
        RequestReplyHandler(functions).handle_sync(request.SerializeToString())
    )

    assert reply.invocation_result.delayed_invocations[0].delay_in_ms == 2


def test_a_failure_ends_the_request() -> None:
    """The runtime sends all of it again, so nothing behind the failure is tried."""
    calls: list[str] = []
    handler = RequestReplyHandler(counting(calls))

    with pytest.raises(LookupError, match="as asked"):
        handler.handle_sync(asked("test.fns/count", "a", "wrong", "b"))

    assert calls == ["a", "wrong"]


def test_failures_may_be_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """With that policy the other messages count, and the failure is logged."""
    calls: list[str] = []
    handler = RequestReplyHandler(counting(calls, on_failure="skip"))

    reply = FromFunction.FromString(handler.handle_sync(asked("test.fns/count", "a", "wrong", "b")))

    assert calls == ["a", "wrong", "b"]
    (mutation,) = reply.invocation_result.state_mutations
    assert IntType.serializer().deserialize(mutation.state_value.value) == 2
    assert "skipped a message to test.fns/count/Ada: " in caplog.text
    assert "LookupError: as asked" in caplog.text


def test_what_ends_the_process_is_never_skipped() -> None:
    """A Ctrl-C comes from outside: the message was not handled, and comes again."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/plain", on_failure="skip")
    def plain(ctx: Context, message: Message) -> None:
        raise KeyboardInterrupt

    @functions.bind("test.fns/async", on_failure="skip")
    async def coroutine(ctx: Context, message: Message) -> None:
        raise SystemExit

    handler = RequestReplyHandler(functions)
    with pytest.raises(KeyboardInterrupt):
        handler.handle_sync(asked("test.fns/plain", "a"))
    with pytest.raises(SystemExit):
        asyncio.run(handler.handle_async(asked("test.fns/async", "a")))


@pytest.mark.parametrize("policy", [None, "skip"])
def test_the_loop_of_a_server_stays_as_it_is(policy: str | None) -> None:
    """Its tasks are made as before, and one that it cancels takes the call along."""
    functions = StatefulFunctions()
    ended: list[str] = []

    @functions.bind("test.fns/waits", on_failure=policy)
    async def waits(ctx: Context, message: Message) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(message.as_string())

    async def serve() -> object:
        handler = RequestReplyHandler(functions)
        task = asyncio.ensure_future(handler.handle_async(asked("test.fns/waits", "a")))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.get_running_loop().get_task_factory()

    assert asyncio.run(serve()) is None
    assert ended == ["a"]


def test_a_call_that_takes_too_long_fails() -> None:
    """It is interrupted, and counts as a TimeoutError."""
    functions = StatefulFunctions()
    limit = timedelta(milliseconds=50)

    @functions.bind("test.fns/slow", timeout=limit)
    def slow(ctx: Context, message: Message) -> None:
        while True:
            pass

    @functions.bind("test.fns/waits", timeout=limit)
    async def waits(ctx: Context, message: Message) -> None:
        await asyncio.sleep(60)

    @functions.bind("test.fns/blocks", timeout=limit)
    async def blocks(ctx: Context, message: Message) -> None:
        while True:
            pass

    @functions.bind("test.fns/stubborn", timeout=limit)
    async def stubborn(ctx: Context, message: Message) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)

    handler = RequestReplyHandler(functions)
    for typename in ("test.fns/slow", "test.fns/waits", "test.fns/blocks", "test.fns/stubborn"):
        with pytest.raises(TimeoutError, match=r"longer than its timeout of 0:00:00.05"):
            handler.handle_sync(asked(typename, "a"))


def test_coroutines_run_side_by_side() -> None:
    """Of several requests in one event loop."""
    functions = StatefulFunctions()
    begun: list[str] = []
    met: list[str] = []
    both = asyncio.Event()

    @functions.bind("test.fns/meet")
    async def meet(ctx: Context, message: Message) -> None:
        begun.append(message.as_string())
        if len(begun) == 2:
            both.set()
        await both.wait()
        met.append(message.as_string())

    async def answer() -> None:
        handler = RequestReplyHandler(functions)
        requests_ = [handler.handle_async(asked("test.fns/meet", name)) for name in "ab"]
        await asyncio.gather(*requests_)

    asyncio.run(answer())

    assert sorted(met) == ["a", "b"]


def test_requests_that_cannot_be_answered() -> None:
    """Each one has its own error."""
    handler = RequestReplyHandler(counting([]))

    with pytest.raises(UnknownFunctionError, match=r"did you mean test\.fns/count\?"):
        handler.handle_sync(asked("test.fns/cuont", "a"))
    with pytest.raises(KeyError):
        handler.handle_sync(asked("test.fns/cuont", "a"))
    with pytest.raises(RequestError, match="must be the bytes of a ToFunction"):
        handler.handle_sync(b"GET / HTTP/1.1")
    with pytest.raises(DefinitionError, match="needs a StatefulFunctions, not None"):
        RequestReplyHandler(None)  # type: ignore[arg-type] # that is the test
    assert RequestReplyHandler(StatefulFunctions()).functions


def test_a_function_for_all_of_a_namespace() -> None:
    """It answers for the names that nobody else has."""
    functions, calls = StatefulFunctions(), []

    @functions.bind("test.fns/*")
    def every(ctx: Context, message: Message) -> None:
        calls.append(ctx.address.name)

    assert RequestReplyHandler(functions).handle_sync(asked("test.fns/any", "a")) == b""
    assert calls == ["any"]


def test_a_timeout_of_the_function_itself_is_its_own() -> None:
    """Not that of the call."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/asks")
    async def asks(ctx: Context, message: Message) -> None:
        await asyncio.wait_for(asyncio.sleep(60), 0.01)

    with pytest.raises(asyncio.TimeoutError) as raised:
        RequestReplyHandler(functions).handle_sync(asked("test.fns/asks", "a"))

    assert "longer than its timeout" not in str(raised.value)


def test_a_message_without_a_value() -> None:
    """It is read as None, can be shown, and cannot be sent on."""
    functions = StatefulFunctions()
    shown: list[object] = []

    @functions.bind("test.fns/empty", on_failure="skip")
    def empty(ctx: Context, message: Message) -> None:
        shown.extend([repr(message), message.as_int(), message.raw_value()])
        ctx.send_egress(EgressMessage("a/b", message.typed_value))

    request = ToFunction.FromString(asked("test.fns/empty", "x"))
    request.invocation.invocations[0].argument.has_value = False

    assert RequestReplyHandler(functions).handle_sync(request.SerializeToString()) == b""
    text = "Message('test.fns/empty', 'Ada', 'io.statefun.types/string', no value)"
    assert shown == [text, None, None]


def test_values_may_be_those_of_the_protocol() -> None:
    """Programs may make messages from them, as the published package does."""
    wire = WireValue(typename="a/b", has_value=True, value=b"x")

    assert Message("a/f", "x", wire).typed_value == TypedValue("a/b", b"x")  # type: ignore[arg-type]
    assert EgressMessage("a/e", wire).typed_value == TypedValue("a/b", b"x")  # type: ignore[arg-type]
    with pytest.raises(
        DefinitionError, match="a typed value must be a typename and bytes, not b'x'"
    ):
        Message("a/f", "x", b"x")  # type: ignore[arg-type]


@pytest.mark.parametrize("typename", ["greeter", "/greeter", "test/"])
def test_nothing_is_sent_to_half_a_name(typename: str) -> None:
    """It is refused where it is written, whichever way."""
    value = TypedValue("a/b", b"")
    for build in (
        lambda: Message(typename, "x", value),
        lambda: EgressMessage(typename, value),
        lambda: KafkaEgressMessage(typename, topic="t", value="x"),
        lambda: kafka_egress_message(typename, "t", "x"),
        lambda: kinesis_egress_message(typename, "s", "x", "key"),
    ):
        with pytest.raises(DefinitionError, match="is not of the form <namespace>/<name>"):
            build()


def test_a_value_that_does_not_decode() -> None:
    """What programs catch around the published package's types catches ours."""
    message = Message("test.fns/f", "Ada", TypedValue("test/any", b"\xff"))

    for kind in (ValueDecodeError, StatefunError, ValueError, json.JSONDecodeError, TypeError):
        with pytest.raises(kind):
            message.as_int()
