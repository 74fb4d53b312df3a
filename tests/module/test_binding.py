# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from datetime import timedelta

import attrs
import pytest
from taking_functions import taking

from statefun import (
    BindingError,
    Context,
    Message,
    OnFailure,
    Retry,
    StatefulFunctions,
    ValueSpec,
    make_json_type,
)
from statefun.module.binding import binding_problems, check_binding
from statefun.module.loader import parse_module
from statefun.module.location import Location
from statefun.module.model import KafkaEgress, KafkaIngress, Module, Unsupported
from statefun.module.topic_routes import TopicRoute
from statefun.sdk.address import TypeName
from statefun.sdk.types import default_types


def functions(*typenames: str, specs: tuple[ValueSpec, ...] = ()) -> StatefulFunctions:
    """Register a function under each name."""
    registry = StatefulFunctions()
    for typename in typenames:

        def fun(ctx: Context, message: Message) -> None:
            pass

        registry.register(typename, fun, specs)
    return registry


def ingress(*targets: str, topic: str = "users", line: int = 9) -> KafkaIngress:
    """Return an ingress of one topic."""
    location = Location("module.yaml", line, 7)
    text = TypeName("io.statefun.types", "string")
    route = TopicRoute(topic, text, tuple(map(TypeName.parse, targets)), location)
    return KafkaIngress(TypeName("test", topic), "kafka:9092", (route,), location)


@pytest.mark.parametrize(
    ("registered", "target"),
    [
        (["test.fns/one"], "test.fns/one"),
        (["test.fns/*"], "test.fns/one"),
        (["test.fns/*", "test.fns/one"], "test.fns/one"),
        (["a/b/c", "other/x"], "a/b/c"),
    ],
)
def test_targets_with_functions_fit(registered: list[str], target: str) -> None:
    """A target is served by its own function or by that of its namespace."""
    module = Module(ingresses=(ingress(target),))

    check_binding(module, functions(*registered))


def test_values_that_no_handler_takes_are_refused() -> None:
    """A value type that no handler of a target takes is a problem, as all records would fail."""
    registry = StatefulFunctions()

    @registry.bind("test.fns/typed")
    def typed(ctx: Context, number: int) -> None:
        pass

    with pytest.raises(BindingError) as raised:
        check_binding(Module(ingresses=(ingress("test.fns/typed"),)), registry)

    assert raised.value.message.endswith(
        "\n  module.yaml:9:7: topic users: no handler of test.fns/typed takes "
        "io.statefun.types/string, its valueType; they take int. Add one with .on(...), or name a "
        "class's type: make_json_type"
    )


def test_values_that_a_handler_takes_fit() -> None:
    """One handler of the target has to take the value type."""
    registry = StatefulFunctions()

    @registry.bind("test.fns/typed")
    def typed(ctx: Context, number: int) -> None:
        pass

    @typed.on(str)
    def text(ctx: Context, text: str) -> None:
        pass

    check_binding(Module(ingresses=(ingress("test.fns/typed"),)), registry)


def test_functions_without_ingress_fit() -> None:
    """A function may get messages of other functions only."""
    module = Module(ingresses=(ingress("test.fns/one"),))

    check_binding(module, functions("test.fns/one", "test.fns/two"))


def test_all_binding_problems_are_reported_at_once() -> None:
    """Each target without a function has its location in the file, and a similar name."""
    module = Module(
        ingresses=(
            ingress("test.fns/cuont", "test.fns/count"),
            ingress("zzz.fns/qqqqq", topic="orders", line=20),
        )
    )

    with pytest.raises(BindingError) as caught:
        check_binding(module, functions("test.fns/count"))

    assert caught.value.message == (
        "module files and functions do not fit\n"
        "  module.yaml:9:7: target test.fns/cuont of ingress test/users has no function; "
        "did you mean test.fns/count?\n"
        "  module.yaml:20:7: target zzz.fns/qqqqq of ingress test/orders has no function "
        "(registered: test.fns/count)"
    )


def test_an_application_without_functions_and_ingresses_is_refused() -> None:
    """The error names both reasons why no function would be invoked."""
    with pytest.raises(BindingError) as caught:
        check_binding(Module(), functions())

    assert caught.value.message == (
        "module files and functions do not fit\n"
        "  no function is registered; decorate one with @function(...)\n"
        "  no ingress is declared, so no function would ever be invoked"
    )


def test_a_playground_topic_at_two_ports_is_refused() -> None:
    """Two egresses of the playground at different ports cannot have one topic."""
    egress = (
        "kind: io.statefun.playground.v1/egress\nspec: {{id: a/{}, port: {}, topics: [b, {}]}}\n"
    )
    text = "---\n".join(egress.format(*each) for each in ((1, 81, "c"), (2, 82, "d")))

    with pytest.raises(BindingError) as raised:
        check_binding(parse_module(text), functions("test.fns/one"), needs_ingress=False)

    assert raised.value.message.endswith(
        "egress a/2 has topic b, which egress a/1 has at another port; give the topic another name"
    )
    assert raised.value.message.count("\n") == 1


