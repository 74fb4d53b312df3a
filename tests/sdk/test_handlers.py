# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    ParamSpec,
    TypedDict,
    TypeVar,
)

import attrs
import pytest

from statefun import (
    Address,
    Context,
    DefinitionError,
    DoubleType,
    FloatType,
    IntType,
    LongType,
    Message,
    RecordError,
    State,
    StatefulFunctions,
    StringType,
    TypedValue,
    UnexpectedValueError,
    ValueDecodeError,
    ValueSpec,
    make_json_type,
    make_protobuf_type,
    state_value,
    types,
)
from statefun.protocol.types_pb2 import IntWrapper
from statefun.runtime.spark_internals.closures import pickled_closure, unpickled_closure
from statefun.sdk.encoding import typed
from statefun.sdk.invocation import invoke, invoke_async
from statefun.sdk.invocation_batch import Invocation, InvocationBatch, InvocationResult
from statefun.sdk.message import message_to
from statefun.sdk.primitives import KafkaLongType
from statefun.sdk.sent import Sent
from statefun.sdk.values import Values

T = TypeVar("T")
FUNCTION = "test.handlers/function"
ADDRESS = Address(FUNCTION, "Ada")


@attrs.frozen
class Login:
    """Somebody has come."""

    user: str
    place: str | None = None


@dataclasses.dataclass
class Logout:
    """Somebody has left."""

    user: str


class Pairs:
    """Stands for another module."""

    @dataclasses.dataclass
    class Pair(Generic[T]):
        """Another pair."""

        x: T
        z: T


class Pair(NamedTuple):
    """Two numbers."""

    x: int
    y: int = 0


class Visits(State):
    """What is kept."""

    visits: int = 0
    users: list[str] = state_value(default_factory=list)


LOGIN = TypedValue("com.example/Login", b'{"user": "Ada", "unknown": 1}')
TEXT = typed("hello", StringType)

Give = Callable[..., InvocationResult]


@pytest.fixture
def functions() -> StatefulFunctions:
    """Return an empty registry."""
    return StatefulFunctions()


@pytest.fixture
def give(functions: StatefulFunctions) -> Give:
    """Return what delivers values to the function."""

    def deliver(
        *values: TypedValue, state: dict[str, TypedValue] | None = None
    ) -> InvocationResult:
        function = functions.for_typename(FUNCTION)
        batch = InvocationBatch(ADDRESS, state or {}, [Invocation(None, each) for each in values])
        if function.is_async:
            return asyncio.run(invoke_async(function, batch))
        return invoke(function, batch)

    return deliver


@pytest.mark.parametrize(
    ("annotation", "argument", "value"),
    [
        (str, TEXT, "hello"),
        (int, typed(5, IntType), 5),
        (int, typed(2**40, LongType), 2**40),
        (int, typed(-1, KafkaLongType), -1),
        (float, typed(0.5, FloatType), 0.5),
        (float, typed(0.1, DoubleType), 0.1),
        (bool, TypedValue("io.statefun.types/bool", b"\x08\x01"), True),
        (bytes, TypedValue("a/b", b"\xff"), b"\xff"),
        (bytes, TEXT, TEXT.value),
        (Login, LOGIN, Login("Ada")),
        (Logout, TypedValue("io.statefun.python/Logout", b'{"user":"B"}'), Logout("B")),
        (Pair, TypedValue("any/Pair", b"[1]"), Pair(1)),
        (
            IntWrapper,
            TypedValue(f"type.googleapis.com/{IntWrapper.DESCRIPTOR.full_name}", b""),
            IntWrapper(),
        ),
        (list[int], TypedValue("io.statefun.python/json", b"[1, 2]"), [1, 2]),
        (Annotated[int, IntType], typed(5, IntType), 5),
        (str | int, typed(5, IntType), 5),
        (str | int | Login, LOGIN, Login("Ada")),
        (str | None, TEXT, "hello"),
    ],
)
def test_annotations_say_what_a_value_becomes(
    functions: StatefulFunctions, give: Give, annotation: Any, argument: TypedValue, value: Any
) -> None:
    """Each kind of annotation, in a plain function."""
    got: list[Any] = []

    def handle(ctx: Context, content: Any) -> None:
        got.append(content)

    handle.__annotations__["content"] = annotation
    functions.register(FUNCTION, handle)

    assert give(argument).failures == []
    assert got == [value]
    assert type(got[0]) is type(value)


