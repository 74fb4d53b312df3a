# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

from statefun.protocol.runtime_pb2 import Manifest, Outcome
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.ingress.holding import WAITING, WaitingGauge
from statefun.runtime.preflight.dropping import drop_unfinished


def test_a_batch_that_was_staged_and_not_committed_leaves_nothing(tmp_path: Path) -> None:
    """Neither its plan, nor its effects, nor the bytes that it has counted as waiting: they are counted again."""
    folder = Folder.at(tmp_path)
    IngressOrder([]).write(folder)
    gauge = WaitingGauge(folder)
    for batch in (0, 1):
        folder.child("offsets").write(f"{batch}", b'v1\n{"conf":{}}\n{"batch":-1,"tick":-1}')
        Outbox(folder).stage(Manifest(batch=batch))
        gauge.add(batch, [Outcome(waiting_bytes={"t.fns/f": 100})])
    folder.child("commits").write("0", b"v2\n{}")

    drop_unfinished(folder)
    once = folder.sizes()
    drop_unfinished(folder)

    assert CommitLog(folder).planned() == 0
    assert Outbox(folder).batches() == [0]
    assert (
        json.loads(read_framed(folder, WAITING)).items()
        >= {"batch": 0, "after": {"t.fns/f": 100}}.items()
    )
    assert folder.sizes() == once
