# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in HDFS: a NameNode that does not answer, and the tests of checkpoints in stores, run in HDFS."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from hdfs_server import Hdfs

from statefun.runtime.checkpoint import hdfs
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.store_errors import StoreError
from statefun.sdk.errors import ConfigurationError

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TESTS = Path(__file__).parents[1]
APPLICATION = "test_checkpoints_in_stores.py::test_an_application_goes_on_in_a_store[exactly-once]"
LIMIT = timedelta(seconds=1)


@pytest.mark.long(minutes=2.2)
def test_the_tests_of_stores_pass_in_hdfs(hdfs_server: Hdfs) -> None:
    """Files, the lease, locks, the outbox, rescaling, and an application with exactly-once records over restarts."""
    command = [sys.executable, "-m", "pytest", "-q", "--store=hdfs", "-p", "no:cacheprovider"]
    places = [TESTS / "runtime" / "checkpoint", TESTS / "runtime" / APPLICATION]

    done = subprocess.run(
        [*command, f"--hdfs-port={hdfs_server.port}", *map(str, places)],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 20


def test_a_name_node_that_does_not_answer_is_one_sentence(
    hdfs_server: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that was given up does not happen later: then another driver may own the checkpoint."""
    folder = hdfs_server.folder(tmp_path.name)
    folder.write("a", b"old")
    monkeypatch.setattr(hdfs, "_STEP_TIME", LIMIT)

    with (
        stopped(hdfs_server),
        pytest.raises(StoreError, match=r"hdfs://\S+ has failed \(no answer"),
    ):
        folder.write("a", b"late")
    with stopped(hdfs_server), pytest.raises(StoreError):
        folder.read("a")

    monkeypatch.undo()
    time.sleep(2 * LIMIT.total_seconds())
    assert folder.read("a") == b"old"


def test_a_file_of_a_folder_is_no_folder(hdfs_server: Hdfs, tmp_path: Path) -> None:
    """Names with special characters are as they are; facts are those of files."""
    folder = hdfs_server.folder(f"{tmp_path.name}/a b%20ü#")
    folder.child("inner").write("x", b"123")
    folder.write("empty", b"")

    assert folder.names() == ["empty", "inner"]
    assert [*folder.files()] == ["empty"]
    assert (folder.facts("inner"), folder.has("inner"), folder.has("x")) == (None, True, False)
    assert folder.read("empty") == b""
    with folder.child("inner").open("x") as file:
        assert (file.seek(1), file.read(), file.tell()) == (1, b"23", 3)
    with pytest.raises(FileNotFoundError):
        folder.move("missing", "inner/y")
    with pytest.raises(FileNotFoundError):
        folder.open("missing")


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("hdfs://host:8020/a?user=ada", "has no options"),
        ("hdfs://nowhere/a", r"has the form hdfs://HOST:PORT/PATH"),
        ("hdfs://ada:secret@host:8020/a", "must not have a password"),
    ],
)
def test_locations_that_cannot_be_used(location: str, problem: str) -> None:
    """The error says what is wrong, before any request."""
    with pytest.raises(ConfigurationError, match=problem) as refused:
        Folder.at(location)

    assert "secret" not in str(refused.value).replace("secret.key", "")


def test_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without hdfs-native, the error has the command that installs it."""
    monkeypatch.setitem(sys.modules, "hdfs_native", None)

    with pytest.raises(ConfigurationError, match=r"pip install 'statefun\[hdfs\]'"):
        Folder.at("hdfs://another:8020/a")


@contextmanager
def stopped(server: Hdfs) -> Iterator[None]:
    """Stop the process of the NameNode during the block."""
    assert server.name_node is not None
    os.kill(server.name_node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.name_node.pid, signal.SIGCONT)
