# SPDX-License-Identifier: Apache-2.0
"""Functions that a checkpoint knows, but that are no longer registered."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from harness import KafkaHarness, run
from pyspark.sql import SparkSession

from statefun import (
    BindingError,
    CheckpointError,
    Context,
    IntType,
    Message,
    OnFailure,
    StatefulFunctions,
    UnknownFunctionError,
    ValueSpec,
    message_builder,
)
from statefun.engine.address_values import AddressValues
from statefun.engine.buckets import release
from statefun.engine.calls import failed_row
from statefun.engine.delays import WAKE_UP
from statefun.engine.effects import EffectRows, Effects
from statefun.engine.failures import RETRY
from statefun.engine.groups import Columns, Group
from statefun.inspect.stored_findings import checkpoint_findings
from statefun.module.loader import parse_module
from statefun.protocol.runtime_pb2 import Bucket, DelayedMessage, Manifest, Retry, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import write_framed
from statefun.runtime.checkpoint.known_functions import FUNCTIONS_FILE, write_functions
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.preflight.unregistered import check_functions
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, arrow_stream
from statefun.runtime.stored.undelivered import undelivered


def functions(*names: str) -> StatefulFunctions:
    """Return functions, each of which sends itself a message for later."""
    registry = StatefulFunctions()
    for name in names:

        @registry.bind(f"t.fns/{name}", specs=[ValueSpec("seen", IntType)])
        def later(ctx: Context, message: Message) -> None:
            ctx.storage.seen = (ctx.storage.seen or 0) + 1
            if ctx.caller is None:
                again = message_builder(ctx.address.typename, ctx.address.id, str_value="again")
                ctx.send_after(timedelta(seconds=12), again)

    return registry


@pytest.mark.long(minutes=0.5)
@pytest.mark.broker
@pytest.mark.spark
def test_messages_for_a_removed_function_refuse_the_start(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Starts are refused until a policy is set: then the messages become dead letters, and none is lost."""
    users, dead = kafka.topic("users"), kafka.topic("dead")
    kafka.send(users, [("Ada", "a"), ("Alan", "b")])
    run(kafka.module({users: ["t.fns/old", "t.fns/kept"]}), functions("old", "kept"), checkpoint)
    module = kafka.module({users: ["t.fns/kept"]}, dead_letters=dead)

    with pytest.raises(CheckpointError) as caught:
        run(module, functions("kept", "new"), checkpoint)
    found = checkpoint_findings(
        Folder.at(checkpoint), parse_module(module), functions("kept", "new")
    )
    [validated] = [each.problem.text for each in found if each.is_error]
    with pytest.raises(BindingError, match="no egress has a deadLetterTopic"):
        run(
            kafka.module({users: ["t.fns/kept"]}),
            functions("kept"),
            checkpoint,
            on_unregistered="dead-letter",
        )
    summary = run(module, functions("kept", "new"), checkpoint, on_unregistered="dead-letter")
    if not summary.dead_letters:  # not due yet: they still refuse a start that says nothing
        with pytest.raises(CheckpointError):
            run(module, functions("kept", "new"), checkpoint)
    while not summary.dead_letters:
        summary = run(module, functions("kept", "new"), checkpoint, on_unregistered="dead-letter")
    told = [message for message in caplog.messages if "for which the checkpoint holds" in message]
    caplog.clear()
    run(module, functions("kept", "new"), checkpoint)

    assert re.fullmatch(
        r"no function t\.fns/old is registered, for which the checkpoint holds 2 timers \(due .* UTC\); because "
        r"of on-unregistered=dead-letter, the timers become dead letters when they are due",
        told[0],
    )
    assert re.fullmatch(
        r"no function t\.fns/old is registered, for which the checkpoint holds 2 timers \(due .* UTC\); did you "
        r"mean .*: a start is refused, unless on-unregistered=dead-letter or skip gives up messages in the first "
        r"micro-batches, and timers when they are due",
        validated,
    )
    refused = r"\n  2 timers \(due .* UTC\) for function t\.fns/old; did you mean t\.fns/"
    assert re.search(refused, str(caught.value))
    assert summary.dead_letters == 2
    letters = kafka.receive(dead)
    assert sorted(letter.headers["statefun-target"] for letter in letters) == [
        "t.fns/old/Ada",
        "t.fns/old/Alan",
    ]
    left = "function t.fns/old has state at 2 addresses, and is not registered; the state is kept"
    assert any(message.startswith(left) for message in caplog.messages)


