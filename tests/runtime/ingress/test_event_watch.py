# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

from statefun.engine.clock import SystemClock
from statefun.engine.watermark import EventProgress, Partition
from statefun.module.loader import parse_module
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.ingress.event_watch import EventWatch

MODULE = """
kind: io.statefun.kafka.v1/ingress
spec:
  id: t/in
  address: 127.0.0.1:1
  startupPosition: {type: earliest}
  eventTime: {outOfOrder: 1s}
  topics: [{topic: events, valueType: t/event, targets: [t/f]}]
"""


def test_a_bounded_run_with_records_left_to_read_is_not_over(tmp_path: Path) -> None:
    """The watermark rises to the next timer once a micro-batch that was allowed to read has found no records."""
    folder, leaves_unread = Folder.at(tmp_path), [True]
    watch = EventWatch(
        folder,
        parse_module(MODULE).ingresses,
        SystemClock(),
        is_final=True,
        leaves_unread=lambda: leaves_unread[0],
    )
    watch.bound()
    before = EventProgress(newest={Partition("t/in", "events", 0): 10_000})

    def progress(batch: int, read: int) -> tuple[int | None, bool]:
        """Commit a batch; return the watermark of the next one, and whether it is made only to find the end."""
        folder.child("offsets").write(
            str(batch), f"v1\n{{}}\n{json.dumps({'events': {'0': read}})}".encode()
        )
        folder.child("commits").write(str(batch), b"v1\n{}")
        return watch.progress(before, (), batch, 50_000).watermark, watch.ends_soon

    try:
        assert [progress(batch, 5) for batch in range(3)] == [(9000, False)] * 3
        leaves_unread[0] = False  # batch 3 reads again, and batch 2 has not read
        assert progress(3, 5) == (9000, True)
        assert progress(4, 7) == (9000, True)
        assert progress(5, 7) == (50_000, False)
    finally:
        watch.stop()
