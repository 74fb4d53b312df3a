# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

from statefun.protocol.runtime_pb2 import EffectStream, Manifest, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.release.delivery import Delivery


def commit(checkpoint: Path, batch: int, delivered: int, sent: int) -> None:
    """Write the files of a micro-batch that has delivered and sent messages."""
    folder = Folder.at(checkpoint)
    feedback = json.dumps({"batch": delivered, "tick": 0})
    folder.child("offsets").write(str(batch), f"v1\n{{}}\n-\n{feedback}".encode())
    segments = [Segment(messages=EffectStream(records=sent))]
    Outbox(folder).stage(Manifest(batch=batch, segments=segments))
    folder.child("commits").write(str(batch), b"v1\n{}")


def test_a_fresh_checkpoint_has_nothing_on_its_way(checkpoint: Path) -> None:
    """From the first micro-batch on, messages may be delivered at once."""
    assert Delivery(Folder.at(checkpoint)).delivered_before(0) == -1


def test_messages_are_settled_one_batch_after_their_delivery(checkpoint: Path) -> None:
    """The next micro-batch delivers a batch's messages; for the one after it, they are settled."""
    delivery = Delivery(Folder.at(checkpoint))
    settled = []
    for batch in range(4):
        settled.append(delivery.delivered_before(batch))
        commit(checkpoint, batch, batch - 1, 1)

    assert settled == [-1, -1, 0, 1]


def test_messages_of_an_earlier_run_come_first(checkpoint: Path) -> None:
    """Nothing is settled before they are delivered; batches without messages do not matter."""
    commit(checkpoint, 0, -1, 1)
    commit(checkpoint, 1, 0, 5)
    commit(checkpoint, 2, 1, 0)
    after_all = Delivery(Folder.at(checkpoint))
    commit(checkpoint, 3, 1, 7)
    delivery = Delivery(Folder.at(checkpoint))
    first = delivery.delivered_before(4)
    commit(checkpoint, 4, 3, 1)

    assert after_all.delivered_before(3) == 1
    assert (first, delivery.delivered_before(5)) == (None, 3)
