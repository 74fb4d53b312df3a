# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from strategies import addresses, type_names

from statefun import (
    Address,
    DefinitionError,
    IntType,
    KafkaEgressMessage,
    SdkAddress,
    SimpleType,
    StatefulFunctions,
    TypeName,
    egress_message_builder,
    message_builder,
)


@given(type_names())
def test_type_names_survive_text(name: TypeName) -> None:
    """A printed type name is parsed as the same name."""
    assert TypeName.parse(str(name)) == name


@pytest.mark.parametrize(
    ("text", "namespace", "name"),
    [
        ("com.example.fns/greeter", "com.example.fns", "greeter"),
        ("type.googleapis.com/a.B", "type.googleapis.com", "a.B"),
        ("a/b/c", "a/b", "c"),
        ("a/*", "a", "*"),
        (" a/b\n", "a", "b"),
        ("é/ü", "é", "ü"),
    ],
)
def test_the_last_slash_separates(text: str, namespace: str, name: str) -> None:
    """The namespace ends at the last slash; blanks around the whole do not count."""
    parsed = TypeName.parse(text)

    assert parsed == TypeName(namespace, name)


@pytest.mark.parametrize("text", ["", " ", "/", "a", "a/", "/a", " /a", "a/ ", "a/b\0", "\0/a"])
def test_rejects_half_a_type_name(text: str) -> None:
    """Without one of its halves, or with a NUL, a type name is refused."""
    with pytest.raises(DefinitionError) as raised:
        TypeName.parse(text)

    assert raised.value.message == (
        f"typename {text!r} is not of the form <namespace>/<name>, "
        "such as 'com.example.fns/greeter'"
    )


@pytest.mark.parametrize("typename", [None, 7, b"a/b", TypeName("a", "b")])
def test_a_type_name_is_parsed_from_text_only(typename: object) -> None:
    """A value that is no string is refused, with its repr."""
    with pytest.raises(DefinitionError) as raised:
        TypeName.parse(typename)  # type: ignore[arg-type]

    assert raised.value.message == (
        f"a typename must be a string such as 'com.example/greeter', not {typename!r}"
    )


@pytest.mark.parametrize(
    "text", ["statefun/f", " statefun/f", "statefun/a/f", "statefun.timers/bucket", "statefun./*"]
)
def test_the_runtime_keeps_its_names_to_itself(text: str) -> None:
    """Functions, types, egresses and messages would be taken for its own."""
    functions = StatefulFunctions()
    for use in (
        TypeName.parse,
        lambda name: functions.register(name, lambda ctx, message: None),
        lambda name: SimpleType(name, bytes, bytes),
        KafkaEgressMessage.for_egress,
        lambda name: message_builder(name, "x", int_value=1),
        lambda name: egress_message_builder(name, 1, IntType),
    ):
        with pytest.raises(DefinitionError) as raised:
            use(text)
        assert (
            f"typename {text!r} is in the namespace statefun or in a namespace below it"
            in raised.value.message
        )


@pytest.mark.parametrize("text", ["statefuns/f", "io.statefun/f", "Statefun/f", "a/statefun"])
def test_names_like_the_runtimes_are_free(text: str) -> None:
    """Only the whole namespace, and namespaces below it, belong to the runtime."""
    assert str(TypeName.parse(text)) == text


def test_type_names_sort_by_namespace_first() -> None:
    """Sorted lists of names, as error texts have them, are grouped by namespace."""
    names = [TypeName("b", "a"), TypeName("a", "z"), TypeName("a", "b")]

    assert sorted(names) == [TypeName("a", "b"), TypeName("a", "z"), TypeName("b", "a")]


@given(addresses())
def test_an_address_knows_its_type_name(address: Address) -> None:
    """The type name and the printed form are made of the three parts."""
    assert address.typename == f"{address.namespace}/{address.name}"
    assert str(address) == f"{address.typename}/{address.id}"
    assert TypeName.parse(address.typename) == TypeName(address.namespace, address.name)


@given(addresses(), addresses())
def test_addresses_are_equal_by_their_parts(one: Address, other: Address) -> None:
    """Two addresses are the same key of a dict exactly if all their parts are equal."""
    parts = (one.namespace, one.name, one.id), (other.namespace, other.name, other.id)

    assert (one == other) == (parts[0] == parts[1])
    assert {one: 1}[Address(*parts[0])] == 1


def test_names_and_addresses_are_frozen() -> None:
    """Neither can be changed: they are keys."""
    address = Address("com.example.fns", "greeter", "Ada")

    with pytest.raises(AttributeError):
        address.id = "Bob"  # type: ignore[misc]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        TypeName("a", "b").name = "c"  # type: ignore[misc]


def test_an_address_prints_its_three_parts() -> None:
    """The repr has all parts to make the address again."""
    address = SdkAddress("com.example.fns", "greeter", "Ada")

    assert repr(address) == "Address(namespace='com.example.fns', name='greeter', id='Ada')"
    assert SdkAddress is Address
