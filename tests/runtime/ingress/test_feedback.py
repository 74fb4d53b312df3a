# SPDX-License-Identifier: Apache-2.0
"""Messages between functions: their targets, their number, and their order."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from harness import KafkaHarness, run
from programs import Program, obedient

from statefun import (
    Address,
    Context,
    FunctionError,
    IntType,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    UnknownFunctionError,
    ValueSpec,
    message_builder,
)
from statefun.engine.address_keys import address_key
from statefun.engine.clock import SystemClock
from statefun.engine.effects import EffectRows
from statefun.engine.row import Row
from statefun.engine.wheel import event_bucket, tick_of
from statefun.protocol.runtime_pb2 import EventTimes, Manifest, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.inbox import Inbox
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.checkpoint.playground_store import PlaygroundStore
from statefun.runtime.checkpoint.store_errors import StoreError
from statefun.runtime.ingress.feedback import FeedbackReader
from statefun.runtime.ingress.feedback_offset import FeedbackOffset
from statefun.runtime.ingress.feedback_tasks import read_feedback_task
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.runtime.ingress.playground_inbox import PlaygroundInbox
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, arrow_stream
from statefun.runtime.rows.envelope import ROW_SCHEMA
from statefun.sdk.errors import CheckpointError
from statefun.testing.micro_batch import StoppedClock

spark = pytest.mark.spark
broker = pytest.mark.broker

Obey = Callable[..., list[list[Any]]]
"""Runs programs, each with its id of ``t.fns/a``, and returns what they emit, in order."""


@pytest.fixture
def fresh(kafka: KafkaHarness, tmp_path: Path) -> Callable[[], Obey]:
    """Return a function that makes applications with topics and a checkpoint of their own."""
    numbers = itertools.count()

    def make() -> Obey:
        number = next(numbers)
        inputs, out = kafka.topic(f"in-{number}", partitions=2), kafka.topic(f"out-{number}")
        module = kafka.module({inputs: ["t.fns/a"]})
        checkpoint = tmp_path / f"checkpoint-{number}"

        def obey(*programs: tuple[str, Program], **options: Any) -> list[list[Any]]:
            before = len(kafka.receive(out))
            kafka.send(inputs, [(id_, json.dumps(program)) for id_, program in programs])
            run(module, obedient(out), checkpoint, **options)
            assert Outbox(Folder.at(checkpoint)).batches() == [], "all is published and delivered"
            return [json.loads(record.value)[:4] for record in kafka.receive(out)[before:]]

        return obey

    return make


@pytest.fixture
def obey(fresh: Callable[[], Obey]) -> Obey:
    """Make one application."""
    return fresh()


@spark
@broker
def test_a_chain_is_followed_to_its_end(obey: Obey) -> None:
    """A bounded run ends when no message is left to deliver; callers are right."""
    program: Program = [["emit", "end"]]
    for step in reversed(range(12)):
        name = ["b", "patient"][step % 2]
        program = [["emit", step], ["send", name, f"id {step}", program]]

    emitted = obey(("Ada", program))

    origins = ["t.fns/a/Ada", *(f"t.fns/{['b', 'patient'][n % 2]}/id {n}" for n in range(12))]
    assert emitted == [
        [address, caller, text, None]
        for address, caller, text in zip(
            origins, [None, *origins], [*range(12), "end"], strict=False
        )
    ]


@spark
@broker
def test_thousands_of_messages_and_their_answers_arrive_once(obey: Obey) -> None:
    """One call sends ten thousand messages; each arrives once, and so does its answer."""
    answer = [["send", "a", "Ada", [["add"], ["emit", ""]]]]

    emitted = obey(("Ada", [["send", "b", f"{n}", answer] for n in range(10_000)]))

    assert sorted(count for *_, count in emitted) == list(range(1, 10_001))
    assert {caller for _, caller, *_ in emitted} == {f"t.fns/b/{n}" for n in range(10_000)}


@spark
@broker
def test_messages_to_oneself_and_in_circles_arrive(obey: Obey) -> None:
    """An address can send to itself, and two addresses to each other."""
    to_self = [["add"], ["send", "a", "Ada", [["add"], ["send", "a", "Ada", [["emit", ""]]]]]]
    circle = [["send", "b", "x", [["send", "a", "Alan", [["add"], ["emit", ""]]]]]]

    emitted = obey(("Ada", to_self), ("Alan", circle))

    assert sorted(emitted) == [
        ["t.fns/a/Ada", "t.fns/a/Ada", "", 2],
        ["t.fns/a/Alan", "t.fns/b/x", "", 1],
    ]


@spark
@broker
def test_messages_keep_their_order_per_sender_and_target(obey: Obey) -> None:
    """Messages of one address to another arrive in the order of sending, over micro-batches."""
    programs = [
        (sender, [["send", "b", target, [["emit", number]]] for target in "xy"])
        for number in range(300)
        for sender in ("Ada", "Alan", "Grace")
    ]

    emitted = obey(*programs, records_per_batch=200)

    by_pair: dict[tuple[str, str], list[int]] = {}
    for target, caller, number, _ in emitted:
        by_pair.setdefault((caller, target), []).append(number)
    assert len(by_pair) == 6
    assert all(numbers == list(range(300)) for numbers in by_pair.values())


@spark
@broker
def test_undelivered_messages_survive_a_failure(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The next run delivers a message whose delivery failed, once; it repeats no earlier message."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["t.fns/a"]})
    program = [["add"], ["emit", "sent"], ["send", "b", "x", [["add"], ["emit", "arrived"]]]]
    broken = obedient(out)

    @broken.bind("t.fns/b", specs=[ValueSpec("count", IntType)])  # or it would not wait
    def fail(ctx: Context, message: Message) -> None:
        raise ValueError(ctx.address.id)

    kafka.send(inputs, [("Ada", json.dumps(program))])
    with pytest.raises(FunctionError, match=r"message from t.fns/a/Ada\)"):
        run(module, broken, checkpoint)
    summary = run(module, obedient(out), checkpoint)

    *before, last = [json.loads(record.value)[:4] for record in kafka.receive(out)]
    assert summary.invocations == 1
    assert last == ["t.fns/b/x", "t.fns/a/Ada", "arrived", 1]
    # At least once: the first run may have ended before Kafka had confirmed the record.
    assert before in ([["t.fns/a/Ada", None, "sent", 1]], [["t.fns/a/Ada", None, "sent", 1]] * 2)


@spark
@broker
@pytest.mark.parametrize("changed", ["a", "b"])
def test_messages_of_an_earlier_run_are_not_overtaken(
    kafka: KafkaHarness, checkpoint: Path, changed: str
) -> None:
    """Messages that went through the outbox come first, even if the functions now deliver messages at once.

    Either the target has become a function without state, or the sender one with state.
    """
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["t.fns/a"]})
    specs = [ValueSpec("count", IntType)]

    def functions(*stateful: str, is_broken: bool) -> StatefulFunctions:
        made = StatefulFunctions()

        @made.bind("t.fns/a", specs if "a" in stateful else None)
        def send(ctx: Context, message: Message) -> None:
            ctx.send(message_builder("t.fns/b", "x", str_value=message.raw_value().decode()))

        @made.bind("t.fns/b", specs if "b" in stateful else None)
        def receive(ctx: Context, message: Message) -> None:
            if is_broken:
                raise ValueError(message.as_string())
            ctx.send(KafkaEgressMessage("test/out", topic=out, value=message.as_string()))

        return made

    before, after = (["a", "b"], ["a"]) if changed == "b" else ([], ["a"])
    options: dict[str, Any] = {"records_per_batch": 1, "state_partitions": 1}
    kafka.send(inputs, [("Ada", f"{number}") for number in range(5)])
    with pytest.raises(FunctionError):
        run(module, functions(*before, is_broken=True), checkpoint, **options)
    run(module, functions(*after, is_broken=False), checkpoint, **options)

    assert [record.value for record in kafka.receive(out)] == ["0", "1", "2", "3", "4"]


@spark
@broker
def test_an_unknown_target_is_named(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The error names the sender, the target, and the most similar name of a function."""
    inputs = kafka.topic("in")
    functions = StatefulFunctions()

    @functions.bind("t.fns/greeter")
    def greet(ctx: Context, message: Message) -> None:
        ctx.send(message_builder("t.fns/greter", "Alan", str_value=""))

    kafka.send(inputs, [("Ada", "")])
    with pytest.raises(UnknownFunctionError) as caught:
        run(kafka.module({inputs: ["t.fns/greeter"]}), functions, checkpoint)

    assert caught.value.message == (
        "function t.fns/greeter at address t.fns/greeter/Ada: a message was sent to "
        "t.fns/greter/Alan, and no function t.fns/greter is registered; did you mean "
        f"t.fns/greeter? (topic {inputs}, partition 0, offset 0)"
    )


