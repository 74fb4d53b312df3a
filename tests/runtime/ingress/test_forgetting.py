# SPDX-License-Identifier: Apache-2.0
"""What the feedback source lets inboxes delete."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from statefun.engine.clock import SystemClock
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.inbox import Inbox
from statefun.runtime.checkpoint.repair_log import REPAIRS_INBOX, Change, RepairLog
from statefun.runtime.checkpoint.sent_messages import SENT_INBOX, SentMessages, put_message
from statefun.runtime.ingress.feedback import FeedbackReader


def test_repairs_of_the_past_cost_nothing_in_a_micro_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work for a message of ``statefun send`` does not grow with the number of earlier repairs."""
    folder = Folder.at(tmp_path)
    value = AddressState.Value(name="note", typename="t/T", value=b"x")
    log, change = RepairLog(folder), Change(b"Ada\0t/f", "note", None, value)
    for _ in range(20):
        log.accept("me", datetime.now(timezone.utc), [change])
    inboxes: dict[str, Inbox] = {
        REPAIRS_INBOX: RepairLog(folder),
        SENT_INBOX: SentMessages(folder, 0),
    }
    reader = FeedbackReader(folder, SystemClock(), inboxes)

    def look(batch: int, **numbers: int) -> dict[str, Any]:
        """Plan the micro-batch after a committed one."""
        offset = {"batch": -1, "tick": -1, "inboxes": {REPAIRS_INBOX: 20, **numbers}}
        folder.child("offsets").write(str(batch), f"v1\n{{}}\n{json.dumps(offset)}".encode())
        folder.child("commits").write(str(batch), b"v1\n{}")
        return dict(reader.latest_offset(offset))

    look(0)  # the first look of the run
    reads: list[str] = []
    read = Folder.read

    def noting(place: Folder, name: str) -> bytes:
        reads.append(f"{place.location}/{name}")
        return read(place, name)

    monkeypatch.setattr(Folder, "read", noting)
    for number in range(1, 4):
        put_message(folder, change.target, "t/T", b"")
        assert look(number, **{SENT_INBOX: number - 1})["inboxes"][SENT_INBOX] == number

    assert [path for path in reads if "/repairs/" in path] == []
    assert folder.child("sent").child("accepted").names() == ["3"]