def test_a_message_without_a_value_is_none_where_that_is_allowed(
    functions: StatefulFunctions, give: Give
) -> None:
    """And does not fit elsewhere."""
    got: list[Any] = []
    empty = TypedValue("a/b", None)  # type: ignore[arg-type] # as other SDKs may send it

    @functions.bind(FUNCTION)
    def handle(ctx: Context, text: str | None) -> None:
        got.append(text)

    assert give(empty).failures == []
    assert got == [None]

    @functions.bind("test.handlers/other")
    def other(ctx: Context, text: str) -> None: ...

    call = functions.for_typename("test.handlers/other").call
    with pytest.raises(
        UnexpectedValueError, match="takes a message without a value; they take str"
    ):
        call(Context(ADDRESS, Values({}, {}), Sent()), Message("a/b", "c", empty))


@pytest.mark.parametrize(
    "annotation", ["Message", "Context | Message", "Any", "statefun.Message", ""]
)
def test_messages_come_as_they_are(
    functions: StatefulFunctions, give: Give, annotation: str
) -> None:
    """Whatever type the value has; also if the annotation cannot be read where it stands."""
    got: list[Message] = []

    def handle(ctx: Undefined, message: Message) -> None:  # type: ignore[name-defined] # noqa: F821 - as with imports for type checkers
        got.append(message)

    if annotation:
        handle.__annotations__["message"] = annotation.replace("Context", "Login")
    else:
        del handle.__annotations__["message"]
    functions.register(FUNCTION, handle)

    give(TEXT)
    assert got[0].as_string() == "hello"


def test_handlers_are_chosen_by_the_type_of_the_value(
    functions: StatefulFunctions, give: Give
) -> None:
    """Coroutines and functions side by side; the exact type wins over any message."""
    got: list[tuple[str, Any]] = []

    @functions.bind(FUNCTION)
    async def anything(ctx: Context, message: Message, state: Visits) -> None:
        await asyncio.sleep(0)
        got.append(("anything", message.value_typename()))

    @anything.on(Login, Logout)
    def logs(ctx: Context, value: Login | Logout, state: Visits) -> None:
        state.visits += 1
        got.append(("logs", value))

    @anything.on(str)
    async def text(ctx: Context, value: str) -> None:
        got.append(("text", value))

    result = give(LOGIN, TEXT, typed(1, IntType), LOGIN)

    assert result.failures == []
    assert got == [
        ("logs", Login("Ada")),
        ("text", "hello"),
        ("anything", "io.statefun.types/int"),
        ("logs", Login("Ada")),
    ]
    assert result.state_mutations == {"visits": typed(2, LongType)}


def test_what_fits_no_handler_is_a_failure_of_the_message(
    functions: StatefulFunctions, give: Give
) -> None:
    """Of a class of its own, which is an error of the record."""

    @functions.bind(FUNCTION)
    def handle(ctx: Context, value: Login | int) -> None: ...

    unexpected, undecodable = give(TEXT, TypedValue("x/Login", b'{"user": 7}')).failures

    assert isinstance(unexpected.error, UnexpectedValueError)
    assert isinstance(unexpected.error, RecordError)
    assert unexpected.error.message == (
        f"message to {ADDRESS}: no handler of the function takes a message of type "
        "io.statefun.types/string; they take Login, int. Add one with .on(...), or "
        "name a class's type: make_json_type"
    )
    assert isinstance(undecodable.error, ValueDecodeError)
    assert undecodable.error.message.endswith("Expected `str`, got `int` - at `$.user`")


