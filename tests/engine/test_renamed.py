# SPDX-License-Identifier: Apache-2.0
"""Functions whose stored name is a former one behave as all others, and nobody sees that name."""

from __future__ import annotations

from datetime import timedelta

import attrs
from hypothesis import given
from hypothesis import strategies as st

from statefun import (
    Address,
    Context,
    KafkaEgress,
    KafkaEgressMessage,
    Retry,
    State,
    StatefulFunctions,
    state_value,
)
from statefun.testing import InProcessApplication

NEW, OLD, ASYNC, OLD_ASYNC = "t.fns/new", "t.fns/old", "t.fns/later", "t.fns/slow"
HOUR = timedelta(hours=1)
OUT = (
    KafkaEgress.for_id("t/out")
    .with_kafka_address("kafka:9092")
    .with_option("deadLetterTopic", "dead")
    .build()
)
COMMANDS = ["self", "former", "later", "token", "cancel", "fail", "retry", "ask", "note", "show"]


class Notes(State):
    """What an address has noted."""

    lines: list[str] = state_value(default_factory=list)
    note: str | None = state_value(default=None, expire_after_write=HOUR / 2)


def send(ctx: Context, text: str, own: Address) -> None:
    """Send what a command says."""
    if text in {"self", "former"}:
        ctx.send(own, "sent")
    elif text == "later":
        ctx.send_after(HOUR, own, "due")
    elif text == "token":
        ctx.send_after(HOUR, own, "cancellable", cancellation_token="t")  # noqa: S106 - no secret
    elif text == "cancel":
        ctx.cancel_delayed_message("t")
    elif text == "ask":
        ctx.send(Address(ASYNC, own.id), "question")
    elif text == "question":
        ctx.send(ctx.caller or own, "answer")


def handle(ctx: Context, text: str, notes: Notes) -> None:
    """Note a message, and do what it says."""
    caller = ctx.caller.typename if ctx.caller else "-"
    notes.lines.append(f"{text} {ctx.address} {caller} {notes.note}")
    if text in {"fail", "retry"}:
        raise ValueError(text)
    send(ctx, text, Address(NEW if text == "self" else OLD, ctx.address.id))
    if text == "note":
        notes.note = "noted"
    elif text == "show":
        for line in notes.lines:
            ctx.send(KafkaEgressMessage("t/out", topic="out", key=ctx.address.id, value=line))


async def handle_async(ctx: Context, text: str, notes: Notes) -> None:
    """Do the same in a coroutine."""
    handle(ctx, text, notes)


def program(*, is_renamed: bool) -> StatefulFunctions:
    """Return a plain and a coroutine function that send each other messages; both may be renamed ones."""
    functions = StatefulFunctions()
    policy = Retry(attempts=2, backoff=HOUR)
    functions.register(NEW, handle, on_failure=policy, renamed_from=OLD)
    functions.register(ASYNC, handle_async, on_failure=policy, renamed_from=OLD_ASYNC)
    if is_renamed:
        for function in list(functions):
            functions.replace(attrs.evolve(function, stored_as=function.renamed_from[0]))
    return functions


@given(
    st.lists(
        st.tuples(st.sampled_from([NEW, OLD, ASYNC, OLD_ASYNC]), st.sampled_from(COMMANDS)),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 99),
)
def test_a_renamed_function_has_the_effects_of_one_that_was_not(
    commands: list[tuple[str, str]], seed: int
) -> None:
    """Messages, timers, tokens, retries, dead letters and expiry have present names.

    Messages of several senders that are due together come in any order, in which stored names may count.
    """
    first, second = (
        InProcessApplication(functions=program(is_renamed=is_renamed), components=[OUT], seed=seed)
        for is_renamed in (False, True)
    )
    for app in (first, second):
        for name, command in [*commands, (NEW, "show"), (ASYNC, "show")]:
            app.send(name, "Ada", command)
            app.drain()
        app.advance(2 * HOUR)
        for name in (NEW, ASYNC):
            app.send(name, "Ada", "show")
        app.drain()

    for topic in ("out", "dead"):
        assert sorted(map(repr, second.egress(topic))) == sorted(map(repr, first.egress(topic)))
    for name in (NEW, OLD, ASYNC):
        notes, expected = (app.state(Address(name, "Ada")) for app in (second, first))
        assert {**notes, "lines": sorted(notes["lines"])} == {
            **expected,
            "lines": sorted(expected["lines"]),
        }
    assert not [each for each in second.egress("out") if OLD.encode() in (each.value or b"")]
