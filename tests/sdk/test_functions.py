# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from statefun import (
    Context,
    DefinitionError,
    IntType,
    Message,
    StatefulFunctions,
    TypeName,
    UnknownFunctionError,
    ValueSpec,
    function,
)
from statefun.sdk.functions import default_functions

GREETER = "com.example.fns/greeter"


def greet(_context: Context, _message: Message) -> None:
    """Do nothing."""


def other(_context: Context, _message: Message) -> None:
    """Do nothing either."""


async def greet_later(_context: Context, _message: Message) -> None:
    """Do nothing, in a coroutine."""


class Greeter:
    """Greets by method, and by being called."""

    def greet(self, _context: Context, _message: Message) -> None:
        """Do nothing."""

    async def greet_later(self, _context: Context, _message: Message) -> None:
        """Do nothing, in a coroutine."""

    def __call__(self, _context: Context, _message: Message) -> None:
        """Do nothing."""


class LateGreeter:
    """Greets in a coroutine when it is called."""

    async def __call__(self, _context: Context, _message: Message) -> None:
        """Do nothing."""


def _greet_with(_word: str, _context: Context, _message: Message) -> None: ...


async def _greet_later_with(_word: str, _context: Context, _message: Message) -> None: ...


def _place(fun: Any) -> str:
    return f"{fun.__qualname__} ({__file__}:{fun.__code__.co_firstlineno})"


@pytest.fixture
def functions() -> StatefulFunctions:
    """Return an empty registry."""
    return StatefulFunctions()


def test_registering_keeps_the_function(functions: StatefulFunctions) -> None:
    """A registered function is found with its name and values."""
    spec = ValueSpec("visits", IntType)

    functions.register(GREETER, greet, [spec])

    found = functions.for_typename(GREETER)
    assert found.typename == TypeName("com.example.fns", "greeter")
    assert found.call is greet
    assert found.specs == {"visits": spec}
    assert not found.is_async
    assert functions.find(GREETER) is found
    assert list(functions) == [found]
    assert len(functions) == 1


def test_binding_leaves_the_function_as_it_is(functions: StatefulFunctions) -> None:
    """The decorator returns the user's own function."""
    decorated = functions.bind(GREETER)(greet)

    assert decorated is greet
    assert functions.for_typename(GREETER).call is greet


def test_the_decorator_adds_to_the_given_registry(functions: StatefulFunctions) -> None:
    """Without another registry it is the process's own."""
    typename = "test.functions/decorated"

    here = function(typename, [ValueSpec("visits", IntType)], functions=functions)(greet)
    assert default_functions.find(typename) is None
    there = function(typename)(greet)

    assert here is there is greet
    assert list(functions.for_typename(typename).specs) == ["visits"]
    assert default_functions.for_typename(typename).call is greet


@pytest.mark.parametrize(
    ("fun", "is_async"),
    [
        (greet, False),
        (greet_later, True),
        (Greeter().greet, False),
        (Greeter().greet_later, True),
        (Greeter(), False),
        (LateGreeter(), True),
        (functools.partial(_greet_with, "Hello"), False),
        (functools.partial(_greet_later_with, "Hello"), True),
        (lambda _context, _message: None, False),
        (lambda *_arguments: None, False),
        (lambda _context, _message, _word="Hello": None, False),
    ],
    ids=[
        "function",
        "coroutine",
        "method",
        "coroutine-method",
        "object",
        "coroutine-object",
        "partial",
        "coroutine-partial",
        "lambda",
        "any",
        "default",
    ],
)
def test_whatever_takes_two_arguments_is_a_function(
    functions: StatefulFunctions, fun: Any, *, is_async: bool
) -> None:
    """Functions, methods, objects and partials will do, and coroutines are told apart."""
    functions.register(GREETER, fun)

    assert functions.for_typename(GREETER).is_async == is_async


def _none() -> None: ...


def _one(_context: Context) -> None: ...


def _three(_context: Context, _message: Message, _more: int) -> None: ...


def _keyword(_context: Context, *, message: Message) -> None: ...


@pytest.mark.parametrize("fun", [_none, _one, _keyword])
def test_functions_take_two_or_three_arguments(functions: StatefulFunctions, fun: Any) -> None:
    """The error names the function, its file and line, and its signature."""
    signatures = {
        _none: "() -> 'None'",
        _one: "(_context: 'Context') -> 'None'",
        _keyword: "(_context: 'Context', *, message: 'Message') -> 'None'",
    }

    with pytest.raises(DefinitionError) as raised:
        functions.register(GREETER, fun)

    assert raised.value.message == (
        f"{_place(fun)}: a stateful function must take exactly two arguments, (context, message), or "
        "three, the last of which is annotated with a class of values, a State; its signature is "
        f"{signatures[fun]}"
    )
    assert len(functions) == 0