def test_what_a_renamed_class_was_is_taken_as_the_error_advises(
    functions: StatefulFunctions, give: Give
) -> None:
    """The error names the class that has a similar name now, without its module, and the line that mends it."""

    @attrs.frozen
    class Pong:
        n: int

    got: list[object] = []

    @functions.bind(FUNCTION)
    def handle(ctx: Context, value: str | Login | list[Login] | Pong) -> None:
        got.append(value)

    ping = TypedValue("io.statefun.python/Ping", b'{"n":1}')

    (failure,) = give(ping).failures
    assert isinstance(failure.error, UnexpectedValueError)
    assert failure.error.message == (
        f"message to {ADDRESS}: no handler of the function takes a message of type io.statefun.python/Ping; they take "
        "str, Login, list[Login], Pong. Add one with .on(...), or give a class this type, also one that was renamed: "
        'make_json_type("io.statefun.python/Ping", Pong)'
    )
    make_json_type("io.statefun.python/Ping", Pong)
    functions.register(FUNCTION, handle)  # as in a new version of the program
    assert give(ping).failures == []
    assert got == [Pong(1)]


def test_the_name_of_a_type_may_come_after_the_function(
    functions: StatefulFunctions, give: Give
) -> None:
    """Types are looked up when they are needed; a named class takes no other name."""

    @attrs.frozen
    class Named:
        n: int

    got: list[Named] = []

    @functions.bind(FUNCTION)
    def handle(ctx: Context, value: Named) -> None:
        got.append(value)
        ctx.send(ADDRESS, value)
        ctx.send(ADDRESS, "hello")

    make_json_type("test.handlers/Late", Named)

    result = give(
        TypedValue("test.handlers/Late", b'{"n":1}'), TypedValue("other/Named", b'{"n":2}')
    )

    assert got == [Named(1)]
    assert [message.typed_value for message in result.messages] == [
        TypedValue("test.handlers/Late", b'{"n":1}'),
        TEXT,
    ]
    assert len(result.failures) == 1


def test_a_type_of_another_class_is_not_taken(functions: StatefulFunctions, give: Give) -> None:
    """Although its name ends with that of the class; unless the two have the same fields."""
    others = [
        dataclasses.make_dataclass("Login", [("user", str), *more, ("place", str | None, None)])
        for more in ([("price", int)], [])
    ]
    make_json_type("test.handlers/Login", others[0])
    make_json_type("test.same/Login", others[1])
    got: list[object] = []

    @functions.bind(FUNCTION)
    def handle(ctx: Context, value: Login) -> None:
        got.append(value)

    content = b'{"user":"Ada","price":7}'
    result = give(
        *(TypedValue(f"{each}/Login", content) for each in ("test.handlers", "test.same", "any"))
    )

    (failure,) = result.failures
    assert failure.index == 0
    assert isinstance(failure.error, UnexpectedValueError)
    assert failure.error.message.endswith(
        "test.handlers/Login; they take Login. Send an object of the class that they take, or add a handler with "
        ".on(...): test.handlers/Login is the type of another class, types.Login"
    )
    assert got == [Login("Ada")] * 2


@pytest.mark.parametrize(
    ("namespace", "annotation"),
    [
        ("test.dicts", dict[str, Any]),
        ("test.mappings", Mapping[str, Any]),
        ("test.any", Any),
        ("test.optional", Login | None),
    ],
)
def test_a_type_of_no_other_class_is_taken_as_the_class_of_its_name(
    functions: StatefulFunctions, give: Give, namespace: str, annotation: Any
) -> None:
    """Such as the type that another function takes as a dict."""
    make_json_type(f"{namespace}/Login", annotation)
    got: list[Login] = []

    @functions.bind(FUNCTION)
    def handle(ctx: Context, value: Login) -> None:
        got.append(value)

    result = give(TypedValue(f"{namespace}/Login", b'{"user":"Ada"}'))

    assert (result.failures, got) == ([], [Login("Ada")])


def test_annotations_may_have_notes_without_a_hash(
    functions: StatefulFunctions, give: Give
) -> None:
    """Of what a function takes, and of the values of its state."""
    got: list[list[str]] = []

    class Seen(State):
        texts: list[Annotated[str, ["a note"]]] = state_value(default_factory=list)

    @functions.bind(FUNCTION)
    def handle(
        ctx: Context, value: list[Annotated[str, ["a note"]]] | int | None, seen: Seen
    ) -> None:
        assert isinstance(value, list)
        seen.texts += value
        got.append(seen.texts)

    content = TypedValue("io.statefun.python/json", b'["Ada"]')
    result = give(content, content)

    assert (result.failures, got) == ([], [["Ada"], ["Ada", "Ada"]])