class Checkpoint:
    """A checkpoint as Spark and tasks write it, without either."""

    def __init__(self, folder: Path) -> None:
        self.folder = Folder.at(folder)
        self.outbox = Outbox(self.folder)

    def send(self, batch: int, *counts: int) -> None:
        """Stage a batch that has sent so many messages, per segment."""
        segments = []
        for count in counts:
            rows = EffectRows()
            target, caller = (address_key(Address("t", name, "x")) for name in ("to", "from"))
            for number in range(count):
                rows.append(Row(target, caller, "t/v", b"%d" % number))
            stream = (
                effect_stream(arrow_stream(rows.take(), MESSAGE_SCHEMA), count) if count else None
            )
            segments.append(Segment(messages=stream))
        self.outbox.stage(Manifest(batch=batch, segments=segments))

    def plan(self, batch: int, end: dict[str, Any]) -> None:
        """Plan a batch of a query whose only source is the feedback source."""
        self.folder.child("offsets").write(str(batch), f"v1\n{{}}\n{json.dumps(end)}".encode())

    def commit(self, batch: int) -> None:
        """Commit a batch."""
        self.folder.child("commits").write(str(batch), b"v1\n{}")

    def latest(self, reader: FeedbackReader, start: int) -> int:
        """Ask a reader how far it could read."""
        return int(reader.latest_offset(offset(start))["batch"])


