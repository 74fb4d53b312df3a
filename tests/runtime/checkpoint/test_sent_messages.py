# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.runtime.checkpoint import sent_messages
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.sent_messages import SentMessages, put_message, undelivered_sent
from statefun.sdk.errors import CheckpointError, ConfigurationError

STEPS = st.lists(st.sampled_from(["put", "put", "accept", "batch", "crash", "repeat"]), max_size=30)


class Driver:
    """A driver that plans, commits and repeats micro-batches."""

    def __init__(self, checkpoint: Folder) -> None:
        self.checkpoint = checkpoint
        self.planned = self.committed = 0
        self.delivered: list[bytes] = []
        self.inbox = SentMessages(checkpoint, 0)

    def batch(self, *, crashes: bool = False) -> None:
        """Plan a micro-batch, unless one is planned; commit it, unless the driver crashes before."""
        if self.planned == self.committed:
            self.inbox.forget(self.committed)
            self.planned = self.inbox.readable(self.committed, is_busy=False)
        messages = self.inbox.messages(self.committed, self.planned)
        assert [each.number for each in messages] == [*range(self.committed + 1, self.planned + 1)]
        if crashes:
            self.inbox = SentMessages(self.checkpoint, self.planned)
            return
        self.delivered += [each.value for each in messages]
        self.committed = self.planned


@given(STEPS)
def test_each_message_is_delivered_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """Whenever the driver crashes, and whenever messages are put; those that are not delivered yet can be listed."""
    driver = Driver(Folder.at(tmp_path_factory.mktemp("sent")))
    put: list[bytes] = []
    for step in steps:
        match step:
            case "put":
                put.append(b"%d" % len(put))
                put_message(driver.checkpoint, b"Ada\0t/f", "t/T", put[-1])
            case "crash":
                driver.inbox = SentMessages(driver.checkpoint, driver.planned)
            case "accept":  # the driver crashes before the plan is written
                driver.inbox.readable(driver.planned, is_busy=False)
                driver.inbox = SentMessages(driver.checkpoint, driver.planned)
            case "repeat":
                driver.batch(crashes=True)
            case "batch":
                driver.batch()
        found = undelivered_sent(driver.checkpoint, driver.committed)
        assert [message.value for message in found] == put[len(driver.delivered) :]
    driver.batch()
    driver.batch()

    assert driver.delivered == put
    driver.inbox.forget(driver.committed)
    assert driver.checkpoint.child("sent").names() in ([], ["accepted"])
    assert driver.checkpoint.child("sent/accepted").names() == []
    assert not driver.inbox.is_pending()


def test_a_micro_batch_reads_a_limited_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others come in the next ones."""
    monkeypatch.setattr(sent_messages, "_READ_AT_ONCE", 2)
    checkpoint = Folder.at(tmp_path)
    for number in range(5):
        put_message(checkpoint, b"Ada\0t/f", "t/T", b"%d" % number)
    inbox = SentMessages(checkpoint, 0)

    read = [0]
    while read[-1] < 5:
        read.append(inbox.readable(read[-1], is_busy=True))

    assert read == [0, 2, 4, 5]


def test_a_damaged_message_is_named(tmp_path: Path) -> None:
    """It is not skipped."""
    put_message(Folder.at(tmp_path), b"Ada\0t/f", "t/T", b"1")
    (file,) = (tmp_path / "sent").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    inbox = SentMessages(Folder.at(tmp_path), 0)

    last = inbox.readable(0, is_busy=False)

    with pytest.raises(CheckpointError, match=r"sent/accepted/1 is damaged"):
        inbox.messages(0, last)


def test_a_checkpoint_elsewhere_takes_no_messages() -> None:
    """A driver would have to list a folder of an object store again and again."""
    with pytest.raises(ConfigurationError, match="send a record to an ingress"):
        put_message(Folder("s3://bucket/checkpoint"), b"Ada\0t/f", "t/T", b"1")
