# SPDX-License-Identifier: Apache-2.0
"""Values of secret types are in no text that statefun makes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import pytest

from statefun import (
    Address,
    Context,
    DefinitionError,
    IntType,
    KafkaEgressMessage,
    KinesisEgressMessage,
    Message,
    State,
    StateDecodeError,
    StatefulFunctions,
    StringType,
    Type,
    TypedValue,
    ValueDecodeError,
    ValueSpec,
    make_json_type,
    message_builder,
    secret_type,
    simple_type,
    state_value,
)
from statefun.sdk.annotations import is_secret_type
from statefun.sdk.encoding import encoded
from statefun.sdk.invocation import invoke
from statefun.sdk.invocation_batch import Invocation, InvocationBatch
from statefun.sdk.message import message_to
from statefun.sdk.raised import traceback_of
from statefun.sdk.secrecy import contains_secret
from statefun.sdk.types import default_types
from statefun.sdk.values import Values

PLANTED = "hunter2-4711"


@attrs.frozen
class Card:
    """A card."""

    number: int


def _refused(value: Any) -> Any:
    raise ValueError(f"no card: {value!r}")


class Login:
    """A class with a type of its own."""


class Account(State):
    """A state with a secret value."""

    visits: int = 0
    password: str = state_value(default="", secret=True)
    cards: list[Card] = state_value(default_factory=list, secret=True)


@pytest.fixture
def refusing() -> Type[Any]:
    """Return a secret type whose functions quote the value that they refuse."""
    return secret_type(simple_type("test.secrets/Refusing", _refused, _refused))


def hides(error: BaseException) -> bool:
    """Return whether neither the text nor the traceback of an error has the planted secret."""
    return PLANTED not in f"{error}{traceback_of(error)}"


def test_the_text_of_a_state_has_no_secret() -> None:
    """The names of its values stay."""
    account = Account(visits=1, password=PLANTED, cards=[Card(4711)])

    assert repr(account) == "Account(visits=1, password=(secret), cards=(secret))"
    assert (account.password, account.cards) == (PLANTED, [Card(4711)])


def test_a_value_is_secret_without_its_type_being_so() -> None:
    """All other texts stay as they are."""
    assert ValueSpec("pin", StringType, secret=True).type.is_secret
    assert not StringType.is_secret
    assert not ValueSpec("name", StringType).type.is_secret
    upgraded = ValueSpec("pin", StringType, upgrades={IntType: str}, secret=True).type
    assert upgraded.is_secret
    assert upgraded.decode(IntType.typename, IntType.serializer().serialize(7)) == "7"


def test_a_secret_type_stays_secret() -> None:
    """The same definition, registered again without a word about secrets, is a secret type, too."""
    secret_type(simple_type("test.secrets/Again", str.encode, bytes.decode))

    again = simple_type("test.secrets/Again", str.encode, bytes.decode)

    assert again.is_secret
    assert default_types.find("test.secrets/Again") is again


def test_a_secret_type_is_registered_instead_of_the_former_one() -> None:
    """It encodes and decodes as before, also in another process; statefun's own types are never secret."""
    plain = make_json_type("test.secrets/Card", Card)
    secret = secret_type(plain)

    assert default_types.find("test.secrets/Card") is secret
    assert default_types.of_class(Card) == (secret,)
    assert is_secret_type("test.secrets/Card")
    assert not is_secret_type("test.secrets/Unknown")
    copied = pickle.loads(pickle.dumps(secret))
    assert copied.is_secret
    assert copied.decode("test.secrets/Card", b'{"number": 1}') == Card(1)
    assert not plain.is_secret
    with pytest.raises(DefinitionError, match="declare the values of functions with secret=True"):
        secret_type(StringType)


def test_errors_about_stored_values_quote_no_secret(refusing: Type[Any]) -> None:
    """Neither when a value is read nor when it is written, nor in their tracebacks."""
    values = Values(
        {"pin": ValueSpec("pin", refusing)},
        {"pin": TypedValue(refusing.typename, PLANTED.encode())},
    )
    with pytest.raises(StateDecodeError, match="does not decode as") as read:
        values.read("pin")
    with pytest.raises(DefinitionError, match="does not encode as") as written:
        values.write("pin", PLANTED)

    assert hides(read.value)
    assert hides(written.value)
    assert "ValueError" in str(read.value), "the class of the exception helps"
    with pytest.raises(DefinitionError) as plain:
        encoded(PLANTED, IntType)
    assert not hides(plain.value), "values that are not secret are still quoted"


