# SPDX-License-Identifier: Apache-2.0
"""Functions that a checkpoint knows and that nobody registers any more."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from harness import KafkaHarness, run

from statefun import (
    BindingError,
    CheckpointError,
    Context,
    IntType,
    Message,
    StatefulFunctions,
    ValueSpec,
    message_builder,
)
from statefun.protocol.runtime_pb2 import Bucket, DelayedMessage, Manifest, Segment
from statefun.runtime.effects import MESSAGE_SCHEMA, EffectRows
from statefun.runtime.filesystem import Folder
from statefun.runtime.outbox import Outbox, effect_stream
from statefun.runtime.unregistered import undelivered


def functions(*names: str) -> StatefulFunctions:
    """Return functions, each of which sends itself a message for later."""
    registry = StatefulFunctions()
    for name in names:

        @registry.bind(f"t.fns/{name}", specs=[ValueSpec("seen", IntType)])
        def later(ctx: Context, message: Message) -> None:
            ctx.storage.seen = (ctx.storage.seen or 0) + 1
            if ctx.caller is None:
                again = message_builder(ctx.address.typename, ctx.address.id, str_value="again")
                ctx.send_after(timedelta(milliseconds=1500), again)

    return registry


@pytest.mark.broker
@pytest.mark.spark
def test_messages_for_a_function_that_is_gone_refuse_the_start(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it is said what becomes of them: dead letters, with nothing lost."""
    users, dead = kafka.topic("users"), kafka.topic("dead")
    kafka.send(users, [("Ada", "a"), ("Alan", "b")])
    run(kafka.module({users: ["t.fns/old", "t.fns/kept"]}), functions("old", "kept"), checkpoint)
    module = kafka.module({users: ["t.fns/kept"]}, dead_letters=dead)

    with pytest.raises(CheckpointError) as caught:
        run(module, functions("kept", "new"), checkpoint)
    with pytest.raises(BindingError, match="no egress has a deadLetterTopic"):
        run(
            kafka.module({users: ["t.fns/kept"]}),
            functions("kept"),
            checkpoint,
            on_unregistered="dead-letter",
        )
    summary = run(module, functions("kept", "new"), checkpoint, on_unregistered="dead-letter")
    while not summary.dead_letters:
        summary = run(module, functions("kept", "new"), checkpoint, on_unregistered="dead-letter")
    caplog.clear()
    run(module, functions("kept", "new"), checkpoint)

    assert "\n  2 for function t.fns/old" in str(caught.value)
    assert summary.dead_letters == 2
    letters = kafka.receive(dead)
    assert sorted(letter.headers["statefun-target"] for letter in letters) == [
        "t.fns/old/Ada",
        "t.fns/old/Alan",
    ]
    left = "function t.fns/old has state at 2 addresses, and is not registered; the state is kept"
    assert any(message.startswith(left) for message in caplog.messages)


def test_messages_that_are_not_delivered_yet_are_found(tmp_path: Path) -> None:
    """In the outbox, delayed ones on their way to their bucket included; not those of others."""
    checkpoint = Folder.at(tmp_path)
    checkpoint.child("commits").write("1", b"v1\n{}")
    feedback = json.dumps({"batch": 0, "tick": -1})
    checkpoint.child("offsets").write("1", f"v1\n{{}}\n-\n{feedback}".encode())
    delayed = Bucket(messages=[DelayedMessage(due=1, target=b"x\0t/late", typename="t/t")])
    for batch in (0, 1, 2):  # delivered, not delivered, not committed
        rows = EffectRows(MESSAGE_SCHEMA)
        rows.append((f"x\0t/of-{batch}".encode(), b"", "t/t", b"", None))
        if batch == 1:
            content = delayed.SerializeToString()
            bucket = b"1\0statefun.timers/bucket"
            rows.append((bucket, b"", "statefun.timers/delayed", content, None))
        count = len(rows)
        segment = Segment(messages=effect_stream(rows.take(), count))
        Outbox(checkpoint).stage(Manifest(batch=batch, segments=[segment]))

    assert list(undelivered(checkpoint)) == ["t/of-1", "statefun.timers/bucket", "t/late"]