def offset(batch: int, tick: int = -1) -> dict[str, int]:
    """Return an offset of the source."""
    return {"batch": batch, "tick": tick}


def test_only_messages_of_committed_batches_are_released(checkpoint: Path) -> None:
    """A staged batch may run again and send other messages."""
    files = Checkpoint(checkpoint)
    reader = FeedbackReader(files.folder, SystemClock())
    assert reader.initial_offset() == offset(-1)

    seen = []
    for batch in range(3):
        files.send(batch, 1)
        seen.append(files.latest(reader, batch - 1))
        files.commit(batch)
        seen.append(files.latest(reader, batch - 1))

    assert seen == [-1, 0, 0, 1, 1, 2]


def test_facts_about_event_time_are_delivered_like_messages(checkpoint: Path) -> None:
    """A micro-batch that has only found event times is followed by one that counts them, and then by none."""
    files = Checkpoint(checkpoint)
    reader = FeedbackReader(files.folder, SystemClock())
    facts = EventTimes(future=1)
    files.outbox.stage(Manifest(batch=0, event_times=facts))
    files.commit(0)

    assert files.latest(reader, -1) == 0
    assert reader.tasks(offset(-1), offset(0)) == []
    assert files.latest(reader, 0) == 0


def test_timers_that_no_event_time_will_reach_are_logged(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They wait for an ingress that declares event time again, and the log has one line about it."""
    files = Checkpoint(checkpoint)
    reader = FeedbackReader(files.folder, SystemClock())
    bucket = event_bucket(60_000, 60_000, b"a")
    files.outbox.stage(Manifest(batch=0, segments=[Segment(buckets=[bucket])]))
    files.commit(0)

    for _ in range(2):
        reader.latest_offset(offset(-1))

    [line] = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert "messages of send_at wait, the first one for 1970-01-01T00:01:00+00:00, and no" in line


def test_batches_that_send_nothing_do_not_wake_the_stream(checkpoint: Path) -> None:
    """The offset stays the same, so that Spark starts no micro-batch."""
    files = Checkpoint(checkpoint)
    reader = FeedbackReader(files.folder, SystemClock())
    files.send(0, 0, 2)
    files.commit(0)
    assert files.latest(reader, -1) == 0
    for batch in range(1, 5):
        files.commit(batch)

    assert files.latest(reader, 0) == 0
    assert reader.tasks(offset(0), offset(0)) == []


def test_a_driver_that_has_lost_its_checkpoint_plans_nothing(checkpoint: Path) -> None:
    """Also if only other sources have records; a store that does not answer ends only a driver that has to plan."""
    files, error = Checkpoint(checkpoint), CheckpointError("another driver has taken over")

    def guard() -> None:
        raise error

    reader = FeedbackReader(files.folder.guarded(guard), SystemClock())
    with pytest.raises(CheckpointError, match="another driver has taken over"):
        files.latest(reader, -1)

    error = StoreError("the store does not answer")
    assert files.latest(reader, -1) == -1
    files.send(0, 1)
    files.commit(0)
    with pytest.raises(StoreError, match="the store does not answer"):
        files.latest(reader, -1)


def test_a_new_reader_finds_the_messages_of_an_earlier_run(checkpoint: Path) -> None:
    """After a restart, Spark's log of commits may begin after the batch whose messages wait."""
    files = Checkpoint(checkpoint)
    files.send(500, 3)
    for batch in (500, 501, 502):
        files.commit(batch)
    files.send(503, 1)
    reader = FeedbackReader(files.folder, SystemClock())

    assert files.latest(reader, 7) == 500
    assert files.latest(reader, 500) == 500
    files.commit(503)
    assert files.latest(reader, 500) == 503


def test_messages_are_numbered_across_segments_and_batches(checkpoint: Path) -> None:
    """Messages are ordered by batch, segment and row, however many tasks read them."""
    files = Checkpoint(checkpoint)
    files.send(3, 2, 0, 60_000)
    files.send(4, 5)
    files.commit(4)
    reader = FeedbackReader(files.folder, SystemClock())

    tasks = reader.tasks(offset(2), offset(4))
    tables = [pa.Table.from_batches(read_feedback_task(files.outbox, task)) for task in tasks]

    assert [len(table) for table in tables] == [60_002, 5]
    rows = pa.concat_tables(tables)
    assert rows.column_names == ROW_SCHEMA.names
    assert rows["offset"].to_pylist() == list(range(60_007))
    numbers = [int(value) for value in rows["value"].to_pylist()]
    assert numbers == [*range(2), *range(60_000), *range(5)]
    assert set(rows["caller"].to_pylist()) == {address_key(Address("t", "from", "x"))}
    assert rows["topic"].null_count == rows["partition"].null_count == len(rows)


def test_missing_messages_are_an_error(checkpoint: Path) -> None:
    """The error names the batch and the folder from which its messages were deleted."""
    files = Checkpoint(checkpoint)
    files.send(3, 2)
    reader = FeedbackReader(files.folder, SystemClock())
    files.outbox.remove(3)

    with pytest.raises(CheckpointError, match="the messages of batch 3 are no longer in"):
        reader.tasks(offset(2), offset(3))


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[str, PlaygroundStore]]:
    """Open two databases of accepted messages."""
    with ExitStack() as stack:
        folders = {name: tmp_path / name for name in ("requests", "replies")}
        for folder in folders.values():
            folder.mkdir()
        yield {
            name: stack.enter_context(closing(PlaygroundStore(Folder.at(folder))))
            for name, folder in folders.items()
        }


