# SPDX-License-Identifier: Apache-2.0
"""Whole applications: from Kafka through Spark to Kafka."""

from __future__ import annotations

import colorsys
import random
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import KafkaHarness, Received, run

from statefun import (
    BindingError,
    CheckpointError,
    Context,
    FunctionError,
    IntType,
    KafkaEgressMessage,
    KafkaError,
    Message,
    RecordError,
    SimpleType,
    StatefulFunctions,
    StatefunError,
    TopicError,
    UnknownEgressError,
    ValueDecodeError,
    ValueSpec,
)
from statefun.module.loader import parse_module
from statefun.protocol.runtime_pb2 import EffectStream, Manifest, Segment
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.settings import Settings

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def counting(topic: str, egress: str = "test/out") -> StatefulFunctions:
    """Return a function that numbers the messages of each address."""
    functions = StatefulFunctions()
    text = SimpleType("test/text", str.encode, bytes.decode)

    @functions.bind("test.fns/count", specs=[ValueSpec("seen", IntType)])
    def count(ctx: Context, message: Message) -> None:
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        value = f"{ctx.address.id} {message.as_type(text)} {ctx.storage.seen}"
        ctx.send(KafkaEgressMessage(egress, topic=topic, key=ctx.address.id, value=value))

    return functions


def values(received: list[Received]) -> list[str]:
    """Return the received records, by key and then in order."""
    return [r.value for r in sorted(received, key=lambda r: r.key or "")]


