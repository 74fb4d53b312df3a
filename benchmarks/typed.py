# SPDX-License-Identifier: Apache-2.0
"""Typed handlers and states as classes, against the same work by messages and ``ctx.storage``."""

from __future__ import annotations

import argparse
import time
from datetime import timedelta
from functools import partial

import attrs
from report import Case, alternate, report

from statefun import (
    Address,
    Context,
    LongType,
    Message,
    State,
    StatefulFunctions,
    StringType,
    TypedValue,
    ValueSpec,
    make_json_type,
    message_builder,
)
from statefun.sdk.invocation import invoke
from statefun.sdk.invocation_batch import Invocation, InvocationBatch

functions = StatefulFunctions()


@attrs.frozen
class Login:
    """What happens."""

    user: str
    at: int
    place: str | None = None


LOGIN = make_json_type("benchmark/Login", Login)
EXPIRATION = timedelta(hours=1)


class Visits(State):
    """A number."""

    visits: int = 0


class Profile(State):
    """A number, and a class with fields."""

    visits: int = 0
    last: Login | None = None


@functions.bind("benchmark/plain-string", [ValueSpec("visits", LongType)])
def plain_string(ctx: Context, message: Message) -> None:
    """Count, and answer."""
    text = message.as_string()
    ctx.storage.visits = (ctx.storage.visits or 0) + 1
    ctx.send(message_builder("benchmark/other", "Ada", str_value=text))


@functions.bind("benchmark/typed-string")
def typed_string(ctx: Context, text: str, state: Visits) -> None:
    """Count, and answer."""
    state.visits += 1
    ctx.send(Address("benchmark/other", "Ada"), text)


@functions.bind("benchmark/plain-class", [ValueSpec("visits", LongType), ValueSpec("last", LOGIN)])
def plain_class(ctx: Context, message: Message) -> None:
    """Count, compare with the last one, and answer."""
    login = message.as_type(LOGIN)
    last = ctx.storage.last
    ctx.storage.visits = (ctx.storage.visits or 0) + 1
    ctx.storage.last = login
    if last is not None and last.at <= login.at:
        ctx.send(message_builder("benchmark/other", "Ada", value=login, value_type=LOGIN))


@functions.bind("benchmark/typed-class")
def typed_class(ctx: Context, login: Login, state: Profile) -> None:
    """Count, compare with the last one, and answer."""
    last = state.last
    state.visits += 1
    state.last = login
    if last is not None and last.at <= login.at:
        ctx.send(Address("benchmark/other", "Ada"), login)


VALUES = {
    "string": TypedValue(StringType.typename, StringType.serializer().serialize("hello")),
    "class": TypedValue(LOGIN.typename, LOGIN.serializer().serialize(Login("Ada", 7, "London"))),
}


def seconds(name: str, kind: str, count: int) -> float:
    """Return the CPU time of an invocation, of ``count`` in a batch."""
    function = functions.for_typename(f"benchmark/{kind}-{name}")
    address = Address("benchmark", f"{kind}-{name}", "Ada")
    batch = InvocationBatch(address, {}, [Invocation(None, VALUES[name])] * count)
    state = invoke(function, batch).state_mutations
    batch = batch._replace(state={name: value for name, value in state.items() if value})
    rounds = 20_000 // count
    begin = time.process_time()
    for _ in range(rounds):
        invoke(function, batch)
    return (time.process_time() - begin) / rounds / count


def main() -> None:
    """Compare both ways at several numbers of messages for an address."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    cases = []
    for name in VALUES:
        for count in (1, 10, 100):
            typed, plain = (
                partial(seconds, name, "typed", count),
                partial(seconds, name, "plain", count),
            )
            title = f"{name}, {count} for an address: typed vs plain"
            cases.append(Case(title, "s", *alternate(runs, typed, plain)))
    report("typed", cases)


if __name__ == "__main__":
    main()
