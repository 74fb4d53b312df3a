# SPDX-License-Identifier: Apache-2.0
"""Users' code in a task that is no function, while a call runs alone that was lost several times."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from engine.test_running_alone import Driver
from harness import wait
from runtime.dispatch.test_evaluation import PROPERTIES
from simulation.spark import as_task

from statefun import (
    Context,
    KafkaIngress,
    KafkaRecord,
    KafkaStartupPosition,
    Message,
    StatefulFunctions,
    StringType,
)
from statefun.engine.address_values import AddressValues
from statefun.engine.call_loop import LeavingCalls
from statefun.engine.clock import SystemClock
from statefun.engine.failures import RETRY
from statefun.engine.groups import Group
from statefun.engine.left_calls import MOST_LOST
from statefun.engine.program import Program
from statefun.engine.record_routes import route_number
from statefun.module.model import Module
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.protocol.runtime_pb2 import Retry as RetriedMessage
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.dispatch.evaluation import Evaluation
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.testing.message_rows import MessageRow, columns_of


@pytest.mark.parametrize("has_plain", [True, False])
def test_no_deserializer_runs_beside_a_call_that_would_be_blamed(
    tmp_path: Path, *, has_plain: bool
) -> None:
    """If it ended the process, the call would seem to be the reason."""
    driver, may_end, beside = Driver(), threading.Event(), list[set[str]]()
    functions = StatefulFunctions()

    def read(record: KafkaRecord) -> str:
        beside.append({*driver.alone})  # a parser in C may end the process here
        return str(record.value)

    @functions.bind("t/long")
    async def long(_ctx: Context, _message: Message) -> None:
        await asyncio.to_thread(may_end.wait)

    @functions.bind("t/short")
    async def short(_ctx: Context, _message: Message) -> None:
        pass

    if has_plain:
        functions.register("t/plain", lambda _ctx, _message: None)
    ingress = (
        KafkaIngress.for_id("t/in")
        .with_kafka_address("kafka:9092")
        .with_topic("in", targets=["t/short"])
        .with_deserializer(read, StringType)
        .with_startup_position(KafkaStartupPosition.from_earliest())
        .build()
    )
    program = Program.of(functions, Module((ingress,), ()))
    calls = LeavingCalls(driver, 10)
    operator = Operator(
        cast("Payload", SimpleNamespace(load=lambda: program)),
        SegmentWriter(Folder.at(tmp_path)),
        concurrency=10,
        immediate=10,
        clock=SystemClock(),
        arrow=True,
    )

    def run(rows: Sequence[MessageRow], lost: int = 0) -> None:
        values = AddressValues(None)
        values.count_lost(lost)
        group = Group(rows[0].target, columns_of(rows), 0, len(rows), values)
        with as_task(0, 1, PROPERTIES):
            evaluation = Evaluation(operator, calls)
            for _ in evaluation.dispatch([group]):
                pass
            assert not evaluation.failed

    run([MessageRow(b"x\0t/long", None, StringType.typename, b"")], MOST_LOST - 1)
    wait(lambda: bool(driver.alone))  # it runs alone now
    origin = RecordOrigin(topic="in", route=route_number(ingress.id, ingress.topics[0]))
    record: Any = RetriedMessage(typename="t/bytes", value=b"1", record=origin, encoded=True)
    row = MessageRow(b"y\0t/short", None, RETRY, record.SerializeToString())
    task = threading.Thread(target=run, args=([row],))
    task.start()
    task.join(1)
    may_end.set()
    task.join()
    calls.wait()

    assert beside == [set()]
