# SPDX-License-Identifier: Apache-2.0
"""The names under which a checkpoint stores functions, whatever they are called later."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun import (
    Address,
    CheckpointError,
    Context,
    DefinitionError,
    KafkaEgress,
    Message,
    StatefulFunctions,
)
from statefun.engine.address_keys import address_key
from statefun.engine.renamed import PresentNames, stored_names
from statefun.module.binding import binding_problems
from statefun.module.model import Module
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.known_functions import (
    KnownFunctions,
    known_functions,
    write_functions,
)
from statefun.runtime.checkpoint.renamed_functions import continued, with_names
from statefun.sdk.invocation_batch import Invocation, InvocationBatch
from statefun.sdk.types import TypedValue
from statefun.testing import InProcessApplication

NAMES = ("t.fns/a", "t.fns/b", "t.fns/c", "t.fns/d")

OUT = KafkaEgress.for_id("t/out").with_kafka_address("kafka:9092").build()


def functions(**former: str | list[str] | None) -> StatefulFunctions:
    """Return functions by their names, with their former names."""
    registry = StatefulFunctions()
    for name, names in former.items():
        listed = [names] if isinstance(names, str) else names or []

        @registry.bind(f"t.fns/{name}", renamed_from=[f"t.fns/{each}" for each in listed])
        def handle(ctx: Context, message: Message) -> None:
            pass

    return registry


def start(checkpoint: Folder, registry: StatefulFunctions) -> StatefulFunctions:
    """Start functions with a checkpoint, and return them with their names in it."""
    result = continued(registry, checkpoint)
    known = known_functions(checkpoint) or KnownFunctions()
    registered = frozenset(function.stored_name for function in result)
    names = with_names(known, result)
    write_functions(checkpoint, attrs.evolve(known, registered=registered, names=names))
    return result


def test_a_function_keeps_its_stored_name(tmp_path: Path) -> None:
    """Its declaration may forget former names: the checkpoint knows them."""
    checkpoint = Folder.at(tmp_path)
    start(checkpoint, functions(a=None))
    start(checkpoint, functions(b="a"))

    renamed_twice = start(checkpoint, functions(c="b"))
    forgotten = start(checkpoint, functions(c=None))
    back = start(checkpoint, functions(a=None))

    assert stored_names(renamed_twice) == stored_names(forgotten)
    assert stored_names(forgotten) == {"t.fns/b": "t.fns/a", "t.fns/c": "t.fns/a"}
    assert forgotten.find("t.fns/a") is forgotten.find("t.fns/b") is forgotten.find("t.fns/c")
    assert stored_names(back) == {"t.fns/b": "t.fns/a", "t.fns/c": "t.fns/a"}
    known = known_functions(checkpoint)
    assert known is not None
    assert known.names == {"t.fns/a": ["t.fns/b", "t.fns/c", "t.fns/a"]}
    assert known.present_name("t.fns/a") == "t.fns/a"


def test_a_new_checkpoint_stores_the_present_name(tmp_path: Path) -> None:
    """The former name is another name for messages, then and later."""
    checkpoint = Folder.at(tmp_path)

    for _ in range(2):
        registry = start(checkpoint, functions(b="a"))
        assert stored_names(registry) == {"t.fns/a": "t.fns/b"}
        assert registry.stored_name("t.fns/a") == registry.stored_name("t.fns/b") == "t.fns/b"


@pytest.mark.parametrize(
    ("starts", "then", "problem"),
    [
        (
            [functions(a=None), functions(b="a")],
            functions(a=None, b=None),
            (
                "function t.fns/a has, or had, the name t.fns/a, under which checkpoint .* stores the state of "
                "function t.fns/b; give function t.fns/a a name that the checkpoint does not know"
            ),
        ),
        (
            [functions(a=None), functions(b="a"), functions(c="b")],
            functions(c=None, b=None),
            "function t.fns/b has, or had, the name t.fns/a, under which .* of function t.fns/c; give function t.fns/b",
        ),
        (
            [functions(a=None, b=None)],
            functions(b="a"),
            (
                "function t.fns/b cannot take over function t.fns/a: checkpoint .* also knows function t.fns/b, "
                "which may have state and messages of its own; give the function a name"
            ),
        ),
        (
            [functions(a=None, b=None)],
            functions(c=["a", "b"]),
            "function t.fns/c cannot take over function t.fns/b: checkpoint .* also knows function t.fns/a",
        ),
        (
            [functions(old=None, other=None)],
            functions(new="odl", other=None),
            (
                "function t.fns/new is declared as renamed from t.fns/odl, which checkpoint .* does not know; did "
                "you mean t.fns/old?"
            ),
        ),
        (
            [functions(old=None)],
            functions(new="xyz1234"),
            "does not know; it knows these functions that are no longer registered: t.fns/old",
        ),
    ],
)
def test_a_start_never_begins_with_empty_state_in_silence(
    tmp_path: Path, starts: list[StatefulFunctions], then: StatefulFunctions, problem: str
) -> None:
    """What a name stands for must be clear, or the start is refused."""
    checkpoint = Folder.at(tmp_path)
    for registry in starts:
        start(checkpoint, registry)

    with pytest.raises(CheckpointError, match=problem):
        start(checkpoint, then)


def test_a_former_name_may_have_been_one_of_a_namespace(tmp_path: Path) -> None:
    """The checkpoint knows the function of the namespace, but none of the names."""
    checkpoint = Folder.at(tmp_path)
    registry = StatefulFunctions()
    registry.register("t.fns/*", lambda ctx, message: None)
    start(checkpoint, registry)

    assert stored_names(start(checkpoint, functions(b="a"))) == {"t.fns/b": "t.fns/a"}


def test_a_renamed_function_cannot_become_one_of_a_namespace(tmp_path: Path) -> None:
    """The function of the namespace would begin with empty state; its own name is needed as well."""
    checkpoint = Folder.at(tmp_path)
    start(checkpoint, functions(a=None))
    start(checkpoint, functions(b="a"))
    everything = StatefulFunctions()
    everything.register("t.fns/*", lambda ctx, message: None)

    with pytest.raises(
        CheckpointError, match=r"where t.fns/\* does not find it; register t.fns/b by its own"
    ):
        start(checkpoint, everything)
    everything.register("t.fns/b", lambda ctx, message: None)
    assert stored_names(start(checkpoint, everything)) == {"t.fns/b": "t.fns/a"}


@st.composite
def programs(draw: st.DrawFn) -> StatefulFunctions:
    """Return functions, some of which are renamed from names that no function has."""
    present = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    free = [name for name in NAMES if name not in present]
    registry = StatefulFunctions()
    for name in present:
        former = draw(st.sampled_from([None, *free]))
        if former is not None:
            free.remove(former)
        registry.register(name, lambda ctx, message: None, renamed_from=former)
    return registry


@given(st.data())
def test_functions_never_share_a_stored_name(data: st.DataObject) -> None:
    """Whatever programs start one after the other, each start has one function for a name, or is refused.

    A function that had state keeps it: from a name it was found at, it is found at any later name of it.
    """
    with TemporaryDirectory() as folder:
        checkpoint = Folder.at(folder)
        for _ in range(data.draw(st.integers(1, 5))):
            known = known_functions(checkpoint) or KnownFunctions()
            registry = data.draw(programs())
            try:
                result = start(checkpoint, registry)
            except CheckpointError:
                continue
            stored = [function.stored_name for function in result]
            assert len({*stored}) == len(stored) == len(registry)
            assert not {*stored_names(result)} & {*stored}
            for function in result:
                name = str(function.typename)
                if known.stored_name(name) in known.stored_names:
                    assert function.stored_name == known.stored_name(name)


@pytest.mark.parametrize(
    ("name", "former", "problem"),
    [
        ("t.fns/a", "t.fns/a", "must be other typenames than t.fns/a"),
        ("t.fns/a", ["t.fns/b", "t.fns/b"], "each named once"),
        ("t.fns/a", "b", "typename 'b' is not of the form <namespace>/<name>"),
        ("t.fns/*", "t.fns/b", "neither t.fns/\\* nor t.fns/b may be all functions"),
        ("t.fns/a", "old.fns/*", "neither t.fns/a nor old.fns/\\* may be all functions"),
    ],
)
def test_former_names_are_other_single_names(
    name: str, former: str | list[str], problem: str
) -> None:
    """A mistake is refused when the function is registered."""
    with pytest.raises(DefinitionError, match=problem):
        StatefulFunctions().register(name, lambda ctx, message: None, renamed_from=former)


@pytest.mark.parametrize(
    ("registry", "problem"),
    [
        (
            functions(a=None, b="a"),
            (
                "function t.fns/b is renamed from t.fns/a, but function t.fns/a is registered as well; a name stands for "
                "one function"
            ),
        ),
        (
            functions(b="a", c="a"),
            (
                "function t.fns/c is renamed from t.fns/a, but function t.fns/b is renamed from it, too; a name stands for "
                "one function"
            ),
        ),
    ],
)
def test_a_name_stands_for_one_function(registry: StatefulFunctions, problem: str) -> None:
    """Also swapped names are refused: a name that is sent to must have one meaning."""
    assert (None, problem) in list(binding_problems(Module(), registry))


def test_what_functions_see_has_present_names() -> None:
    """Callers and failed messages have the names of today; other names stay."""
    names = PresentNames(functions(b="a"))
    value = TypedValue("t/value", b"")
    callers = [None, Address("t.fns/a", "Ada"), Address("t.fns/x", "Ada")]
    batch = InvocationBatch(
        Address("t.fns/b", "Ada"), {}, [Invocation(each, value) for each in callers]
    )

    seen = names.batch(batch)

    assert [each.caller for each in seen.invocations] == [
        None,
        Address("t.fns/b", "Ada"),
        callers[2],
    ]
    assert names.key(address_key(Address("t.fns/a", "Ada"))) == b"Ada\0t.fns/b"
    assert PresentNames(functions(a=None)).batch(batch) is batch


def test_a_test_kit_knows_former_names() -> None:
    """Messages to them are messages to the function."""
    registry = StatefulFunctions()
    seen: list[str] = []

    @registry.bind("t.fns/b", renamed_from="t.fns/a")
    def handle(ctx: Context, text: str) -> None:
        seen.append(f"{text} {ctx.address.typename}")
        if text == "send":
            ctx.send(Address("t.fns/a", ctx.address.id), "sent")

    app = InProcessApplication(functions=registry, components=[OUT])
    app.send("t.fns/a", "Ada", "send")
    app.drain()

    assert seen == ["send t.fns/b", "sent t.fns/b"]
