# SPDX-License-Identifier: Apache-2.0
"""Values with parts of a secret type are secret, in states and in messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NewType, TypedDict

import attrs
import pytest

from statefun import (
    Address,
    Context,
    DefinitionError,
    State,
    StatefulFunctions,
    Type,
    TypedValue,
    ValueDecodeError,
    make_json_type,
    secret_type,
    state_value,
)
from statefun.runtime.checkpoint.known_functions import KnownFunctions
from statefun.sdk.annotations import automatic_type, is_secret_type, known_types
from statefun.sdk.invocation import invoke
from statefun.sdk.invocation_batch import Invocation, InvocationBatch

PLANTED = "s3cr3t-of-parts"


@attrs.frozen
class Login:
    """What nobody may see."""

    password: str


@attrs.frozen
class Account:
    """A class with a secret part."""

    login: Login | None = None


@dataclass
class Node:
    """A class with parts of its own class."""

    text: str
    nodes: list[Node]


@dataclass
class SecretNode:
    """A class with parts of its own class, and a secret one."""

    nodes: list[SecretNode]
    account: Account | None = None


@dataclass
class Noted:
    """A class whose secret part has a note without a hash."""

    login: Annotated[Login, ["a note"]]


@dataclass
class NotedItems:
    """A class whose items have a note without a hash."""

    texts: list[Annotated[str, ["a note"]]]
    logins: dict[str, Annotated[Login, ["a note"]]] | None = None


class Row(TypedDict):
    """A row with a secret part."""

    account: Account


Alias = NewType("Alias", Account)
LOGIN = secret_type(make_json_type("test.parts/Login", Login))


class Values(State):
    """Values with secret parts."""

    alone: Login | None = None
    union: Login | int | None = None
    several: list[Login] = state_value(default_factory=list)
    part: Account | None = None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alone", Login(PLANTED)),
        ("union", Login(PLANTED)),
        ("several", [Login(PLANTED)]),
        ("part", Account(Login(PLANTED))),
    ],
)
def test_a_part_of_a_secret_type_is_secret(name: str, value: Any) -> None:
    """Neither the text of a state nor an error shows it, and the checkpoint knows that commands must not either."""
    values = Values(**{name: value})

    assert PLANTED not in repr(values)
    assert Values.__statefun_fields__[name].spec.type.is_secret


@pytest.mark.parametrize(("name", "value"), [("union", PLANTED), ("several", [Login(PLANTED), 5])])
def test_errors_do_not_quote_a_part_of_a_secret_type(name: str, value: Any) -> None:
    """An error of the state would be in the log, and in a dead letter's headers."""
    with pytest.raises(DefinitionError) as caught:
        setattr(Values(), name, value)
    assert PLANTED not in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (dict[str, tuple[Account, ...]], True),
        (Annotated[Noted, "a note"], True),
        (NotedItems, True),
        (list[Annotated[Login, ["a note"]]], True),
        (list[Annotated[int, ["a note"]]], False),
        (SecretNode, True),
        (list[Row], True),
        (list[Alias], True),
        (Node, False),
        (dict[str, list[int]] | Literal["Login", 1] | None, False),
        (Any, False),
    ],
)
def test_secret_parts_are_found_within_annotations(annotation: Any, *, expected: bool) -> None:
    """In items, fields and members, whatever the class contains."""
    assert automatic_type(annotation).is_secret is expected


def test_a_part_may_become_secret_later() -> None:
    """A type with such a part, and the copies of the type, are secret from then on; other types of the class are, too."""

    @attrs.frozen
    class Pin:
        digits: str

    @attrs.frozen
    class Card:
        pin: Pin

    plain = make_json_type("test.parts/PlainPin", Pin)
    card: Type[Any] = make_json_type("test.parts/Card", Card)
    assert not card.is_secret
    assert not plain.is_secret

    secret_type(make_json_type("test.parts/Pin", Pin))

    assert card.is_secret
    assert plain.is_secret
    assert is_secret_type("test.parts/Card")


def test_messages_with_a_secret_part_are_secret() -> None:
    """Neither an error about a message of a class without a type shows it, nor do commands that read the checkpoint."""
    functions = StatefulFunctions()

    @functions.bind("test.parts/account")
    def take(_ctx: Context, _account: Account) -> None: ...

    typename = "io.statefun.python/Account"
    content = f'{{"login": "{PLANTED}", "{PLANTED}": '.encode()
    for name in (typename, "test.parts/Account"):
        batch = InvocationBatch(
            Address("test.parts/account", "Ada"), {}, [Invocation(None, TypedValue(name, content))]
        )
        (failure,) = invoke(functions.for_typename("test.parts/account"), batch).failures
        assert isinstance(failure.error, ValueDecodeError)
        assert "since the value is secret" in failure.error.message

    assert is_secret_type(typename)
    assert not is_secret_type("io.statefun.python/json")
    assert typename in KnownFunctions().with_types(known_types()).secret_types
