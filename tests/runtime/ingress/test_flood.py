# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from statefun import Address, InvocationError
from statefun.engine.address_keys import address_key
from statefun.engine.effects import EffectRows
from statefun.engine.row import Row
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.ingress.flood import FloodGauge
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, arrow_stream

Send = Callable[[int, int], None]
"""Lets a gauge look at a micro-batch: its number, and how many messages it has sent."""


@pytest.fixture
def send(checkpoint: Path) -> Send:
    """Return a gauge that warns from 10 messages on and ends at more than 100."""
    outbox = Outbox(Folder.at(checkpoint))
    gauge = FloodGauge(outbox, warning=10, most=100)

    def look(batch: int, count: int) -> None:
        segments: list[Segment] = []
        for part in (count // 2, count - count // 2):
            rows = EffectRows()
            for number in range(part):
                target, caller = (
                    address_key(Address("t", name, f"{number}"))
                    for name in ("pong" if number else "rare", "ping")
                )
                rows.append(Row(target, caller, "t/v", b""))
            content = arrow_stream(rows.take(), MESSAGE_SCHEMA) if part else b""
            name = f"{batch}-{len(segments)}.arrow"
            if part:
                outbox.batch_folder(batch).write(name, content)
            stream = effect_stream(content, part, name) if part else None
            segments.append(Segment(messages=stream))
        gauge.look(Manifest(batch=batch, segments=segments))

    return look


def test_a_warning_is_logged_at_each_doubling_of_messages(
    send: Send, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names the functions that send most messages."""
    with caplog.at_level(logging.WARNING, "statefun"):
        for batch, count in enumerate([0, 1, 9, 10, 19, 12, 20, 39, 100]):
            send(batch, count)

    assert caplog.messages == [
        f"functions have sent {count} messages to functions in micro-batch {batch}, {share}% of "
        "them from t/ping to t/pong; if functions send more than 100 in a micro-batch, the application ends"
        for batch, count, share in [(3, 10, 80), (6, 20, 90), (8, 100, 98)]
    ]


def test_too_many_messages_end_the_application(send: Send) -> None:
    """The error names the senders and a remedy."""
    with pytest.raises(InvocationError) as caught:
        send(7, 101)

    assert caught.value.message == (
        "functions have sent 101 messages to functions in micro-batch 7, 98% of them from t/ping "
        "to t/pong; at most 100 messages are allowed: correct the loop of functions in which messages multiply, and start again"
    )
