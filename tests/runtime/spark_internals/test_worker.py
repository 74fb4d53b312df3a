# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from harness import KafkaHarness, run

from statefun import (
    Context,
    IntType,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    ValueSpec,
    message_builder,
)

pytestmark = [pytest.mark.broker, pytest.mark.spark]
CALLS = 6


def test_garbage_collection_leaves_modules_out_after_a_first_task(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Spark's daemon collects garbage after every task of a worker."""
    ids, out = kafka.topic("ids"), kafka.topic("out")
    functions = StatefulFunctions()

    @functions.bind("test.fns/hop", [ValueSpec("calls", IntType)])
    def hop(ctx: Context, message: Message) -> None:
        ctx.storage.calls = 1
        value = f"{os.getpid()} {gc.get_freeze_count()}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=value))
        if ctx.caller is None or int(ctx.address.id) < CALLS:
            number = 1 if ctx.caller is None else int(ctx.address.id) + 1
            ctx.send(message_builder("test.fns/hop", str(number), int_value=number))

    kafka.send(ids, [("first", "Hello")])
    run(kafka.module({ids: ["test.fns/hop"]}), functions, checkpoint)

    counts: dict[str, list[int]] = {}
    for record in kafka.receive(out):
        worker, count = record.value.split()
        counts.setdefault(worker, []).append(int(count))
    assert sum(map(len, counts.values())) == CALLS + 1
    assert any(len(found) > 1 for found in counts.values())
    assert all(count > 10_000 for found in counts.values() for count in found[1:])