def test_components_that_cannot_run_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A component of a kind that is only checked is a warning with its location."""
    other = Unsupported("io.statefun.endpoints.v2/http", "x/*", Location("module.yaml", 3, 1))
    module = Module(ingresses=(ingress("test.fns/one"),), unsupported=(other,))

    with caplog.at_level(logging.WARNING, "statefun"):
        check_binding(module, functions("test.fns/one"))

    (warning,) = caplog.messages
    assert warning == (
        "module.yaml:3:1: io.statefun.endpoints.v2/http x/* is valid, but this version of statefun "
        "cannot run it and ignores it"
    )


def test_dead_letters_need_a_topic() -> None:
    """A policy dead-letter needs a deadLetterTopic, and only one egress may have it."""
    place = Location("module.yaml", 3, 1)
    source = ingress("test.fns/one")
    with_policy = attrs.evolve(source, failure_policy=OnFailure.DEAD_LETTER)
    registry = functions("test.fns/one")
    refusing = KafkaEgress(
        TypeName("t", "refusing"), "kafka:9092", place, on_refused=OnFailure.DEAD_LETTER
    )
    retry = Retry(2, timedelta(seconds=1), then=OnFailure.DEAD_LETTER)
    registry.register("test.fns/retry", lambda _context, _message: None, on_failure=retry)

    with pytest.raises(BindingError) as caught:
        check_binding(Module(ingresses=(with_policy,), egresses=(refusing,)), registry)

    missing = "its failure policy is dead-letter, but no egress has a deadLetterTopic"
    _, egress, topic, function = caught.value.message.splitlines()
    assert f"egress t/refusing: {missing}" in egress
    assert f"topic users: {missing}" in topic
    assert function.startswith(f"  function test.fns/retry: {missing}")
    egresses = [
        KafkaEgress(TypeName("t", name), "kafka:9092", place, dead_letter_topic="dead")
        for name in ("a", "b")
    ]
    check_binding(Module((with_policy,), (egresses[0],)), registry)
    with pytest.raises(
        BindingError,
        match="egress t/b has a deadLetterTopic, but only one egress may have one, and egress t/a",
    ):
        check_binding(Module((with_policy,), tuple(egresses)), registry)


def test_a_topic_of_two_ingresses_may_have_two_policies() -> None:
    """A failed record has the policy of the ingress that read it."""
    one = attrs.evolve(ingress("test.fns/one"), failure_policy=OnFailure.SKIP)
    two = attrs.evolve(one, id=TypeName("t", "two"), failure_policy=OnFailure.FAIL)

    check_binding(Module((one, two)), functions("test.fns/one"))


@attrs.frozen
class Item:
    """Of an order."""

    sku: str


class Elsewhere:
    """Stands for another module."""

    @attrs.frozen
    class Item:
        """In stock."""

        sku: str = ""
        count: int = 0


def test_classes_of_one_name_are_refused() -> None:
    """Values would be decoded as the wrong class; the error has the line that prevents it."""
    with pytest.raises(BindingError) as raised:
        check_binding(
            Module(ingresses=(ingress("test.fns/0"),)), taking(Item, Elsewhere.Item, Item)
        )

    (problem,) = [line for line in str(raised.value).splitlines() if ".Item, which" in line]
    assert problem.endswith(
        "test_binding.Item, which test.fns/0 takes, and test_binding.Elsewhere.Item, which test.fns/1 "
        "takes, both have the typename io.statefun.python/Item, so one would be decoded as the other; "
        'give one of them another typename: make_json_type("test.fns/Item", test_binding.Elsewhere.Item)'
    )


def test_classes_of_one_name_with_different_typenames_fit() -> None:
    """A class with a registered typename, or one that several functions take, is no problem."""
    make_json_type("test.fns/Item", Elsewhere.Item)
    try:
        check_binding(Module(), taking(Item, Elsewhere.Item, Item), needs_ingress=False)
    finally:
        default_types.forget(__name__)


def test_ingresses_begin_from_ingresses_of_kafka() -> None:
    """Others have no ends, and an ingress that waits for itself would never be read."""
    first, second, third = (ingress("test.fns/one", topic=each) for each in ("a", "b", "c"))
    module = Module(
        ingresses=(
            attrs.evolve(first, bootstrap_from=(second.id, third.id)),
            attrs.evolve(second, bootstrap_from=(first.id,)),
            attrs.evolve(third, bootstrap_from=(TypeName("com.example", "customers"),)),
        )
    )

    with pytest.raises(BindingError) as raised:
        check_binding(module, functions("test.fns/one"))

    circle = "would never be read, since its bootstrapFrom leads back to it"
    assert str(raised.value).splitlines()[1:] == [
        f"  module.yaml:9:7: ingress test/a {circle}",
        f"  module.yaml:9:7: ingress test/b {circle}",
        (
            "  module.yaml:9:7: ingress test/c has bootstrapFrom com.example/customers, but no Kafka ingress has "
            "this id; the other Kafka ingresses are: test/a, test/b"
        ),
    ]


def test_a_mistake_in_bootstrap_from_is_shown_at_its_place() -> None:
    """With the id that may have been meant."""
    module = parse_module(
        "".join(
            "kind: io.statefun.kafka.v1/ingress\n"
            "spec:\n"
            f"  id: test/{name}-in\n"
            "  address: localhost:1\n"
            "  consumerGroupId: test\n"
            f"{followed}"
            "  topics: [{topic: t, valueFormat: {type: text}, targets: [test.fns/one]}]\n"
            "---\n"
            for name, followed in (
                ("orders", "  bootstrapFrom: [test/customers-in, test/customer-in]\n"),
                ("customers", ""),
                ("circle", "  bootstrapFrom: [test/circle-in]\n"),
            )
        )
    )

    problems = [*binding_problems(module, functions("test.fns/one"))]

    assert [
        (str(place).partition(":")[2], text.partition("; ")[2]) for place, text in problems
    ] == [
        ("6:38", "did you mean test/customers-in?"),
        ("21:19", ""),
    ]
