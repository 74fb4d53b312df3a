# SPDX-License-Identifier: Apache-2.0
"""The operator on real Spark: both ways to evaluate it, order, chunks, and large values."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from statefun import (
    Context,
    IntType,
    KafkaEgressMessage,
    Message,
    SimpleType,
    StatefulFunctions,
    ValueSpec,
)
from statefun.engine.address_keys import address_key
from statefun.engine.clock import SystemClock
from statefun.engine.program import Program
from statefun.engine.sinks import EgressRecord, Sink
from statefun.protocol.runtime_pb2 import AddressState, Manifest, Outcome
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.dispatch.announcement import Announcement, announce
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.plan import dispatch
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.rows.effect_streams import read_egress_records
from statefun.runtime.rows.envelope import ROW_SCHEMA
from statefun.runtime.spark.session import dispatches_arrow, keep_checkpoint_locally, open_session
from statefun.runtime.spark_internals.versions import RELEASE
from statefun.runtime.stored.committed_state import CommittedState
from statefun.sdk.address import Address

pytestmark = pytest.mark.spark

# Workers cannot import test modules.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)

# Before Spark 4.2, functions are not called through pandas.
each_way = pytest.mark.parametrize("arrow", [True, False] if RELEASE >= (4, 2) else [True])

ARROW_SCHEMA = pa.schema(
    [
        ("target", pa.binary()),
        ("offset", pa.int64()),
        ("caller", pa.binary()),
        ("typename", pa.string()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("headers", pa.string()),
        ("trace", pa.string()),
        ("route", pa.int64()),
        ("flags", pa.int32()),
    ]
)
Sent = tuple[str, str, bytes]
"""Function name, id and value of a message."""


@attrs.frozen
class Outcomes:
    """The results of a run of the operator."""

    records: list[EgressRecord]
    """In the order of the outbox: batch by batch."""
    failures: list[tuple[str, str]]
    """Code and message."""
    invocations: int
    state: dict[bytes, bytes]
    """The content of the state store at the end, by grouping key."""


@pytest.fixture(scope="module")
def session() -> SparkSession:
    """Open a session with the settings of applications."""
    opened = open_session(debug=False, state_partitions=2)
    assert dispatches_arrow(opened, "arrow")
    keep_checkpoint_locally(opened)
    return opened


@pytest.fixture
def operate(session: SparkSession, tmp_path: Path) -> Callable[..., Outcomes]:
    """Return a function that runs batches of messages through the operator."""
    runs = itertools.count()

    def run(
        functions: StatefulFunctions,
        batches: Sequence[Sequence[Sent]],
        *,
        arrow: bool = True,
        chunk: int = 10_000,
        concurrency: int = 1000,
    ) -> Outcomes:
        folder = tmp_path / str(next(runs))
        (folder / "in").mkdir(parents=True)
        offsets = itertools.count()
        for number, batch in enumerate(batches):
            rows = [
                {
                    "target": address_key(Address("t", name, id_)),
                    "offset": next(offsets),
                    "typename": "t/bytes",
                    "value": value,
                    "topic": "in",
                    "partition": 0,
                    "timestamp": 0,
                    "route": 1,
                    "flags": 0,
                }
                for name, id_, value in batch
            ]
            file = folder / "in" / f"{number:04}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, ARROW_SCHEMA), file)
            os.utime(file, (number, number))  # Spark reads files in the order of their age
        checkpoint = Folder.at(folder / "checkpoint")
        sink = Sink.for_kafka(64 * 1024 * 1024)  # large ones are to pass as well
        payload = Payload.of(Program(functions, {"t/out": sink}))
        operator = Operator(
            payload, SegmentWriter(checkpoint), concurrency, 1000, SystemClock(), arrow=arrow
        )
        outbox = Outbox(checkpoint)
        records: list[EgressRecord] = []
        outcomes: list[Outcome] = []

        def stage(frame: DataFrame, number: int) -> None:
            announce(session.sparkContext, Announcement(SystemClock().now(), number - 2))
            found = [Outcome.FromString(bytes(row.outcome)) for row in frame.collect()]
            segments = [outcome.segment for outcome in found if outcome.HasField("segment")]
            outbox.stage(Manifest(batch=number, segments=segments))
            manifest = outbox.manifest(number)
            assert manifest is not None
            for segment in manifest.segments:
                for stream in segment.egress.values():
                    records.extend(read_egress_records(outbox.open(number, stream)))
            outcomes.extend(found)

        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", chunk)
        source = session.readStream.schema(ROW_SCHEMA).option("maxFilesPerTrigger", 1)
        query = (
            dispatch(source.parquet(str(folder / "in")), operator, {})
            .writeStream.foreachBatch(stage)
            .option("checkpointLocation", checkpoint.spark_uri)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        log = CommitLog(checkpoint)
        newest = log.newest()
        with closing(CommittedState(checkpoint, newest, log.state_ids(newest))) as committed:
            state = dict(committed)
        return Outcomes(
            records,
            [(o.failure.code, o.failure.message) for o in outcomes if o.HasField("failure")],
            sum(outcome.invocations for outcome in outcomes),
            state,
        )

    return run


LARGEST = 2**31 - 1
"""The largest int."""


def obey(ctx: Context, message: Message) -> None:
    """Carry out the message, a JSON list of commands."""
    for command, *arguments in json.loads(message.raw_value()):
        if command == "set":
            setattr(ctx.storage, arguments[0], arguments[1])
        elif command == "delete":
            delattr(ctx.storage, arguments[0])
        elif command == "add":
            before = getattr(ctx.storage, arguments[0]) or 0
            setattr(ctx.storage, arguments[0], min(before + 1, LARGEST))
        elif command == "send":
            value = json.dumps([arguments[0], ctx.address.id, ctx.storage.a, ctx.storage.b])
            ctx.send(KafkaEgressMessage("t/out", topic="out", key=ctx.address.id, value=value))


def obedient() -> StatefulFunctions:
    """Return a plain and a coroutine function that carry out the commands of their messages."""
    functions = StatefulFunctions()
    specs = [ValueSpec("a", IntType), ValueSpec("b", IntType)]
    functions.register("t/plain", obey, specs)

    @functions.bind("t/async", specs)
    async def patient(ctx: Context, message: Message) -> None:
        await asyncio.sleep(0)
        obey(ctx, message)

    return functions


names = st.sampled_from(["a", "b"])
commands = st.one_of(
    st.tuples(st.just("set"), names, st.integers(-LARGEST - 1, LARGEST)),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("add"), names),
    st.tuples(st.just("send"), st.text(max_size=5)),
)
messages = st.tuples(
    st.sampled_from(["plain", "async"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3),
    st.lists(commands, max_size=4).map(lambda todo: json.dumps(todo).encode()),
)


@settings(
    max_examples=5,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes too many queries
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    batches=st.lists(st.lists(messages, min_size=1, max_size=60), min_size=1, max_size=3),
    chunk=st.sampled_from([1, 2, 7, 10_000]),
)
def test_both_paths_give_the_same(
    operate: Callable[..., Outcomes], batches: list[list[Sent]], chunk: int
) -> None:
    """Arrow and pandas agree on records, their order per address, counts, and stored state."""
    arrow = operate(obedient(), batches, arrow=True, chunk=chunk)
    pandas = operate(obedient(), batches, arrow=False, chunk=chunk)

    assert arrow.failures == pandas.failures == []
    assert arrow.state == pandas.state
    assert arrow.invocations == pandas.invocations == sum(map(len, batches))
    assert _by_key(arrow.records) == _by_key(pandas.records)


def _by_key(records: Sequence[EgressRecord]) -> dict[Any, list[EgressRecord]]:
    ordered: dict[Any, list[EgressRecord]] = {}
    for record in records:
        ordered.setdefault((record.key, record.value), []).append(record)
    return ordered


@each_way
@pytest.mark.parametrize("chunk", [10_000, 700])
def test_order_holds_when_spark_spills(
    operate: Callable[..., Outcomes], arrow: bool, chunk: int
) -> None:
    """Messages of an address come in order, though the sort spills to disk and merges."""
    functions = StatefulFunctions()

    @functions.bind("t/log")
    def log(ctx: Context, message: Message) -> None:
        ctx.send(
            KafkaEgressMessage("t/out", topic="out", key=ctx.address.id, value=message.raw_value())
        )

    count = 30_000
    batch = [("log", f"id-{i % 7}", str(i).encode()) for i in range(count)]

    outcomes = operate(functions, [batch], arrow=arrow, chunk=chunk)

    seen: dict[bytes | None, list[int]] = {}
    for record in outcomes.records:
        seen.setdefault(record.key, []).append(int(record.value or b""))
    assert len(outcomes.records) == count
    for key, numbers in seen.items():
        first = int((key or b"").decode().removeprefix("id-"))
        assert numbers == list(range(first, count, 7))


def test_snapshots_of_the_state_are_taken(
    operate: Callable[..., Outcomes], session: SparkSession
) -> None:
    """A run outlives the micro-batches after which Spark writes all of the state."""
    setting = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
    session.conf.set(setting, 1)  # then, five batches without a snapshot are too many
    try:
        outcomes = operate(obedient(), [[("plain", "x", b'[["add", "a"]]')]] * 12)
    finally:
        session.conf.unset(setting)

    [state] = outcomes.state.values()
    [value] = AddressState.FromString(state).values
    assert IntType.serializer().deserialize(value.value) == 12


def test_a_hot_address_is_called_chunk_by_chunk(operate: Callable[..., Outcomes]) -> None:
    """A huge group comes in chunks, and its state is carried from one to the next."""
    functions = StatefulFunctions()

    @functions.bind("t/count", [ValueSpec("seen", IntType)])
    def count(ctx: Context, message: Message) -> None:
        ctx.storage.seen = (ctx.storage.seen or 0) + 1

    outcomes = operate(functions, [[("count", "one", b"x")] * 150_000])

    (state,) = outcomes.state.values()
    (value,) = AddressState.FromString(state).values
    assert outcomes.invocations == 150_000
    assert IntType.serializer().deserialize(value.value) == 150_000


@each_way
def test_values_of_many_megabytes(operate: Callable[..., Outcomes], arrow: bool) -> None:
    """Large messages, records and states pass, byte by byte as they are."""
    functions = StatefulFunctions()
    blob = SimpleType("t/blob", bytes, bytes)

    @functions.bind("t/keep", [ValueSpec("kept", blob)])
    def keep(ctx: Context, message: Message) -> None:
        kept = (ctx.storage.kept or b"") + message.raw_value()
        ctx.storage.kept = kept
        ctx.send(KafkaEgressMessage("t/out", topic="out", value=kept))

    part = bytes(range(256)) * 40_000

    outcomes = operate(functions, [[("keep", "x", part)], [("keep", "x", part)]], arrow=arrow)

    assert [record.value for record in outcomes.records] == [part, part + part]
    (state,) = outcomes.state.values()
    assert AddressState.FromString(state).values[0].value == part + part


@each_way
def test_an_empty_state_leaves_the_store(operate: Callable[..., Outcomes], arrow: bool) -> None:
    """An address without values has no row, whether or not it ever had one."""
    set_, delete = b'[["set", "a", 1]]', b'[["delete", "a"]]'

    outcomes = operate(
        obedient(),
        [
            [("plain", "kept", set_), ("plain", "gone", set_), ("plain", "none", b"[]")],
            [("plain", "gone", delete), ("plain", "none", delete)],
        ],
        arrow=arrow,
    )

    assert [key.split(b"\0")[0] for key in outcomes.state] == [b"kept"]


@each_way
def test_one_failure_is_reported_and_the_input_is_drained(
    operate: Callable[..., Outcomes], arrow: bool
) -> None:
    """The first failure of a task is an outcome; Spark sees no error."""
    batch = [("plain", f"{i}", b"[]" if i != 50 else b"no json") for i in range(200)]

    outcomes = operate(obedient(), [batch], arrow=arrow, chunk=10)

    ((code, message),) = outcomes.failures
    assert code == "SF301"
    assert message.startswith("function t/plain failed at address t/plain/50: JSONDecodeError")
    assert message.endswith("(topic in, partition 0, offset 50)")


def test_coroutines_run_side_by_side_and_one_address_in_order(
    operate: Callable[..., Outcomes],
) -> None:
    """As many addresses run at a time as allowed; globals live as long as the worker."""
    functions = StatefulFunctions()
    running: list[str] = []
    loops: set[int] = set()

    @functions.bind("t/wait", [ValueSpec("seen", IntType)])
    async def wait(ctx: Context, message: Message) -> None:
        running.append(ctx.address.id)
        loops.add(id(asyncio.get_running_loop()))
        await asyncio.sleep(0.01)
        seen = (ctx.storage.seen or 0) + 1
        ctx.storage.seen = seen
        value = json.dumps([seen, len(running), len(set(running)), len(loops)])
        await asyncio.sleep(0.01)
        running.remove(ctx.address.id)
        ctx.send(KafkaEgressMessage("t/out", topic="out", key=ctx.address.id, value=value))

    batches = [[("wait", f"{i}", b"") for i in range(40) for _ in range(2)]] * 2

    outcomes = operate(functions, batches, concurrency=5)

    seen: dict[bytes | None, list[int]] = {}
    for record in outcomes.records:
        number, at_once, addresses, known_loops = json.loads(record.value or b"")
        seen.setdefault(record.key, []).append(number)
        assert at_once == addresses <= 5
        assert known_loops == 1
    assert set(map(tuple, seen.values())) == {(1, 2, 3, 4)}
    assert len(seen) == 40


def test_a_failing_coroutine_cancels_no_other(
    operate: Callable[..., Outcomes], tmp_path: Path
) -> None:
    """The other coroutines of the batch run to their end; the failure is reported."""
    functions = StatefulFunctions()
    ended = tmp_path / "ended"
    ended.mkdir()

    @functions.bind("t/wait")
    async def wait(ctx: Context, message: Message) -> None:
        if ctx.address.id == "bad":
            raise ValueError("bad")
        await asyncio.sleep(0.05)
        (ended / ctx.address.id).touch()

    outcomes = operate(functions, [[("wait", id_, b"") for id_ in ("a", "bad", "c")]])

    assert [code for code, _ in outcomes.failures] == ["SF301"]
    assert sorted(path.name for path in ended.iterdir()) == ["a", "c"]