def test_errors_about_messages_quote_no_secret(refusing: Type[Any]) -> None:
    """If the type that decodes is secret, or that which the message names."""
    message = Message("t/f", "Ada", TypedValue(refusing.typename, PLANTED.encode()))
    plain = simple_type("test.secrets/Plain", _refused, _refused)
    for type_ in (refusing, plain):
        with pytest.raises(ValueDecodeError) as caught:
            message.as_type(type_)
        assert hides(caught.value)
    with pytest.raises(DefinitionError) as sent:
        message_builder("t/f", "Ada", value=PLANTED, value_type=refusing)
    assert hides(sent.value)
    other = Message("t/f", "Ada", TypedValue(plain.typename, PLANTED.encode()))
    with pytest.raises(ValueDecodeError) as shown:
        other.as_type(plain)
    assert not hides(shown.value)


@attrs.frozen
class Key:
    """A class whose values are secret."""

    text: str


def _to_function(value: Any) -> None:
    message_to(Address("t/f", "Ada"), value)


def _to_kafka(value: Any) -> None:
    KafkaEgressMessage("t/out", topic="out", value=value, value_type="text")  # type: ignore[arg-type]


def _to_kinesis(value: Any) -> None:
    KinesisEgressMessage("t/out", stream="out", partition_key="Ada", value=value)


def _as_header(value: Any) -> None:
    KafkaEgressMessage("t/out", topic="out", value="", headers={"key": value})


@pytest.mark.parametrize("send", [_to_function, _to_kafka, _to_kinesis, _as_header])
@pytest.mark.parametrize(
    "inside", [list, lambda keys: {"keys": [tuple(keys)]}, lambda keys: {*keys}]
)
def test_errors_about_collections_quote_no_secret_inside(
    send: Callable[[Any], None], inside: Callable[[list[Key]], Any]
) -> None:
    """The type of the collection is not secret, or there is none."""
    secret_type(make_json_type("test.secrets/Key", Key))

    with pytest.raises(DefinitionError) as sent:
        send(inside([Key(PLANTED)]))

    assert hides(sent.value)


def test_collections_that_contain_themselves_are_no_secret() -> None:
    """What the value contains is looked at once."""
    value: list[Any] = [1, None, object()]
    value.append(value)

    assert not contains_secret(value)


class Lazy(Mapping[str, str]):
    """A mapping whose items cannot be read."""

    def __getitem__(self, key: str) -> str:
        raise OSError(f"{PLANTED} of {key}")

    def __iter__(self) -> Iterator[str]:
        return iter(["key"])

    def __len__(self) -> int:
        return 1


class Made(Mapping[str, Any]):
    """A mapping that makes its value, another one or a secret, when it is read."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def __getitem__(self, key: str) -> Any:
        return Made(self._depth - 1) if self._depth else Key(PLANTED)

    def __iter__(self) -> Iterator[str]:
        return iter(["key"])

    def __len__(self) -> int:
        return 1


def test_secrets_are_found_in_values_that_exist_only_while_they_are_read() -> None:
    """Python gives the id of such a value to another one later."""
    secret_type(make_json_type("test.secrets/Key", Key))

    assert contains_secret(Made(10))


def test_a_collection_that_cannot_be_read_is_not_quoted() -> None:
    """Its own exception does not replace the error."""
    with pytest.raises(DefinitionError, match="does not encode as") as sent:
        message_to(Address("t/f", "Ada"), Lazy())

    assert hides(sent.value)


def test_errors_of_handlers_quote_no_secret() -> None:
    """Also if the annotation of a handler has chosen the type."""
    secret_type(simple_type("test.secrets/Login", _refused, _refused, python_type=Login))
    functions = StatefulFunctions()

    @functions.bind("test.secrets/login")
    def login(_ctx: Context, _value: Login) -> None: ...

    invocation = Invocation(None, TypedValue("test.secrets/Login", PLANTED.encode()))
    batch = InvocationBatch(Address("test.secrets/login", "Ada"), {}, [invocation])
    (failure,) = invoke(functions.for_typename("test.secrets/login"), batch).failures

    assert isinstance(failure.error, ValueDecodeError)
    assert hides(failure.error)
    assert PLANTED not in failure.traceback