def test_counts_per_address_and_goes_on_after_restart(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """State and progress survive the end of the application; nothing is read twice."""
    users, out = kafka.topic("users", partitions=2), kafka.topic("out")
    module = kafka.module({users: ["test.fns/count"]})
    functions = counting(out)
    kafka.send(users, [("Ada", "a"), ("Alan", "b"), ("Ada", "c")])

    first = run(module, functions, checkpoint)
    kafka.send(users, [("Alan", "d"), ("Ada", "e")])
    second = run(module, functions, checkpoint)
    idle = run(module, functions, checkpoint)

    assert (first.invocations, second.invocations, idle.invocations) == (3, 2, 0)
    assert (first.egress_records, second.egress_records) == (3, 2)
    assert values(kafka.receive(out)) == ["Ada a 1", "Ada c 2", "Ada e 3", "Alan b 1", "Alan d 2"]
    assert not list((checkpoint / "outbox").iterdir())


def test_every_target_of_every_topic_gets_its_records(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """A record is delivered to each target of its topic, each at a separate address."""
    one, two, out = kafka.topic("one"), kafka.topic("two"), kafka.topic("out")
    functions = counting(out)

    @functions.bind("other/*")
    async def other(ctx: Context, message: Message) -> None:
        value = f"{ctx.address.typename} {message.raw_value().decode()}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, key="other", value=value))

    kafka.send(one, [("k", "1")])
    kafka.send(two, [("k", "2")])

    run(kafka.module({one: ["test.fns/count", "other/x"], two: ["other/y"]}), functions, checkpoint)

    assert sorted(values(kafka.receive(out))) == ["k 1 1", "other/x 1", "other/y 2"]


def test_order_is_kept_per_partition_and_key(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Each address sees its records in the order of the topic, over several micro-batches."""
    numbers, out = kafka.topic("numbers", partitions=3), kafka.topic("out")
    generator = random.Random(1)
    keys = [f"key-{generator.randrange(40)}" for _ in range(3000)]
    kafka.send(numbers, ((key, f"{i}") for i, key in enumerate(keys)))

    summary = run(
        kafka.module({numbers: ["test.fns/count"]}),
        counting(out),
        checkpoint,
        records_per_batch=1000,
    )

    assert summary.batches >= 3
    received = kafka.receive(out)
    by_key: dict[str, list[list[str]]] = {}
    for record in received:
        by_key.setdefault(record.key or "", []).append(record.value.split())
    for key, seen in by_key.items():
        expected = [str(i) for i, other in enumerate(keys) if other == key]
        assert [number for _, number, _ in seen] == expected
        assert [int(count) for *_, count in seen] == list(range(1, len(expected) + 1))
    assert len(received) == 3000


def test_large_effects_travel_as_files(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Effects that are too large to pass through the driver arrive all the same."""
    users, out = kafka.topic("users"), kafka.topic("out")
    functions = StatefulFunctions()

    @functions.bind("test.fns/large")
    def large(ctx: Context, message: Message) -> None:
        for i in range(400):
            ctx.send(KafkaEgressMessage("test/out", topic=out, value=f"{i:04}".ljust(1000, "x")))

    kafka.send(users, [("Ada", "a"), ("Alan", "b")])

    summary = run(kafka.module({users: ["test.fns/large"]}), functions, checkpoint)

    assert summary.egress_records == 800
    assert sorted(r.value[:4] for r in kafka.receive(out)) == sorted(
        2 * [f"{i:04}" for i in range(400)]
    )


def test_group_offsets_are_committed_and_start_a_fresh_checkpoint(
    kafka: KafkaHarness, tmp_path: Path
) -> None:
    """Lag tools see the application, and a new checkpoint starts where the group was."""
    users, out = kafka.topic("users"), kafka.topic("out")
    functions = counting(out)
    module = kafka.module(
        {users: ["test.fns/count"]}, group=users, reset="earliest", start="{type: group-offsets}"
    )
    kafka.send(users, [("Ada", "a"), ("Ada", "b")])

    run(module, functions, tmp_path / "one")
    committed = kafka.group_offsets(users, users)
    kafka.send(users, [("Ada", "c")])
    run(module, functions, tmp_path / "two")

    assert committed == [2]
    assert kafka.group_offsets(users, users) == [3]
    assert values(kafka.receive(out)) == ["Ada a 1", "Ada b 2", "Ada c 1"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("{type: earliest}", ["Ada old 1", "Ada new 2"]),
        ("{type: latest}", ["Ada new 1"]),
        ("{type: group-offsets}", ["Ada new 1"]),
    ],
)
def test_startup_position_counts_only_on_a_fresh_checkpoint(
    kafka: KafkaHarness, checkpoint: Path, start: str, expected: list[str]
) -> None:
    """The first start chooses where to begin; the second goes on from the checkpoint."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/count"]}, start=start, group=users)
    kafka.send(users, [("Ada", "old")])

    run(module, counting(out), checkpoint)
    kafka.send(users, [("Ada", "new")])
    run(module, counting(out), checkpoint)

    assert values(kafka.receive(out)) == expected


def test_a_failing_function_is_named_and_nothing_of_its_batch_gets_out(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The error says function, address and record; after the fix the batch runs once."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/count"]})
    broken = StatefulFunctions()

    @broken.bind("test.fns/count", specs=[ValueSpec("seen", IntType)])
    def count(ctx: Context, message: Message) -> None:
        ctx.storage.seen = 100
        ctx.send(KafkaEgressMessage("test/out", topic=out, value="never"))
        if message.raw_value() == b"b":
            raise LookupError("no such thing")

    kafka.send(users, [("Ada", "a"), ("Ada", "b")])

    with pytest.raises(FunctionError) as caught:
        run(module, broken, checkpoint)
    assert caught.value.message == (
        "function test.fns/count failed at address test.fns/count/Ada: LookupError: no such thing "
        f"(topic {users}, partition 0, offset 1)"
    )
    assert 'raise LookupError("no such thing")' in caught.value.details
    assert "statefun" not in caught.value.details.splitlines()[1]
    assert kafka.receive(out) == []

    run(module, counting(out), checkpoint)

    assert values(kafka.receive(out)) == ["Ada a 1", "Ada b 2"]


def test_a_value_that_does_not_decode_is_named(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The error says function, address, type and record."""
    users, out = kafka.topic("users"), kafka.topic("out")
    kafka.send(users, [("Ada", b"\xff")])

    with pytest.raises(ValueDecodeError) as caught:
        run(kafka.module({users: ["test.fns/count"]}), counting(out), checkpoint)

    assert "message to test.fns/count/Ada" in caught.value.message
    assert "does not decode as test/text" in caught.value.message
    assert caught.value.message.endswith(f"(topic {users}, partition 0, offset 0)")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ((None, "x"), "the record has no key"),
        (("", "x"), "the record's key is empty"),
        ((b"\xc3\x28", "x"), "the record's key is not valid UTF-8"),
        (("Ada", None), "the record has no value"),
    ],
)
def test_records_that_no_function_can_receive_are_named(
    kafka: KafkaHarness,
    checkpoint: Path,
    record: tuple[str | bytes | None, str | None],
    reason: str,
) -> None:
    """The error names topic, partition, offset and the defect of the record."""
    users, out = kafka.topic("users"), kafka.topic("out")
    kafka.send(users, [("Ada", "fine"), record])

    with pytest.raises(RecordError) as caught:
        run(kafka.module({users: ["test.fns/count"]}), counting(out), checkpoint)

    assert caught.value.message.startswith(reason)
    assert caught.value.message.endswith(f" (topic {users}, partition 0, offset 1)")


