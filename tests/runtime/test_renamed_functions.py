# SPDX-License-Identifier: Apache-2.0
"""Functions that get other names while their checkpoint goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import attrs
import pytest
from confluent_kafka import Producer
from harness import KafkaHarness, run
from pyspark import cloudpickle

from statefun import (
    Address,
    Context,
    FunctionError,
    State,
    StatefulFunctions,
    StringType,
    state_value,
)
from statefun.engine.clock import Clock
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.spark.session import open_session
from statefun.runtime.stored.stored_state import stored_state

# Workers cannot import test modules.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)

ADDRESSES = 200
IDS = [f"id-{number}" for number in range(ADDRESSES)]
OLD, NEW, NEWEST, PEER = "t.fns/old", "t.fns/new", "t.fns/newest", "t.fns/peer"
HOUR = timedelta(hours=1)
MADE = datetime(2026, 1, 1, tzinfo=timezone.utc)


@attrs.frozen
class StoppedClock:
    """A clock that stands still."""

    time: datetime = MADE

    def now(self) -> int:
        """Return the same time at each call."""
        return round(self.time.timestamp() * 1000)

    def monotonic(self) -> int:
        """Return the same moment at each call."""
        return 0


def program(
    name: str, *former: str, called: str = "", is_broken: bool = False
) -> StatefulFunctions:
    """Return a function that notes what it gets, and one that answers it.

    Args:
        name: the typename of the first function.
        former: its former typenames.
        called: the name by which it is sent messages; ``name`` if not given.
        is_broken: whether the function stops the application when it gets an answer.
    """
    functions = StatefulFunctions()

    class Notes(State):
        lines: list[str] = state_value(default_factory=list)
        note: str | None = state_value(default=None, expire_after_write=HOUR)

    @functions.bind(name, on_failure="fail" if is_broken else None, renamed_from=former)
    def noting(ctx: Context, text: str, state: Notes) -> None:
        own, id_ = ctx.address.typename, ctx.address.id
        me = Address(called or name, id_)
        if (text, own) in {("answer", OLD), ("bad", OLD)} and (is_broken or text == "bad"):
            raise ValueError(text)
        state.lines.append(f"{text} {own} {ctx.caller.typename if ctx.caller else '-'}")
        if text == "start":
            state.note = "expires"
            ctx.send(me, "at once")
            for number in range(2):
                ctx.send_after(HOUR, me, f"timer {number}")
            for token in ("cancelled", "kept"):
                ctx.send_after(HOUR, me, token, cancellation_token=token)
        elif text == "cancel":
            ctx.cancel_delayed_message("cancelled")
        elif text == "ask":
            ctx.send(Address(PEER, id_), "question")
        elif text == "send":
            ctx.send(me, "first")
            ctx.send(Address(name, id_), "second")

    @functions.bind(PEER)
    def peer(ctx: Context, text: str) -> None:
        ctx.send(Address(called or name, ctx.address.id), "answer")

    return functions


def encoded(text: str) -> bytes:
    """Return a text in the form of the records."""
    return StringType.serializer().serialize(text)


def replayed(kafka: KafkaHarness, letters: str, topic: str) -> None:
    """Write all dead letters of a topic to the topic for replays."""
    producer = Producer({"bootstrap.servers": kafka.address})
    for letter in kafka.receive(letters):
        producer.produce(
            topic, letter.value.encode(), letter.key, headers=[*letter.headers.items()]
        )
    assert producer.flush(30) == 0


def noted(checkpoint: Path) -> dict[str, list[str]]:
    """Return the lines that the function has noted, by the id of the address."""
    session = open_session(debug=False, state_partitions=None)
    with stored_state(session, Folder.at(checkpoint)) as state:
        return {
            address.id: json.loads(values["lines"].value)
            for address, values in state
            if address.typename == OLD
        }


@pytest.mark.long(minutes=1.3)
@pytest.mark.broker
@pytest.mark.spark
def test_a_renamed_function_goes_on_with_all_that_it_had(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """State, messages on their way, timers, tokens, expiry and dead letters go on under each of its names."""
    users, legacy = kafka.topic("users"), kafka.topic("legacy")
    dead, again = kafka.topic("dead"), kafka.topic("again")

    def step(
        functions: StatefulFunctions,
        targets: tuple[str, str],
        texts: Sequence[str] = (),
        legacy_texts: Sequence[str] = (),
        after: timedelta = timedelta(0),
    ) -> dict[str, list[str]]:
        for topic, own in ((users, texts), (legacy, legacy_texts)):
            for text in own:
                kafka.send(topic, [(id_, encoded(text)) for id_ in IDS])
        module = kafka.module({users: [targets[0]], legacy: [targets[1]]}, dead_letters=dead)
        module = module.replace(f"{dead}\n", f"{dead}\n  replayTopic: {again}\n")
        clock: Clock = StoppedClock(MADE + after)
        run(module, functions, checkpoint, clock=clock)
        return noted(checkpoint)

    def lines(found: dict[str, list[str]], since: int) -> list[str]:
        assert sorted(found) == sorted(IDS)
        sets = {tuple(sorted(each[since:])) for each in found.values()}
        assert len(sets) == 1, "each address has the same"
        return [*sets.pop()]

    first = step(program(OLD), (OLD, OLD), ["start", "bad"])
    with pytest.raises(FunctionError, match="ValueError: answer"):
        step(program(OLD, is_broken=True), (OLD, OLD), ["ask"])
    asked = noted(checkpoint)
    replayed(kafka, dead, again)
    caplog.clear()
    renamed = step(program(NEW, OLD, called=OLD), (NEW, OLD), ["cancel"], ["send"], after=HOUR / 2)
    remembered = step(program(NEW), (NEW, NEW), after=2 * HOUR)
    newest = step(program(NEWEST, NEW), (NEWEST, NEW), ["ask"], after=2 * HOUR)
    back = step(program(OLD), (OLD, OLD), ["ask"], after=2 * HOUR)

    assert set(map(tuple, first.values())) == {("start t.fns/old -", "at once t.fns/old t.fns/old")}
    assert lines(asked, 2) == ["ask t.fns/old -"]
    assert lines(renamed, 3) == [
        "answer t.fns/new t.fns/peer",
        "bad t.fns/new -",
        "cancel t.fns/new -",
        "first t.fns/new t.fns/new",
        "second t.fns/new t.fns/new",
        "send t.fns/new -",
    ]
    for each in renamed.values():
        assert each.index("first t.fns/new t.fns/new") < each.index("second t.fns/new t.fns/new")
    assert {tuple(each[9:]) for each in remembered.values()} == {
        (
            "timer 0 t.fns/new t.fns/new",
            "timer 1 t.fns/new t.fns/new",
            "kept t.fns/new t.fns/new",
        )
    }
    assert lines(newest, 12) == ["answer t.fns/newest t.fns/peer", "ask t.fns/newest -"]
    assert lines(back, 14) == ["answer t.fns/old t.fns/peer", "ask t.fns/old -"]
    assert not [each for each in caplog.messages if "not registered" in each]
    session = open_session(debug=False, state_partitions=None)
    with stored_state(session, Folder.at(checkpoint)) as state:
        assert state.addresses() == {OLD: ADDRESSES}
        assert all("note" not in values for _, values in state)
