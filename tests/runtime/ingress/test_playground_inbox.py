# SPDX-License-Identifier: Apache-2.0
"""The order of messages that somebody types, and of the messages that they cause."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from micro_batches import SetClock

from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.playground_store import PlaygroundStore
from statefun.runtime.ingress.feedback import FeedbackReader
from statefun.runtime.ingress.feedback_offset import FeedbackOffset
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.runtime.ingress.playground_inbox import PLAYGROUND_INBOX, PlaygroundInbox
from statefun.sdk.times import in_milliseconds

MINUTE = in_milliseconds(timedelta(minutes=1))
SECOND = in_milliseconds(timedelta(seconds=1))


@attrs.define
class Typing:
    """A person who types messages, and an application that reads them; it may have messages that wait."""

    folder: Folder
    store: PlaygroundStore
    gauge: WaitingGauge
    clock: SetClock
    inbox: PlaygroundInbox
    batch: int = 0

    def type(self, *targets: bytes) -> None:
        """Send one message to each address."""
        for target in targets:
            self.store.post(target, "t/v", b"")

    def wait_at_addresses(self, messages: int) -> None:
        """Commit a micro-batch after which so many messages wait in the states of their addresses."""
        outcome = Outcome(waiting_messages=messages - self.gauge.messages)
        self.gauge.add(self.batch, [outcome])
        self.batch += 1


@contextmanager
def typing_in(path: Path) -> Iterator[Typing]:
    """Open a playground without messages."""
    folder, clock = Folder.at(path), SetClock()
    store, gauge = PlaygroundStore(folder), WaitingGauge(folder)
    try:
        yield Typing(folder, store, gauge, clock, PlaygroundInbox(store, gauge, clock))
    finally:
        store.close()


@pytest.fixture
def typing(tmp_path: Path) -> Iterator[Typing]:
    """Open a playground without messages."""
    with typing_in(tmp_path) as typing:
        yield typing


def test_typed_messages_wait_for_the_messages_that_earlier_ones_cause(typing: Typing) -> None:
    """The next message for an address waits until the messages that the last one has caused are delivered."""
    typing.type(b"stock", b"cart", b"cart")
    after, numbers = 0, []
    for is_busy in (False, True, True, False):  # the stock answers the cart, and then all is quiet
        after = typing.inbox.readable(after, is_busy=is_busy)
        numbers.append(after)

    assert numbers == [2, 2, 2, 3]


def test_typed_messages_wait_for_a_few_batches_only(typing: Typing) -> None:
    """Functions may send without end; and messages of a program, which are many, do not wait at all."""
    inbox = typing.inbox
    typing.type(b"a")
    assert [inbox.readable(0, is_busy=True) for _ in range(17)] == [0] * 16 + [1]

    typing.type(*[b"a"] * 17)
    assert inbox.readable(1, is_busy=True) == 18


def test_a_typed_message_waits_for_an_endpoint_that_has_the_one_before(typing: Typing) -> None:
    """Else the endpoint gets both at once when it is up; the feedback source asks the inbox while it waits."""
    typing.type(b"stock", b"cart", b"cart", b"cart")
    reader = FeedbackReader(typing.folder, typing.clock, {PLAYGROUND_INBOX: typing.inbox})
    offset, numbers = reader.initial_offset(), []
    for waiting in (2, 2, 1, 0, 1, 0, 0):
        offset = reader.latest_offset(offset)
        numbers.append(FeedbackOffset.decode(offset).inboxes[PLAYGROUND_INBOX])
        typing.wait_at_addresses(waiting)

    assert numbers == [2, 2, 2, 2, 3, 3, 4]


def test_messages_that_others_wait_for_hold_no_message_back(typing: Typing) -> None:
    """An address that has got no typed message gets one at once."""
    typing.type(b"slow")
    assert typing.inbox.readable(0, is_busy=False) == 1
    typing.wait_at_addresses(1)
    typing.type(b"quick", b"quiet", b"slow", b"other")

    assert typing.inbox.readable(1, is_busy=False) == 3
    assert typing.inbox.readable(3, is_busy=False) == 3


def test_messages_wait_for_an_endpoint_in_the_order_of_their_effects(typing: Typing) -> None:
    """What a typed message has caused may wait for an endpoint, too."""
    typing.type(b"cart", b"cart")
    assert typing.inbox.readable(0, is_busy=False) == 1
    assert typing.inbox.readable(1, is_busy=True) == 1  # the cart has asked the stock
    typing.wait_at_addresses(1)  # whose endpoint is down
    assert typing.inbox.readable(1, is_busy=False) == 1
    typing.wait_at_addresses(0)
    assert typing.inbox.readable(1, is_busy=False) == 2


def test_an_endpoint_that_stays_down_holds_messages_for_a_minute(typing: Typing) -> None:
    """After that, nothing waits for it until no message waits any more."""
    typing.type(b"slow", b"slow", b"other", b"other")
    after, numbers = 0, []
    for _ in range(3):
        after = typing.inbox.readable(after, is_busy=False)
        numbers.append(after)
        typing.wait_at_addresses(1)
    typing.clock.stopwatch += MINUTE - 1
    numbers.append(typing.inbox.readable(after, is_busy=False))
    typing.clock.stopwatch += 1
    for waiting in (1, 1, 0):
        after = typing.inbox.readable(after, is_busy=False)
        numbers.append(after)
        typing.wait_at_addresses(waiting)
    typing.type(b"slow", b"slow")
    after = typing.inbox.readable(after, is_busy=False)
    typing.wait_at_addresses(1)
    numbers += [after, typing.inbox.readable(after, is_busy=False)]

    assert numbers == [1, 1, 1, 1, 3, 4, 4, 5, 5]


def test_old_addresses_are_forgotten_although_functions_send_without_end(typing: Typing) -> None:
    """The memory for them would grow for ever."""
    after = 0
    for target in (b"old", b"new"):
        typing.type(target)
        for _ in range(17):
            after = typing.inbox.readable(after, is_busy=True)
    typing.wait_at_addresses(1)
    typing.type(b"old", b"new")

    assert (after, typing.inbox.readable(after, is_busy=False)) == (2, 3)


def test_a_bounded_run_does_not_end_while_a_typed_message_waits(typing: Typing) -> None:
    """It ends when all accepted messages are handled."""
    typing.type(b"slow", b"slow")
    assert not typing.inbox.is_pending()
    after = typing.inbox.readable(0, is_busy=False)
    pending = [typing.inbox.is_pending()]
    for waiting in (1, 0):
        typing.wait_at_addresses(waiting)
        after = typing.inbox.readable(after, is_busy=False)
        pending.append(typing.inbox.is_pending())
    typing.inbox.readable(after, is_busy=False)

    assert (after, pending, typing.inbox.is_pending()) == (2, [False, True, False], False)


@given(
    st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=16),
    st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 90)), max_size=30),
    st.booleans(),
    st.integers(0, 2),
)
def test_each_typed_message_is_read_in_the_end(
    targets: Sequence[bytes],
    looks: Sequence[tuple[bool, int, int]],
    is_busy: bool,
    waiting: int,
) -> None:
    """Whatever waits, and for however long: after a minute, a message waits for 16 micro-batches at most."""
    with tempfile.TemporaryDirectory() as path, typing_in(Path(path)) as typing:
        typing.type(*targets)
        after = 0
        for was_busy, waited, seconds in looks:
            typing.wait_at_addresses(waited)
            after = typing.inbox.readable(after, is_busy=was_busy)
            typing.clock.stopwatch += seconds * SECOND
        typing.wait_at_addresses(waiting)
        typing.inbox.readable(after, is_busy=True)
        typing.clock.stopwatch += MINUTE
        for _ in range(17 * (len(targets) - after)):
            after = typing.inbox.readable(after, is_busy=is_busy)

        assert after == len(targets)


def test_delivered_messages_are_forgotten(typing: Typing) -> None:
    """Messages with higher numbers stay."""
    for value in (b"1", b"2", b"3"):
        typing.store.post(b"a", "t/v", value)
    typing.inbox.forget(1)

    assert [message.value for message in typing.inbox.messages(1, 3)] == [b"2", b"3"]
    assert typing.inbox.messages(0, 1) == []
