# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of some files, as an application leaves them, for tests of commands that only copy or read them."""

from __future__ import annotations

from pathlib import Path

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import IngressOrder


def small_checkpoint(place: Path, offset: int = 10) -> Folder:
    """Return a checkpoint with a committed micro-batch and its states, which has read one topic up to an offset."""
    folder = Folder.at(place)
    IngressOrder(["t/in"]).write(folder)
    folder.write("metadata", b'{"id":"query"}')
    write_batch(folder, 0, offset)
    return folder


def write_batch(folder: Folder, batch: int, offset: int = 10) -> None:
    """Write the files of one more batch, which has read the topic up to an offset."""
    ends = f'{{"users":{{"0":{offset}}}}}'
    content = f'v1\n{{}}\n{ends}\n{{"batch":-1,"tick":-1}}'
    folder.child("offsets").write(str(batch), content.encode())
    folder.child("state").child("0").child("0").write(f"{batch + 1}_3f1b.changelog", b"changes")
    folder.child("commits").write(str(batch), b"v1\n{}")
