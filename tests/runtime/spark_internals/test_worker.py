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
CALLS_OF_A_WORKER = 3
MOST_CALLS = 60


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
        # A busy machine has more workers: the hops end when one of them has been called three times.
        workers = [] if ctx.caller is None else message.as_string().split()
        workers.append(str(os.getpid()))
        if workers.count(workers[-1]) < CALLS_OF_A_WORKER and len(workers) < MOST_CALLS:
            ctx.send(
                message_builder("test.fns/hop", str(len(workers)), str_value=" ".join(workers))
            )

    kafka.send(ids, [("first", "Hello")])
    run(kafka.module({ids: ["test.fns/hop"]}), functions, checkpoint)

    counts: dict[str, list[tuple[int, int]]] = {}
    for record in kafka.receive(out):
        worker, frozen, full_collections = record.value.split()
        counts.setdefault(worker, []).append((int(frozen), int(full_collections)))
    assert any(len(found) == CALLS_OF_A_WORKER for found in counts.values())
    for _, *later in counts.values():
        assert all(frozen > 10_000 for frozen, _ in later)
        assert len({full_collections for _, full_collections in later}) <= 1
