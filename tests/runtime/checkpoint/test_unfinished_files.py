# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.unfinished_files import remove_unfinished_files

_KILLED_WRITER = """
import os, signal, sys
from statefun.runtime.checkpoint import local_files
from statefun.runtime.checkpoint.folder import Folder
local_files.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
Folder.at(sys.argv[1]).write(sys.argv[2], b"half")
"""


def test_files_of_killed_writers_are_deleted(tmp_path: Path) -> None:
    """Once they are a day old: a command may write into the checkpoint now. All other files stay."""
    written = [
        "paused.json",
        "runs/2026",
        "connectors/test/in/first.json",
        "traces/7",
        "sent/accepted/3",
    ]
    folder = Folder.at(tmp_path)
    for path in written:
        folder.write(path, b"whole")
        writer = subprocess.run([sys.executable, "-c", _KILLED_WRITER, tmp_path, path], check=False)
        assert writer.returncode == -signal.SIGKILL
    old = {path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")}
    assert len(old) == len(written)
    long_ago = time.time() - 25 * 3600
    for each in (*old, tmp_path / "runs/2026"):
        os.utime(each, (long_ago, long_ago))
    young = tmp_path / f".order.json.{'0' * 32}.tmp"
    of_spark = tmp_path / ".metadata.tmp"
    for unfinished in (young, of_spark):
        unfinished.write_bytes(b"half")
    os.utime(of_spark, (long_ago, long_ago))

    remove_unfinished_files(folder)

    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {*written, young.name, of_spark.name}


def test_a_new_checkpoint_has_no_unfinished_files(tmp_path: Path) -> None:
    """Its folders need not exist."""
    remove_unfinished_files(Folder.at(tmp_path / "new"))
