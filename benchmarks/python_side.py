# SPDX-License-Identifier: Apache-2.0
"""The Python side of the operator alone: CPU per address and per further message of an address.

The Arrow batches that Spark would send are made here, and those that go back are dropped. Each
message updates one state value and sends one egress record. Two forms of a program can be
compared: PYTHONPATH names the other one's folder.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.engine.clock import SystemClock
from statefun.engine.program import Program
from statefun.engine.sinks import Sink
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.dispatch.arrow_path import evaluate
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.spark_internals import pickled_state, worker

ROWS = 10_000
"""Of a batch: Spark's default."""
BATCHES = 5
attempts = itertools.count()


def functions() -> StatefulFunctions:
    """Return the greeter."""
    registry = StatefulFunctions()

    @registry.bind("bench/greeter", [ValueSpec("visits", IntType)])
    def greet(ctx: Context, message: Message) -> None:
        visits = (ctx.storage.visits or 0) + 1
        ctx.storage.visits = visits
        text = f"Hello {message.raw_value()[:20]!r}, visit {visits}"
        ctx.send(KafkaEgressMessage("bench/out", topic="out", key=ctx.address.id, value=text))

    return registry


def state_row(visits: int) -> bytes:
    """Return a stored state as Spark pickles it."""
    state = AddressState()
    state.values.add(
        name="visits",
        typename=IntType.typename,
        value=IntType.serializer().serialize(visits),
    )
    text = state.SerializeToString().decode("latin-1").encode()
    head = b"\x80\x02" + pickled_state._TEXT  # noqa: SLF001 - Spark's form
    return head + struct.pack("<I", len(text)) + text + pickled_state._END  # noqa: SLF001 - Spark's form


def batch_of(per_address: int) -> pa.RecordBatch:
    """Return a batch of records, so many for each address."""
    addresses = ROWS // per_address
    rows = addresses * per_address
    targets = [b"%d\0bench/greeter" % number for number in range(addresses)]
    states = pa.StructArray.from_arrays(
        [
            pa.repeat('{"defined":true,"updated":false,"removed":false}', addresses),
            pa.array([b"\0" * 8 + target for target in targets]),
            pa.repeat(state_row(7), addresses),
            pa.array(range(0, rows, per_address), pa.int32()),
            pa.repeat(pa.scalar(per_address, pa.int32()), addresses),
            pa.repeat(pa.scalar(True), addresses),
        ],
        ["properties", "keyRowAsUnsafe", "object", "startOffset", "numRows", "isLastChunk"],
    )
    columns = {
        "target": pa.array([target for target in targets for _ in range(per_address)]),
        "offset": pa.array(range(rows)),
        "caller": pa.nulls(rows, pa.binary()),
        "typename": pa.repeat("bench/bytes", rows),
        "value": pa.repeat(b"x" * 100, rows),
        "topic": pa.repeat("in", rows),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), rows),
        "timestamp": pa.repeat(pa.scalar(0, pa.int64()), rows),
        "key": pa.nulls(rows, pa.binary()),
        "headers": pa.nulls(rows, pa.string()),
        "trace": pa.nulls(rows, pa.string()),
        "route": pa.repeat(pa.scalar(1), rows),
        "flags": pa.repeat(pa.scalar(0, pa.int32()), rows),
        "state": pa.concat_arrays([states, pa.nulls(rows - addresses, states.type)]),
    }
    return pa.record_batch(columns)


def begin_task() -> None:
    """Let this process look like a worker that has begun a task."""
    task = TaskContext._getOrCreate()  # noqa: SLF001 - as PySpark's worker does
    task._taskAttemptId = next(attempts)  # noqa: SLF001 - as above
    task._partitionId = 0  # noqa: SLF001 - as above
    task._localProperties = {  # noqa: SLF001 - as above
        "streaming.sql.batchId": "1",
        "statefun.time": "0",
        "statefun.delivered-up-to": "0",
        "statefun.turn": "nothing",
        "statefun.watermark": "nothing",
    }


def microseconds(operator: Operator, per_address: int) -> float:
    """Return the CPU time per address."""
    batches = [batch_of(per_address) for _ in range(BATCHES)]
    begin_task()
    gc.collect()
    gc.freeze()  # as in a worker, and with its thresholds
    gc.set_threshold(*worker._COLLECTIONS)  # noqa: SLF001 - the benchmark does what a worker does
    began = time.process_time()
    returned: Iterator[pa.RecordBatch] = evaluate(operator, iter(batches))
    rows = sum(batch.num_rows for batch in returned)
    seconds = time.process_time() - began
    gc.unfreeze()
    addresses = BATCHES * (ROWS // per_address)
    if rows < addresses:
        raise SystemExit(f"only {rows} of {addresses} states came back")
    return seconds / addresses * 1e6


def main() -> None:
    """Measure addresses of one message and of several."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--messages", type=int, default=10, help="of the addresses with several")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name:
        program = Program(functions(), {"bench/out": Sink.for_kafka()})
        writer = SegmentWriter(Folder.at(name))
        operator = Operator(Payload.of(program), writer, 1000, 1000, SystemClock(), arrow=True)
        one, several = (
            sorted(microseconds(operator, count) for _ in range(arguments.runs))
            for count in (1, arguments.messages)
        )
    for title, figures in (("1 message", one), (f"{arguments.messages} messages", several)):
        print(
            f"address with {title}: {figures[0]:.1f} µs at best, "
            f"{statistics.median(figures):.1f} µs median"
        )
    further = (several[0] - one[0]) / (arguments.messages - 1)
    print(f"further message of the same address: {further:.1f} µs")


if __name__ == "__main__":
    main()
