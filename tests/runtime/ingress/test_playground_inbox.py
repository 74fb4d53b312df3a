# SPDX-License-Identifier: Apache-2.0
"""The order of messages that somebody types, and of the messages that they cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.playground_store import PlaygroundStore
from statefun.runtime.ingress.playground_inbox import PlaygroundInbox


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PlaygroundStore]:
    """Open a playground's database."""
    with closing(PlaygroundStore(Folder.at(tmp_path))) as store:
        yield store


def test_typed_messages_wait_for_the_messages_that_earlier_ones_cause(
    store: PlaygroundStore,
) -> None:
    """The next message for an address waits until the messages that the last one has caused are delivered."""
    inbox = PlaygroundInbox(store)
    for name in (b"stock", b"cart", b"cart"):
        store.post(name, "t/v", b"")
    after, numbers = 0, []
    for is_busy in (False, True, True, False):  # the stock answers the cart, and then all is quiet
        after = inbox.readable(after, is_busy=is_busy)
        numbers.append(after)

    assert numbers == [2, 2, 2, 3]


def test_typed_messages_wait_for_a_few_batches_only(store: PlaygroundStore) -> None:
    """Functions may send without end; and messages of a program, which are many, do not wait at all."""
    inbox = PlaygroundInbox(store)
    store.post(b"a", "t/v", b"")
    assert [inbox.readable(0, is_busy=True) for _ in range(17)] == [0] * 16 + [1]

    for _ in range(17):
        store.post(b"a", "t/v", b"")
    assert inbox.readable(1, is_busy=True) == 18


def test_delivered_messages_are_forgotten(store: PlaygroundStore) -> None:
    """Messages with higher numbers stay."""
    inbox = PlaygroundInbox(store)
    for value in (b"1", b"2", b"3"):
        store.post(b"a", "t/v", value)
    inbox.forget(1)

    assert [message.value for message in inbox.messages(1, 3)] == [b"2", b"3"]
    assert inbox.messages(0, 1) == []