def test_a_type_of_a_class_is_taken_as_a_dict_or_undecoded(
    functions: StatefulFunctions, give: Give
) -> None:
    """By a handler of a TypedDict of the name, with whatever fields; by one for all the rest, if another takes the class."""
    make_json_type(
        "test.handlers/View", dataclasses.make_dataclass("View", [("user", str), ("price", int)])
    )
    got: list[object] = []

    class View(TypedDict):
        user: str

    @functions.bind(FUNCTION)
    def view(ctx: Context, value: View) -> None:
        got.append(value)

    value = TypedValue("test.handlers/View", b'{"user":"Ada","price":7}')
    assert give(value).failures == []

    @functions.bind("test.handlers/rest")
    def handle(ctx: Context, value: Pair) -> None: ...

    @handle.on(bytes)
    def rest(ctx: Context, value: bytes) -> None: ...

    rest_function = functions.for_typename("test.handlers/rest")
    assert rest_function.type_of("any/Pair") is not None
    others = [dataclasses.make_dataclass("Pair", [("z", int)]), list[int], Pairs.Pair[int]]
    for number, other in enumerate(others):
        typename = f"test.other{number}/Pair"
        make_json_type(typename, other)
        assert rest_function.type_of(typename) is None
        assert rest_function.takes(typename)
    assert got == [{"user": "Ada"}]


def test_a_failed_call_changes_nothing_inside_its_state(
    functions: StatefulFunctions, give: Give
) -> None:
    """Neither what it assigned nor what it appended is kept; later calls begin before it."""

    @functions.bind(FUNCTION)
    def handle(ctx: Context, text: str, state: Visits) -> None:
        state.visits += 1
        state.users.append(text)
        if text == "fail":
            raise ValueError(text)

    result = give(typed("a", StringType), typed("fail", StringType), typed("b", StringType))

    (failure,) = result.failures
    assert "in __call__" not in failure.traceback
    assert result.state_mutations["visits"] == typed(2, LongType)
    assert result.state_mutations["users"] == TypedValue("io.statefun.python/json", b'["a","b"]')


def test_state_beside_specs(functions: StatefulFunctions, give: Give) -> None:
    """Both ways see the same values."""

    @functions.bind(FUNCTION, [ValueSpec("more", StringType)])
    def handle(ctx: Context, message: Message, state: Visits) -> None:
        ctx.storage.visits = 7
        state.visits += 1
        ctx.storage.more = message.as_string()
        assert ctx.storage.visits == state.visits

    result = give(TEXT)

    assert set(functions.for_typename(FUNCTION).specs) == {"more", "visits", "users"}
    assert result.state_mutations == {"visits": typed(8, LongType), "more": TEXT}


def test_programs_with_postponed_annotations_reach_workers(tmp_path: Path) -> None:
    """What the annotations of their classes name is not there to be looked up."""
    (tmp_path / "app.py").write_text(
        "from __future__ import annotations\n"
        "import pickle, sys\n"
        "from datetime import datetime\n"
        "import attrs\n"
        "from statefun import Context, State, StatefulFunctions, make_json_type, types\n"
        "from statefun.runtime.spark_internals.closures import pickled_closure\n"
        "@attrs.frozen\n"
        "class Item:\n"
        "    sku: str\n"
        "    at: datetime | None = None\n"
        "    parts: list[Item] = attrs.field(factory=list)\n"
        "@attrs.frozen\n"
        "class Order:\n"
        "    items: list[Item]\n"
        "make_json_type('test.handlers/SentOrder', Order)\n"
        "class Kept(State):\n"
        "    last: Item | None = None\n"
        "functions = StatefulFunctions()\n"
        "@functions.bind('test.handlers/sent')\n"
        "def handle(ctx: Context, order: Order, kept: Kept) -> None:\n"
        "    kept.last = order.items[0]\n"
        "content = pickled_closure((functions, types))\n"
        "open(sys.argv[1], 'wb').write(content)\n"
    )
    sent = tmp_path / "sent"
    subprocess.run([sys.executable, tmp_path / "app.py", sent], check=True)
    functions, own_types = unpickled_closure(sent.read_bytes())
    types.update(own_types)
    argument = TypedValue(
        "test.handlers/SentOrder",
        b'{"items": [{"sku": "a", "at": "2026-01-01T00:00:00", "parts": [{"sku": "b"}]}]}',
    )
    batch = InvocationBatch(Address("test.handlers/sent", "x"), {}, [Invocation(None, argument)])

    result = invoke(functions.for_typename("test.handlers/sent"), batch)

    assert result.failures == []
    assert b'"sku":"b"' in (result.state_mutations["last"] or TypedValue("", b"")).value