def test_a_bounded_run_waits_while_reading_is_held(checkpoint: Path) -> None:
    """Others find at once that there is nothing to deliver."""
    answers = [True, True, False]
    reader = FeedbackReader(
        Checkpoint(checkpoint).folder, SystemClock(), is_held=lambda: answers.pop(0)
    )
    start = reader.initial_offset()
    assert (reader.latest_offset(start), len(answers)) == (start, 3)
    reader.bound()
    assert (reader.latest_offset(start), answers) == (start, [])


def test_a_bounded_run_plans_what_ingresses_have_although_a_call_is_under_way(
    checkpoint: Path,
) -> None:
    """They are asked once: they do not read while the source waits."""
    answers = [True, True, False]
    asked = [True, False]
    reader = FeedbackReader(
        Checkpoint(checkpoint).folder,
        SystemClock(),
        is_held=lambda: answers.pop(0),
        reads_on=lambda: asked.pop(0),
    )
    start = reader.initial_offset()
    reader.bound()
    assert (reader.latest_offset(start), answers) == (start, [True, False])
    assert (reader.latest_offset(start), answers, asked) == (start, [], [])


def test_a_bounded_run_that_waits_plans_a_micro_batch_if_an_ingress_is_resumed(
    checkpoint: Path,
) -> None:
    """The ingress is not asked before the next plan, and a plan without anything would end the run."""
    outdated = [False, True]
    clock = StoppedClock(1_000_000)
    reader = FeedbackReader(
        Checkpoint(checkpoint).folder,
        clock,
        is_held=lambda: True,
        is_outdated=lambda: outdated.pop(0),
    )
    start = FeedbackOffset(tick=0).encode()
    reader.bound()

    planned = reader.latest_offset(start)

    assert FeedbackOffset.decode(planned) == FeedbackOffset(tick=tick_of(clock.now()))
    assert outdated == []


