# SPDX-License-Identifier: Apache-2.0
"""Finds the messages in the outbox and in the inboxes that no micro-batch has delivered yet."""

from __future__ import annotations

from collections.abc import Iterator

from statefun.engine import chunks
from statefun.engine.address_keys import typename_of
from statefun.engine.delays import delayed_messages, is_wake_up
from statefun.engine.row import Row
from statefun.protocol.runtime_pb2 import EffectStream
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.sent_messages import SENT_INBOX, undelivered_sent
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.ingress.playground_inbox import PLAYGROUND_INBOX
from statefun.runtime.stored.message_types import type_of_waiting, value_type
from statefun.runtime.stored.posted import undelivered_posted
from statefun.sdk.errors import CheckpointError


def undelivered_rows(checkpoint: Folder, batch: int) -> Iterator[Row]:
    """Yield each message that micro-batches up to ``batch`` have sent and not delivered, in order.

    Messages that the application delivers while they are read may be left out.

    Raises:
        CheckpointError: if a file of the outbox is damaged.
    """
    outbox = Outbox(checkpoint)
    delivered = feedback_offset(CommitLog(checkpoint), batch).batch
    for each in outbox.batches():
        manifest = outbox.manifest(each) if delivered < each <= batch else None
        for segment in manifest.segments if manifest is not None else ():
            if segment.messages.records:
                yield from _rows(outbox, each, segment.messages)


def sent_rows(checkpoint: Folder, batch: int) -> Iterator[Row]:
    """Yield each message of ``statefun send`` that no micro-batch up to ``batch`` has delivered, in order.

    Raises:
        CheckpointError: if a file with a message is damaged.
    """
    delivered = feedback_offset(CommitLog(checkpoint), batch).last_of(SENT_INBOX)
    for each in undelivered_sent(checkpoint, delivered):
        yield Row(each.target, b"", each.typename, each.value)


def undelivered(checkpoint: Folder) -> Iterator[tuple[str, str, int]]:
    """Yield each message that no micro-batch has delivered: its target's function type, its value's type, its due time.

    The due time is in milliseconds since the epoch; 0 for a message that is not delayed. Messages of functions come
    first, then those of ``statefun send``, and those of the playground.

    Raises:
        CheckpointError: if a file with messages is damaged.
    """
    newest = CommitLog(checkpoint).newest()
    for row in undelivered_rows(checkpoint, newest):
        if not (is_wake_up(row.typename, row.value) or chunks.is_own(row.typename, row.value)):
            yield typename_of(row.target), value_type(row.typename, row.value), 0
        for typename, waiting in chunks.kept_for(row.target, row.typename, row.value):
            yield typename, type_of_waiting(waiting), 0
        for message in delayed_messages(row.typename, row.value):
            value = value_type(message.typename, message.value)
            yield typename_of(message.target), value, message.due
    for row in sent_rows(checkpoint, newest):
        yield typename_of(row.target), row.typename, 0
    delivered = feedback_offset(CommitLog(checkpoint), newest).last_of(PLAYGROUND_INBOX)
    for each in undelivered_posted(checkpoint, delivered):
        yield typename_of(each.target), each.typename, 0


def _rows(outbox: Outbox, batch: int, stream: EffectStream) -> Iterator[Row]:
    # It needs pyarrow, which takes long to import, and most applications have nothing under way.
    from statefun.runtime.rows.effect_streams import read_batches  # noqa: PLC0415 - see above

    try:
        with outbox.open(batch, stream) as file:
            for rows in read_batches(file):
                yield from map(Row, *(rows.column(name).to_pylist() for name in Row._fields))
    except CheckpointError:
        if outbox.manifest(batch) is not None:
            raise