def test_functions_of_the_main_program_reach_workers() -> None:
    """Classes, states and handlers are pickled by value, also after they were used."""
    program = """
import attrs, enum
from statefun import Context, State
class Color(enum.Enum):
    RED = "red"
@attrs.frozen
class Car:
    color: Color
class Kept(State):
    last: Car | None = None
@function("test.handlers/pickled")
def handle(ctx: Context, car: Car, kept: Kept) -> None:
    kept.last = car
@handle.on(str)
def text(ctx: Context, text: str) -> None: ...
"""
    functions = StatefulFunctions()
    scope: dict[str, Any] = {"__name__": "__main__"}
    code = compile(program, "app.py", "exec", dont_inherit=True)
    exec(code, scope | {"function": functions.bind})
    function = functions.for_typename("test.handlers/pickled")
    batch = InvocationBatch(
        Address("test.handlers/pickled", "a"),
        {},
        [Invocation(None, TypedValue("x/Car", b'{"color":"red"}'))],
    )
    before = invoke(function, batch)

    sent = unpickled_closure(pickled_closure(function))

    assert before.failures == []
    assert invoke(sent, batch).state_mutations == before.state_mutations
    with pytest.raises(DefinitionError, match="in the program that registers"):
        sent.fun.on(int)


class Unknown:
    """Nothing can encode it."""


@attrs.frozen
class Private:
    """Its field would not be encoded."""

    _secret: str


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (Unknown, "test_handlers.Unknown is neither a dataclass, nor an attrs class"),
        (list[Unknown], "test_handlers.Unknown is neither"),
        (Private, "test_handlers.Private has a private field, _secret"),
        ("Missing", "its annotation 'Missing' cannot be read: NameError"),
    ],
)
def test_annotations_that_cannot_be_decoded_are_refused(
    functions: StatefulFunctions, annotation: Any, problem: str
) -> None:
    """Where the function is registered: naming function, file and parameter."""

    def handle(ctx: Context, value: Any) -> None: ...

    handle.__annotations__["value"] = annotation

    with pytest.raises(DefinitionError) as raised:
        functions.register(FUNCTION, handle)

    place = (
        f"{handle.__qualname__} ({__file__}:{handle.__code__.co_firstlineno}): parameter value: "
    )
    assert raised.value.message.startswith(place)
    assert problem in raised.value.message
    assert len(functions) == 0


def test_handlers_that_do_not_fit_are_refused(functions: StatefulFunctions) -> None:
    """None takes what another takes; each says what it takes; states agree."""

    class Other(State):
        visits: str = ""

    @functions.bind(FUNCTION)
    def handle(ctx: Context, value: str | Login, state: Visits) -> None: ...

    def again(ctx: Context, value: Any, state: Other) -> None: ...

    with pytest.raises(DefinitionError, match=r"handle \(.*\) already takes values of type Login"):
        handle.on(Login)(again)
    with pytest.raises(DefinitionError, match="needs the types"):
        handle.on()(again)
    with pytest.raises(DefinitionError, match="'visits' is declared twice, with different types"):
        handle.on(int)(again)
    with pytest.raises(DefinitionError, match=r"again \(.*Unknown is neither"):
        handle.on(Unknown)(again)


def test_handlers_of_one_name_are_different_handlers(
    functions: StatefulFunctions, give: Give
) -> None:
    """As with single dispatch, where all of them are called ``_``; also under two typenames."""
    got: list[tuple[str, Any]] = []

    @functions.bind(FUNCTION)
    @functions.bind("test.handlers/second")
    def handle(ctx: Context, value: int) -> None:
        got.append(("int", value))

    @handle.on(str)
    def _(ctx: Context, value: str) -> None:
        got.append(("str", value))

    @handle.on(Login)
    def _(ctx: Context, value: Login) -> None:
        got.append(("Login", value))

    give(typed(1, IntType), TEXT, LOGIN)

    assert got == [("int", 1), ("str", "hello"), ("Login", Login("Ada"))]
    assert functions.for_typename("test.handlers/second").takes(StringType.typename)