def inboxes(folder: Folder, stores: Mapping[str, PlaygroundStore]) -> dict[str, Inbox]:
    """Return the inboxes of databases."""
    gauge = WaitingGauge(folder)
    return {name: PlaygroundInbox(store, gauge, SystemClock()) for name, store in stores.items()}


def test_each_inbox_has_a_number_of_its_own(
    checkpoint: Path, stores: dict[str, PlaygroundStore]
) -> None:
    """Messages of inboxes come after those of functions, and each is delivered once."""
    files = Checkpoint(checkpoint)
    reader = FeedbackReader(files.folder, SystemClock(), inboxes(files.folder, stores))
    stores["replies"].post(b"a", "t/v", b"reply")
    first = reader.latest_offset(reader.initial_offset())
    stores["requests"].post(b"b", "t/v", b"request 1")
    stores["requests"].post(b"c", "t/v", b"request 2")
    files.plan(0, first)
    files.send(0, 2)
    files.commit(0)
    stores["replies"].post(b"d", "t/v", b"reply 2")
    reader = FeedbackReader(
        files.folder, SystemClock(), dict(reversed(inboxes(files.folder, stores).items()))
    )
    second = reader.latest_offset({**first, "batch": 0})

    assert first["inboxes"] == {"replies": 1}
    assert list(second["inboxes"].items()) == [("replies", 2), ("requests", 2)]
    [task] = reader.tasks(first, second)
    rows = pa.Table.from_batches(read_feedback_task(files.outbox, task))
    assert rows["offset"].to_pylist() == list(range(5))
    assert rows["value"].to_pylist() == [b"0", b"1", b"reply 2", b"request 1", b"request 2"]
    assert rows["caller"].to_pylist()[2:] == [None] * 3
    assert reader.latest_offset(second) == second


def test_delivered_messages_of_inboxes_are_forgotten(
    checkpoint: Path, stores: dict[str, PlaygroundStore]
) -> None:
    """Each inbox forgets up to its own number, once the batch that has read so far is committed."""
    files = Checkpoint(checkpoint)
    reader = FeedbackReader(files.folder, SystemClock(), inboxes(files.folder, stores))
    for store in stores.values():
        for _ in range(3):
            store.post(b"a", "t/v", b"")
    end = {**offset(-1), "inboxes": {"requests": 2}}

    def kept(name: str) -> list[int]:
        return [each.number for each in stores[name].posted(0, 3)]

    files.plan(0, end)
    reader.latest_offset(end)
    assert kept("requests") == kept("replies") == [1, 2, 3]
    files.commit(0)
    reader.latest_offset(end)
    assert (kept("requests"), kept("replies")) == ([3], [1, 2, 3])


def test_an_inbox_may_come_and_go(checkpoint: Path, stores: dict[str, PlaygroundStore]) -> None:
    """A run without the inbox keeps its number; messages that such a run would have to deliver are an error."""
    files = Checkpoint(checkpoint)
    reader = FeedbackReader(files.folder, SystemClock())
    start = {**offset(-1), "inboxes": {"requests": 2}}
    assert reader.latest_offset(start) == start
    files.plan(0, start)
    files.send(0, 1)
    files.commit(0)
    assert reader.latest_offset(start)["inboxes"] == {"requests": 2}

    with pytest.raises(
        CheckpointError, match="messages 1 to 2 of the inbox requests are no longer"
    ):
        reader.tasks(offset(-1), start)
    reader = FeedbackReader(files.folder, SystemClock(), inboxes(files.folder, stores))
    stores["requests"].post(b"a", "t/v", b"")
    with pytest.raises(CheckpointError, match="have not been delivered yet; restore"):
        reader.tasks(offset(-1), start)
