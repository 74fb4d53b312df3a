# SPDX-License-Identifier: Apache-2.0
"""Checks that module files and registered functions fit together, before anything starts."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from itertools import product

from statefun.module.class_names import classes_of_one_name
from statefun.module.connectors import ConnectorEgress, ConnectorIngress
from statefun.module.location import Location
from statefun.module.model import KafkaIngress, Module, PlaygroundDoor, Unsupported
from statefun.module.topic_routes import TopicRoute
from statefun.module.value_types import register_types
from statefun.sdk.address import TypeName
from statefun.sdk.errors import BindingError, DefinitionError
from statefun.sdk.failure import OnFailure, Retry
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.nearest_names import suggestion
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.types import default_types

logger = logging.getLogger("statefun")

_NO_TOPIC = (
    "its failure policy is dead-letter, but no egress has a deadLetterTopic; add one to an egress"
)

NO_INGRESS = "no ingress is declared, so no function would ever be invoked"

Finding = tuple[Location | None, str]
"""A problem: its location (None if it is not in a module file), and a sentence that describes the problem."""


def check_binding(
    module: Module, functions: StatefulFunctions, *, needs_ingress: bool = True
) -> None:
    """Check that module files and functions fit, and register the types that the files define.

    Args:
        module: the content of the module files.
        functions: the registered functions.
        needs_ingress: whether a module without an ingress is a problem; False in tests, which send
            messages to functions themselves.

    Raises:
        BindingError: if module files and functions do not fit; the error lists all problems.
    """
    problems = [
        text if location is None else f"{location}: {text}"
        for location, text in (*register_types(module), *binding_problems(module, functions))
    ]
    if needs_ingress and not module.has_ingress:
        problems.append(NO_INGRESS)
    if problems:
        raise BindingError("\n  ".join(["module files and functions do not fit", *problems]))
    for component in module.unsupported:
        logger.warning("%s: %s", component.location, not_run(component))


def not_run(component: Unsupported) -> str:
    """Return the warning about a component whose kind this version of statefun cannot run."""
    return f"{component.kind} {component.id} is valid, but this version of statefun cannot run it and ignores it"


def binding_problems(module: Module, functions: StatefulFunctions) -> Iterator[Finding]:
    """Yield all reasons why module files and functions do not fit each other."""
    for ingress in module.routed:
        for route in ingress.topics:
            for target in route.targets:
                problem = _problem_of_target(ingress, route, target, functions)
                if problem is not None:
                    yield route.location, problem
            if route.key_type is not None and default_types.find(str(route.key_type)) is None:
                text = f"topic {route.topic}: no type named {route.key_type}, its keyType, is"
                yield route.location, f"{text} registered; define it with simple_type"
    yield from _problems_of_event_time(module, functions)
    yield from _unknown_egresses(module, functions)
    for function in functions:
        try:
            function.takes("")  # raises if two of its handlers take the same type
        except DefinitionError as error:
            yield None, f"function {function.typename}: {error.message}"
    yield from _former_names_in_use(functions)
    for text in classes_of_one_name(functions):
        yield None, text
    yield from _loop_problems(module)
    yield from _bootstrap_problems(module)
    yield from _declared_twice(module)
    yield from _topics_of_two_ports(module)
    yield from _failure_problems(module, functions)
    if not len(functions):
        yield None, "no function is registered; decorate one with @function(...)"


def _problem_of_target(
    ingress: KafkaIngress | ConnectorIngress,
    route: TopicRoute,
    target: TypeName,
    functions: StatefulFunctions,
) -> str | None:
    """Return why a target cannot take the values of a route; None if it can."""
    function = functions.find(str(target))
    if function is None:
        return f"target {target} of {ingress.label} has no function{functions.hint(str(target))}"
    if not _takes(function, str(route.value_type)):
        text = (
            f"topic {route.topic}: no handler of {target} takes {route.value_type}, its valueType"
        )
        return f"{text}; {function.advice(str(route.value_type))}"
    if route.delivers_tombstones and not _takes(function, ""):
        text = f"topic {route.topic} delivers tombstones, but no handler of {target} takes None"
        return f"{text}; {function.advice('')}"
    return None


def _problems_of_event_time(module: Module, functions: StatefulFunctions) -> Iterator[Finding]:
    """Find functions that need event time, but get records from ingresses that declare none."""
    timed = [each for each in functions if each.needs_event_time]
    if timed and not module.event_times:
        yield (
            None,
            f"function {timed[0].typename} has windows or joins streams, but no ingress declares eventTime",
        )
        return
    for ingress in module.routed:
        if str(ingress.id) not in module.event_times:
            for route in ingress.topics:
                for target in route.targets:
                    function = functions.find(str(target))
                    if function is not None and function.needs_event_time:
                        text = f"target {target} of {ingress.label} has windows or joins streams, but the ingress declares no eventTime"
                        yield route.location, text


def _unknown_egresses(module: Module, functions: StatefulFunctions) -> Iterator[Finding]:
    """Find tables whose rows are published to an egress that is not declared, or not of Kafka."""
    names = [str(each.id) for each in module.egresses]
    for function in functions:
        egress = str(function.publishes_to or "")
        if egress and egress not in names:
            known = suggestion(egress, names) or f"declared: {', '.join(names) or 'none'}"
            yield (
                None,
                f"table {function.typename} publishes its rows to {egress}, which is no Kafka egress of the module; {known}",
            )


def _takes(function: StatefulFunction, typename: str) -> bool:
    """Return whether a handler of a function accepts values of a type.

    The result is also True if two of the handlers accept the same type, which another check reports.
    """
    try:
        return function.takes(typename)
    except DefinitionError:
        return True


def _former_names_in_use(functions: StatefulFunctions) -> Iterator[Finding]:
    """Find functions that are renamed from a name that another function has, or had."""
    owners = {str(function.typename): function.typename for function in functions}
    for function in functions:
        for former in function.renamed_from:
            owner = owners.setdefault(former, function.typename)
            if owner != function.typename:
                is_present = former == str(owner)
                other = "is registered as well" if is_present else "is renamed from it, too"
                text = (
                    f"function {function.typename} is renamed from {former}, but function {owner}"
                )
                yield None, f"{text} {other}; a name stands for one function"


def _loop_problems(module: Module) -> Iterator[Finding]:
    """Find topic patterns that match topics of dead letters or replays: dead letters would be read again."""
    topics = [
        (egress, topic)
        for egress in module.egresses
        for topic in (egress.dead_letter_topic, egress.replay_topic)
        if topic is not None
    ]
    for ingress in module.ingresses:
        patterns = [route for route in ingress.topics if route.is_pattern]
        for route, (egress, topic) in product(patterns, topics):
            if ingress.address == egress.address and route.takes(topic):
                text = f"topicPattern {route.topic} takes {topic}, a topic for dead letters of"
                hint = f"begin the pattern with (?!{re.escape(topic)}$)"
                yield route.location, f"{text} {egress.label}; {hint}"


def _bootstrap_problems(module: Module) -> Iterator[Finding]:
    """Find ingresses whose ``bootstrapFrom`` names no Kafka ingress, or leads back to the ingress itself."""
    followed = {each.id: each.bootstrap_from for each in module.ingresses}
    for ingress in module.ingresses:
        places = dict(zip(ingress.bootstrap_from, ingress.bootstrap_locations, strict=False))
        for name in ingress.bootstrap_from:
            if name not in followed:
                text = f"{ingress.label} has bootstrapFrom {name}, but no Kafka ingress has this id"
                names = sorted(str(each) for each in followed if each != ingress.id)
                listed = ", ".join(names) or "none"
                known = suggestion(str(name), names) or f"the other Kafka ingresses are: {listed}"
                yield places.get(name, ingress.location), f"{text}; {known}"
        waits = {*ingress.bootstrap_from}
        while (more := waits.union(*(followed.get(each, ()) for each in waits))) != waits:
            waits = more
        if ingress.id in waits:
            text = f"{ingress.label} would never be read, since its bootstrapFrom leads back to it"
            yield next(iter(places.values()), ingress.location), text


def _declared_twice(module: Module) -> Iterator[Finding]:
    """Find egresses of different kinds that have the same id."""
    first_locations: dict[TypeName, Location] = {}
    for egress in module.all_egresses:
        first = first_locations.setdefault(egress.id, egress.location)
        if first is not egress.location:
            text = f"{egress.label} is declared twice; it is first declared at {first}"
            yield egress.location, text


def _topics_of_two_ports(module: Module) -> Iterator[Finding]:
    """Find topics that two egresses of the playground declare, although the egresses have different ports."""
    first_egresses: dict[str, ConnectorEgress] = {}
    for egress in module.connector_egresses:
        if isinstance(egress.settings, PlaygroundDoor):
            for topic in egress.settings.topics:
                first = first_egresses.setdefault(topic, egress)
                if first is not egress:
                    text = f"{egress.label} has topic {topic}, which {first.label} has at"
                    yield egress.location, f"{text} another port; give the topic another name"


def _failure_problems(module: Module, functions: StatefulFunctions) -> Iterator[Finding]:
    """Find failure policies that need a dead-letter topic if none exists; find a second dead-letter topic."""
    with_letters = [egress for egress in module.egresses if egress.dead_letter_topic]
    for second in with_letters[1:]:
        text = f"{second.label} has a deadLetterTopic, but only one egress may have one, and egress"
        yield second.location, f"{text} {with_letters[0].id} already has one"
    for egress in module.egresses:
        if egress.on_refused is OnFailure.DEAD_LETTER and not with_letters:
            yield egress.location, f"{egress.label}: {_NO_TOPIC}"
    for ingress in module.routed:
        for route in ingress.topics:
            policy = route.failure_policy or ingress.failure_policy
            if policy is OnFailure.DEAD_LETTER and not with_letters:
                yield route.location, f"topic {route.topic}: {_NO_TOPIC}"
    for function in functions:
        function_policy = function.on_failure
        last = function_policy.then if isinstance(function_policy, Retry) else function_policy
        if last is OnFailure.DEAD_LETTER and not with_letters:
            yield None, f"function {function.typename}: {_NO_TOPIC}"
        if function.on_late is OnFailure.DEAD_LETTER and not with_letters:
            yield None, f"function {function.typename}, late messages: {_NO_TOPIC}"
