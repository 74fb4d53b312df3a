# SPDX-License-Identifier: Apache-2.0
"""When the timers of a checkpoint are due."""

from __future__ import annotations

import json
from pathlib import Path

from statefun.engine.watermark import EventProgress
from statefun.engine.wheel import PendingBuckets, bucket_for, event_bucket
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.runtime.ingress.feedback_offset import FeedbackOffset
from statefun.runtime.stored.pending_timers import pending_timers


def test_timers_that_have_come_are_left_out(tmp_path: Path) -> None:
    """Those of the clock and of event time, as far as their buckets have got their tick; the two are not mixed."""
    checkpoint, pending = Folder.at(tmp_path), PendingBuckets()
    names = (b"a", b"b")
    now, later = (sorted(event_bucket(time, time, each) for each in names) for time in (1000, 9000))
    clock = [bucket_for(time, b"a") for time in (500, 9000)]
    pending.add({*now, *later, *clock})
    TimerLog(checkpoint).add(0, pending.all(), pending)
    end = FeedbackOffset(0, tick=10, event=EventProgress(1000), opened=now[0]).encode()
    checkpoint.child("offsets").write("0", f"v1\n{{}}\n{json.dumps(end)}".encode())
    checkpoint.child("commits").write("0", b"v1\n{}")

    assert pending_timers(checkpoint) == {(1000, True): 2, (9000, True): 2, (9000, False): 1}