def test_an_undeclared_egress_is_named(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The error names the function, the egress that it sent to, and the declared egresses."""
    users, out = kafka.topic("users"), kafka.topic("out")
    kafka.send(users, [("Ada", "a")])

    with pytest.raises(UnknownEgressError) as caught:
        run(kafka.module({users: ["test.fns/count"]}), counting(out, "test/uot"), checkpoint)

    assert caught.value.message == (
        "function test.fns/count at address test.fns/count/Ada: "
        "egress test/uot is not declared in module.yaml (declared: test/out) "
        f"(topic {users}, partition 0, offset 0)"
    )


def test_a_target_without_function_is_refused_before_anything_starts(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The error says where in the module file, and which function may be meant."""
    with pytest.raises(BindingError) as caught:
        run(kafka.module({"users": ["test.fns/cuont"]}), counting("out"), checkpoint)

    assert "module.yaml:9:7: target test.fns/cuont of ingress test/in has no function" in str(
        caught.value
    )
    assert "did you mean test.fns/count?" in str(caught.value)
    assert not checkpoint.exists()


def test_a_missing_ingress_topic_is_named(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The error says ingress, topic, broker and how to create it."""
    with pytest.raises(TopicError, match="ingress test/in: topic nowhere does not exist at"):
        run(kafka.module({"nowhere": ["test.fns/count"]}), counting("out"), checkpoint)


def test_an_unreachable_broker_is_named(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The error says ingress, address and how long was tried."""
    module = kafka.module({"users": ["test.fns/count"]}).replace(kafka.address, "127.0.0.1:1")

    with pytest.raises(
        KafkaError, match=r"ingress test/in: no Kafka broker answered at 127\.0\.0\.1:1 within 1 s"
    ):
        run(module, counting("out"), checkpoint, kafka_timeout="1s")


def test_a_missing_egress_topic_keeps_the_records(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The error names the topic; once it exists, a restart publishes the committed records."""
    users = kafka.topic("users")
    late = f"{users}.late"
    module = kafka.module({users: ["test.fns/count"]}).replace(
        "deliverySemantic: {type: at-least-once}",
        "properties: [{topic.metadata.propagation.max.ms: 1000}]",
    )
    kafka.send(users, [("Ada", "a")])

    with pytest.raises(TopicError, match=f"egress test/out: topic {late} does not exist"):
        run(module, counting(late), checkpoint)
    kafka.broker.create_topic(late)
    second = run(module, counting(late), checkpoint)

    assert (second.invocations, second.egress_records) == (0, 1)
    assert values(kafka.receive(late)) == ["Ada a 1"]


def test_an_egress_without_promise_never_stops_the_application(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If its cluster does not answer, its records are lost and counted, and everything else goes on."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/tell_both"]}) + (
        "---\n"
        "kind: io.statefun.kafka.v1/egress\n"
        "spec: {id: test/lossy, address: '127.0.0.1:1', deliverySemantic: {type: none}}\n"
    )
    functions = StatefulFunctions()

    @functions.bind("test.fns/tell_both")
    def tell_both(ctx: Context, message: Message) -> None:
        for egress in ("test/lossy", "test/out"):
            ctx.send(KafkaEgressMessage(egress, topic=out, value=message.raw_value()))

    for value in ("a", "b"):
        kafka.send(users, [("Ada", value)])
        run(module, functions, checkpoint)

    assert values(kafka.receive(out)) == ["a", "b"]
    told = [
        text for text in caplog.messages if text.startswith("egress test/lossy at 127.0.0.1:1:")
    ]
    assert ["1 records lost so far" in text for text in told] == [True, True]


def test_a_damaged_outbox_is_named_and_kept(kafka: KafkaHarness, checkpoint: Path) -> None:
    """A record that cannot be published ends the application, and stays in the outbox."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/count"]})
    run(module, counting(out), checkpoint)
    kafka.send(users, [("Ada", "a")])
    run(module, counting(out), checkpoint)
    outbox = Outbox(Folder.at(checkpoint))
    damaged = Segment(egress={"test/out": EffectStream(content=b"damaged", records=1)})
    outbox.stage(Manifest(batch=0, segments=[damaged]))

    with pytest.raises(
        CheckpointError,
        match=r"outbox/0/manifest is damaged \(its content does not match its checksum\)",
    ):
        run(module, counting(out), checkpoint)

    assert outbox.manifest(0) is not None