@pytest.mark.parametrize(
    ("counted", "as_of"),
    [({"counted": "2026-01-31"}, "2026-01-31"), ({}, "some earlier start")],
)
def test_an_older_count_of_addresses_has_its_date(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, counted: dict[str, str], as_of: str
) -> None:
    """Not each start reads the state, and some of it may have expired since."""
    content = {"registered": ["t.fns/kept"], "left": {"t.fns/old": 2}, **counted}
    write_framed(Folder.at(tmp_path), FUNCTIONS_FILE, json.dumps(content).encode())
    nobody, folder = cast("SparkSession", None), Folder.at(tmp_path)

    for _ in range(2):
        known = check_functions(nobody, folder, functions("kept"), OnFailure.FAIL)
        write_functions(folder, known)

    assert [message.split(",")[0] for message in caplog.messages] == [
        f"function t.fns/old has state at 2 addresses (as of {as_of})"
    ] * 2


def test_undelivered_messages_are_counted(tmp_path: Path) -> None:
    """Delayed messages on their way to a bucket count; delivered messages do not.

    Wake-ups of addresses whose values expire do not count either: no function is invoked for them.
    """
    checkpoint = Folder.at(tmp_path)
    checkpoint.child("commits").write("1", b"v1\n{}")
    feedback = json.dumps({"batch": 0, "tick": -1})
    checkpoint.child("offsets").write("1", f"v1\n{{}}\n-\n{feedback}".encode())
    delayed = Bucket(messages=[DelayedMessage(due=1, target=b"x\0t/late", typename="t/t")])
    for batch in (0, 1, 2):  # delivered, not delivered, not committed
        rows = EffectRows()
        rows.append((f"x\0t/of-{batch}".encode(), b"", "t/t", b"", None, None))
        if batch == 1:
            content = delayed.SerializeToString()
            bucket = b"1\0statefun.timers/bucket"
            rows.append((bucket, b"", "statefun.timers/delayed", content, None, None))
            for number, type_ in enumerate((WAKE_UP, "t/t")):
                name = b"x\0t/released-%d" % number
                entry = DelayedMessage(due=1, target=name, caller=name, typename=type_, value=b"1")
                effects = Effects()
                release(entry, effects)
                (row,) = (
                    pa.ipc.open_stream(arrow_stream(effects.messages.take(), MESSAGE_SCHEMA))
                    .read_all()
                    .to_pylist()
                )
                rows.append(tuple(row.values()))
        count = len(rows)
        segment = Segment(messages=effect_stream(arrow_stream(rows.take(), MESSAGE_SCHEMA), count))
        Outbox(checkpoint).stage(Manifest(batch=batch, segments=[segment]))

    assert list(undelivered(checkpoint)) == [
        ("t/of-1", "t/t", 0),
        ("statefun.timers/bucket", "statefun.timers/delayed", 0),
        ("t/late", "t/t", 1),
        ("t/released-1", "t/t", 0),
    ]


def test_a_retry_becomes_the_dead_letter_of_its_message() -> None:
    """This holds also if its function was removed: the letter can be replayed."""
    again = Retry(attempts=2, caller=b"Alan\0t/g", typename="t/value", value=b"v")
    again.record.topic, again.record.offset = "users", 7
    content = [again.SerializeToString()]
    columns = Columns([b""], [RETRY], content, [None], [0], cell=lambda *_: None)
    group = Group(b"Ada\0t/gone", columns, 0, 1, AddressValues(None))

    failed = failed_row(group, 0, UnknownFunctionError("no function t/gone is registered"))

    assert (failed.typename, failed.value, failed.caller) == ("t/value", b"v", b"Alan\0t/g")
    assert (failed.attempts, failed.record) == (3, again.record)