def test_a_third_argument_is_a_state(functions: StatefulFunctions) -> None:
    """Nothing else could be handed to it."""
    with pytest.raises(DefinitionError) as raised:
        functions.register(GREETER, _three)

    assert raised.value.message == (
        f"{_place(_three)}: parameter _more: the third parameter of a stateful function must "
        "be annotated with a subclass of State, not with int"
    )


def _generator(_context: Context, _message: Message) -> Iterator[None]:
    yield


async def _async_generator(_context: Context, _message: Message) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("fun", [_generator, _async_generator])
def test_functions_do_not_yield(functions: StatefulFunctions, fun: Any) -> None:
    """A generator would never run."""
    with pytest.raises(DefinitionError) as raised:
        functions.register(GREETER, fun)

    assert raised.value.message == (
        f"{_place(fun)}: a stateful function must not yield; it sends messages with ctx.send"
    )


def test_functions_can_be_called(functions: StatefulFunctions) -> None:
    """A name is no function."""
    with pytest.raises(DefinitionError) as raised:
        functions.register(GREETER, "greet")  # type: ignore[arg-type]

    assert raised.value.message == "'greet': 'greet' is not a function"


def test_ill_formed_definitions_name_the_function(functions: StatefulFunctions) -> None:
    """Errors of the typename and of the specs begin with the function's name."""
    specs = [ValueSpec("visits", IntType), ValueSpec("visits", IntType)]

    with pytest.raises(DefinitionError) as name:
        functions.register("greeter", greet)
    with pytest.raises(DefinitionError) as values:
        functions.register(GREETER, greet, specs)

    assert name.value.message == (
        f"{_place(greet)}: typename 'greeter' is not of the form <namespace>/<name>, "
        "such as 'com.example.fns/greeter'"
    )
    assert values.value.message == f"{_place(greet)}: value 'visits' is declared twice"
    assert len(functions) == 0


def test_a_typename_has_one_function(functions: StatefulFunctions) -> None:
    """A second function is refused, naming both, and the first one stays."""
    functions.register(GREETER, greet)

    with pytest.raises(DefinitionError) as raised:
        functions.register(GREETER, other)

    assert raised.value.message == (
        f"{_place(other)}: {GREETER} is already registered by {_place(greet)}; "
        "a typename can have only one function, to which .on(...) adds handlers for further types"
    )
    assert functions.for_typename(GREETER).call is greet


def test_a_function_can_be_defined_again(functions: StatefulFunctions) -> None:
    """A notebook cell that runs again replaces its function and specs."""

    def define(*specs: ValueSpec) -> Any:
        @functions.bind(GREETER, specs)
        def greet_again(_context: Context, _message: Message) -> None: ...

        return greet_again

    define()
    second = define(ValueSpec("visits", IntType))

    assert functions.for_typename(GREETER).call is second
    assert list(functions.for_typename(GREETER).specs) == ["visits"]
    assert len(functions) == 1


def test_one_function_can_have_several_types(functions: StatefulFunctions) -> None:
    """Each typename is a separate function."""
    functions.register(GREETER, greet)
    functions.register("com.example.fns/welcome", greet)

    assert [str(each.typename) for each in functions] == [GREETER, "com.example.fns/welcome"]


def test_blanks_around_a_typename_do_not_count(functions: StatefulFunctions) -> None:
    """It is registered under the name that was parsed."""
    functions.register(f" {GREETER} ", greet)

    assert functions.find(GREETER) is not None


def test_an_exact_name_wins(functions: StatefulFunctions) -> None:
    """A function for a whole namespace takes all names without their own function."""
    functions.register("com.example.fns/*", other)
    functions.register(GREETER, greet)

    assert functions.for_typename(GREETER).call is greet
    assert functions.for_typename("com.example.fns/anything").call is other
    assert functions.find("com.example/greeter") is None
    assert functions.find("com.example.fns.more/greeter") is None


@pytest.mark.parametrize(
    ("registered", "typename", "hint"),
    [
        ([], GREETER, " (registered: none)"),
        ([GREETER, "a/b"], "com.example.fns/greater", f"; did you mean {GREETER}?"),
        (["x/y", "a/b"], GREETER, " (registered: a/b, x/y)"),
    ],
    ids=["none", "near", "far"],
)
def test_an_unknown_function_comes_with_a_hint(
    functions: StatefulFunctions, registered: list[str], typename: str, hint: str
) -> None:
    """The error has the nearest name, or all there are."""
    for name in registered:
        functions.register(name, greet)

    with pytest.raises(UnknownFunctionError) as raised:
        functions.for_typename(typename)

    assert raised.value.message == f"no function {typename} is registered{hint}"
    assert functions.find(typename) is None