def failing_in_workers(
    name: str, kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Run functions, one from a module of which workers have another version; return the error."""
    users, out = kafka.topic("users"), kafka.topic("out")
    functions = counting(out)
    module = types.ModuleType(name)
    exec("def fail(context, message): pass", module.__dict__)
    functions.register("test.fns/gone", module.fail)
    kafka.send(users, [("Ada", "a")])
    monkeypatch.setitem(sys.modules, name, module)

    with pytest.raises(StatefunError) as caught:
        run(kafka.module({users: ["test.fns/count"]}), functions, checkpoint)

    return str(caught.value)


def test_an_error_of_a_worker_is_one_line(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in a worker outside of functions is shown without its traceback."""
    error = failing_in_workers("colorsys", kafka, checkpoint, monkeypatch)

    assert error == (
        "[SF900] the streaming query has ended: AttributeError: Can't get attribute 'fail' on "
        f"<module 'colorsys' from {colorsys.__file__!r}>; run with spark.statefun.debug=true to "
        "see Spark's log"
    )


def test_a_module_that_workers_lack_is_named_with_what_helps(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is neither in the program's folder nor installed."""
    error = failing_in_workers("gone", kafka, checkpoint, monkeypatch)

    assert error == (
        "[SF700] the Python workers cannot import module gone, which a function of the application "
        "comes from or uses; pass it with spark-submit --py-files, or install it wherever workers "
        "run"
    )


def test_an_application_stops_when_it_is_asked_to(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Even if the interruption itself was lost, as it is in a finalizer."""
    users = kafka.topic("users")
    settings = Settings.resolve({}, None, checkpoint=checkpoint)
    module = parse_module(kafka.module({users: ["test.fns/any"]}))
    functions = StatefulFunctions()
    functions.register("test.fns/any", lambda ctx, message: None)
    application = Application(module, functions, settings)

    with ThreadPoolExecutor() as threads:
        run = threads.submit(application.run)
        application.stop()
        with pytest.raises(KeyboardInterrupt):
            run.result()