def test_classes_that_cannot_be_told_apart_are_refused(functions: StatefulFunctions) -> None:
    """Two of one name, or two annotations without a name; unless one of them gets one."""
    other = dataclasses.make_dataclass("Login", [("secret", str)])

    @functions.bind(FUNCTION)
    def handle(ctx: Context, value: Login | list[int]) -> None: ...

    handle.on(other)(lambda ctx, value: None)
    with pytest.raises(
        DefinitionError, match=r"take values of type io.statefun.python/Login; give"
    ):
        functions.for_typename(FUNCTION).takes("any/thing")
    make_json_type("test.handlers/OtherLogin", other)
    assert functions.for_typename(FUNCTION).takes("any/Login")
    handle.on(dict[str, int])(lambda ctx, value: None)
    with pytest.raises(DefinitionError, match=r"take values of type io.statefun.python/json"):
        functions.for_typename(FUNCTION).takes("any/thing")


def test_wrappers_are_called_as_they_are(functions: StatefulFunctions, give: Give) -> None:
    """Their own parameters count, unless they take any."""
    got: list[Any] = []

    def parsed(
        fun: Callable[[Context, dict[str, int]], None],
    ) -> Callable[[Context, Message], None]:
        @functools.wraps(fun)
        def wrapper(context: Context, message: Message) -> None:
            fun(context, json.loads(message.raw_value()))

        return wrapper

    def logged(fun: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(fun)
        def wrapper(*arguments: Any, **options: Any) -> None:
            fun(*arguments, **options)

        return wrapper

    @functions.bind(FUNCTION)
    @parsed
    def handle(context: Context, data: dict[str, int]) -> None:
        got.append(data)

    @functions.bind("test.handlers/logged")
    @logged
    def typed_handler(ctx: Context, value: Login, state: Visits) -> None: ...

    give(TypedValue("any/thing", b'{"a": 1}'))

    assert got == [{"a": 1}]
    assert functions.for_typename("test.handlers/logged").takes("any/Login")
    assert set(functions.for_typename("test.handlers/logged").specs) == {"visits", "users"}


def test_a_coroutine_that_nobody_awaits_is_a_failure(
    functions: StatefulFunctions, give: Give
) -> None:
    """A plain wrapper around a coroutine function would lose the message."""

    async def handle(ctx: Context, message: Message) -> None: ...

    def wrapper(ctx: Context, message: Message) -> Any:
        return handle(ctx, message)

    functions.register(FUNCTION, wrapper)
    (failure,) = give(TEXT).failures
    assert "which nobody awaits" in failure.error.message

    got: list[str] = []

    @functions.bind("test.handlers/mixed")
    async def first(ctx: Context, value: int) -> None: ...

    async def late(ctx: Context, value: str) -> None:
        got.append(value)

    def not_async(ctx: Context, value: str) -> Any:
        return late(ctx, value)

    first.on(str)(not_async)
    function = functions.for_typename("test.handlers/mixed")
    asyncio.run(invoke_async(function, InvocationBatch(ADDRESS, {}, [Invocation(None, TEXT)])))
    assert got == ["hello"]


def test_names_are_those_of_the_functions_module(
    functions: StatefulFunctions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class of the same name where it is registered is another one."""
    (tmp_path / "named_module.py").write_text(
        "from __future__ import annotations\n"
        "import dataclasses\n"
        "@dataclasses.dataclass\nclass Login:\n    secret: str\n"
        "def handle(ctx, value: Login): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("named_module")
    try:
        functions.register(FUNCTION, module.handle)
        assert functions.for_typename(FUNCTION).handlers[0].takes == (module.Login,)
    finally:
        del sys.modules["named_module"]


UserId = NewType("UserId", str)


class Options(TypedDict):
    """A dict, for a type checker."""

    a: int


@pytest.mark.parametrize(
    ("annotation", "sent"),
    [
        (Annotated[Message, "as it is"], "text"),
        (Annotated[int | str, "either"], 5),
        (UserId, "Ada"),
        (Options, {"a": 1}),
        (list[Options], [{"a": 1}]),
        (dict[str, int | None], {"a": 1, "b": None}),
        (date, date(2026, 11, 23)),
        (Decimal, Decimal("0.10")),
    ],
)
def test_what_is_sent_arrives(
    functions: StatefulFunctions, give: Give, annotation: Any, sent: Any
) -> None:
    """A value that ctx.send takes fits the annotation that describes it."""
    got: list[Any] = []

    def handle(ctx: Context, content: Any) -> None:
        got.append(content)

    handle.__annotations__["content"] = annotation
    functions.register(FUNCTION, handle)

    assert give(message_to(ADDRESS, sent).typed_value).failures == []
    assert len(got) == 1
    if not isinstance(got[0], Message):
        assert got == [sent]


@pytest.mark.parametrize(
    ("parameter", "annotation", "problem"),
    [
        ("value", Literal["a"], "cannot take Literal"),
        ("state", Visits | None, "a state is never None"),
        ("state", list[int], "annotated with a subclass of State, not with list"),
    ],
)
def test_annotations_that_could_never_fit_are_refused(
    functions: StatefulFunctions, parameter: str, annotation: Any, problem: str
) -> None:
    """At once."""

    def handle(ctx: Context, value: Any, state: Any) -> None: ...

    handle.__annotations__ |= {"value": int, "state": Visits, parameter: annotation}

    with pytest.raises(DefinitionError, match=problem):
        functions.register(FUNCTION, handle)


def test_a_cell_that_runs_again_replaces_its_handler(
    functions: StatefulFunctions, give: Give
) -> None:
    """And only that."""
    got: list[int] = []
    for number in (1, 2):

        @functions.bind(FUNCTION)
        def handle(ctx: Context, value: int) -> None: ...

        for _ in range(2):

            @handle.on(str)
            def text(ctx: Context, value: str, number: int = number) -> None:
                got.append(number)

    give(TEXT)

    assert got == [2]


def test_decorated_functions_stay_functions(functions: StatefulFunctions) -> None:
    """What cannot have attributes is registered all the same; what is named on is left alone."""

    class Service:
        on = "mine"

        def __call__(self, ctx: Context, message: Message) -> None: ...

        def handle(self, ctx: Context, number: int, state: Visits) -> None: ...

    service = Service()

    decorated: object = functions.bind("t/service")(service)
    assert decorated is service
    assert service.on == "mine"
    functions.bind("t/method")(service.handle)
    functions.bind("t/partial")(functools.partial(service.handle))
    functions.register_handler("t/method", [str], lambda ctx, value: None)
    assert functions.for_typename("t/method").takes(IntType.typename)
    assert functions.for_typename("t/method").takes(StringType.typename)


def test_text_of_messages_is_never_taken_for_an_annotation(functions: StatefulFunctions) -> None:
    """A local variable of a handler may have the name of a class's annotation."""
    program = """
from __future__ import annotations
import dataclasses
from datetime import date
from statefun import Address, Context

@dataclasses.dataclass
class Booking:
    on: date

def handle(ctx: Context, text: str) -> None:
    date = text
    ctx.send(Address("t/other", "x"), Booking(TODAY))

TODAY = date(2026, 1, 1)
"""
    module = ModuleType("text_module")
    sys.modules["text_module"] = module
    try:
        exec(compile(program, "app.py", "exec", dont_inherit=True), vars(module))
        functions.register(FUNCTION, module.handle)
        text = typed("__import__('sys').exit(7)", StringType)
        batch = InvocationBatch(ADDRESS, {}, [Invocation(None, text)])
        (sent,) = invoke(functions.for_typename(FUNCTION), batch).messages
    finally:
        del sys.modules["text_module"]

    assert sent.raw_value() == b'{"on":"2026-01-01"}'


def test_handlers_for_all_the_rest(functions: StatefulFunctions, give: Give) -> None:
    """Messages without a value, and bytes, go to their own handlers before a catch-all."""
    got: list[tuple[str, Any]] = []

    @functions.bind(FUNCTION)
    def anything(ctx: Context, message: Message) -> None:
        got.append(("anything", message.value_typename()))

    anything.on(None)(lambda ctx, value: got.append(("none", value)))
    empty = TypedValue("a/b", None)  # type: ignore[arg-type] # as other SDKs may send it

    give(empty, TEXT)
    assert got == [("none", None), ("anything", StringType.typename)]

    anything.on(bytes)(lambda ctx, value: got.append(("bytes", value)))
    give(TEXT)
    assert got[2] == ("bytes", TEXT.value)


def test_named_types_of_other_annotations(functions: StatefulFunctions) -> None:
    """A TypedDict and a generic annotation take the type that was named for them."""
    make_json_type("test.handlers/Options", Options)
    make_json_type("test.handlers/Ints", list[int])

    @functions.bind(FUNCTION)
    def handle(ctx: Context, value: Options | list[int]) -> None: ...

    function = functions.for_typename(FUNCTION)
    assert function.takes("test.handlers/Options")
    assert function.takes("test.handlers/Ints")
    assert function.takes("io.statefun.python/json")


@pytest.mark.parametrize(
    ("annotation", "sent"),
    [(list[Login], [Login("Ada")]), (tuple[int, str], (1, "a")), (dict[int, str], {1: "a"})],
    ids=str,
)
def test_annotations_bring_back_what_json_does_not(
    functions: StatefulFunctions, give: Give, annotation: Any, sent: Any
) -> None:
    """With the type that was named for one, on both sides."""
    type_ = make_json_type(f"test.handlers/{annotation.__origin__.__name__}", annotation)
    got: list[Any] = []

    def handle(ctx: Context, content: Any) -> None:
        got.append(content)

    handle.__annotations__["content"] = annotation
    functions.register(FUNCTION, handle)

    with pytest.raises(DefinitionError, match="decoding would return another value"):
        message_to(ADDRESS, sent)
    assert give(message_to(ADDRESS, sent, type_).typed_value).failures == []
    assert got == [sent]


def test_cells_with_classes_may_run_again(functions: StatefulFunctions, give: Give) -> None:
    """The classes are other objects then, and take the places of the former ones."""

    @functions.bind(FUNCTION)
    def handle(ctx: Context, value: int) -> None: ...

    for _ in range(2):

        @attrs.frozen
        class Event:
            n: int

        class Kept(State):
            event: Event | None = None

        @handle.on(Event)
        def event(ctx: Context, value: Event, kept: Kept) -> None:
            kept.event = value

    result = give(TypedValue("any/Event", b'{"n": 1}'))

    assert result.failures == []
    assert set(result.state_mutations) == {"event"}


def test_annotations_of_an_imported_module(
    functions: StatefulFunctions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are looked up where the function is defined, not where it is registered."""
    (tmp_path / "handlers_module.py").write_text(
        "from __future__ import annotations\n"
        "import dataclasses\n"
        "@dataclasses.dataclass\nclass Inner:\n    n: int\n"
        "def wrapped(ctx, value: Inner): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("handlers_module")
    try:
        functions.register(FUNCTION, module.wrapped)
        assert functions.for_typename(FUNCTION).takes("any/Inner")
    finally:
        del sys.modules["handlers_module"]


def test_a_protobuf_class_keeps_its_own_type(functions: StatefulFunctions) -> None:
    """The one it was given a namespace with."""
    type_ = make_protobuf_type(IntWrapper, "test.handlers")

    @functions.bind(FUNCTION)
    def handle(ctx: Context, value: IntWrapper) -> None: ...

    assert functions.for_typename(FUNCTION).takes(type_.typename)


P = ParamSpec("P")


def test_the_arguments_of_a_typed_decorator_say_nothing() -> None:
    """Its annotations are those of any function: the handler takes messages."""
    functions = StatefulFunctions()

    def decorated(function: Callable[P, None]) -> Callable[P, None]:
        def call(*arguments: P.args, **keywords: P.kwargs) -> None:
            function(*arguments, **keywords)

        return call

    @functions.bind(FUNCTION)
    @decorated
    def handle(ctx: Context, message: Message) -> None:
        """Take a message."""

    assert functions.for_typename(FUNCTION).handlers[0].takes == (Message,)
