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


def test_garbage_collection_leaves_modules_and_long_calls_out_after_a_first_task(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Spark's daemon collects garbage after every task of a worker: that of young objects."""
    ids, out = kafka.topic("ids"), kafka.topic("out")
    functions = StatefulFunctions()

    @functions.bind("test.fns/hop", [ValueSpec("calls", IntType)])
    def hop(ctx: Context, message: Message) -> None:
        ctx.storage.calls = 1
        value = f"{os.getpid()} {gc.get_freeze_count()} {gc.get_stats()[2]['collections']}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=value))
        if ctx.caller is None or int(ctx.address.id) < CALLS:
            number = 1 if ctx.caller is None else int(ctx.address.id) + 1
            ctx.send(message_builder("test.fns/hop", str(number), int_value=number))

    kafka.send(ids, [("first", "Hello")])
    run(kafka.module({ids: ["test.fns/hop"]}), functions, checkpoint)

    counts: dict[str, list[tuple[int, int]]] = {}
    for record in kafka.receive(out):
        worker, frozen, full_collections = record.value.split()
        counts.setdefault(worker, []).append((int(frozen), int(full_collections)))
    assert sum(map(len, counts.values())) == CALLS + 1
    assert any(len(found) > 2 for found in counts.values())
    for _, *later in counts.values():
        assert all(frozen > 10_000 for frozen, _ in later)
        assert len({full_collections for _, full_collections in later}) <= 1
