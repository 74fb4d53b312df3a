# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from harness import KafkaHarness, run
from pyspark import SparkContext

from statefun import StatefulFunctions
from statefun.engine.clock import SystemClock
from statefun.module.loader import parse_module
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import (
    begun_at,
    checkpoint_lock,
    is_locked,
    jvm_lock,
    shows_runs,
)
from statefun.sdk.errors import CheckpointError, ConfigurationError

AT_ONCE = timedelta(0)
LONG = timedelta(minutes=2)

HOLDER = """\
import sys
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import checkpoint_lock, jvm_lock

with checkpoint_lock(Folder.at(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


JVM = """\
import fcntl
import sys

with open(sys.argv[1], "a+") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("held", flush=True)
    sys.stdin.readline()
"""
"""Takes the same kind of lock as Java does."""


@contextmanager
def holder(checkpoint: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold the lock until it reads a line, or its input ends."""
    with process_that(HOLDER, checkpoint) as process:
        yield process


@contextmanager
def process_that(program: str, argument: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program that holds a lock until it reads a line, or its input ends."""
    command = [sys.executable, "-c", program, str(argument)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_second_process_is_refused(checkpoint: Path) -> None:
    """The error names the checkpoint and the process that holds it, and what to do."""
    with (
        holder(checkpoint) as process,
        pytest.raises(CheckpointError) as caught,
        checkpoint_lock(Folder.at(checkpoint), patience=AT_ONCE),
    ):
        pytest.fail("two processes hold the lock")

    assert caught.value.message == (
        f"checkpoint {checkpoint} is in use by process {process.pid}; stop that process, or give "
        "this application another checkpoint"
    )


def test_a_look_at_the_lock_sees_its_holder_and_changes_nothing(checkpoint: Path) -> None:
    """The holder may be a program, or a JVM that has outlived one; a file without the right to write shows it, too."""
    folder, files = Folder.at(checkpoint), (checkpoint / "driver.lock", checkpoint / "jvm.lock")
    assert not is_locked(folder)
    assert not checkpoint.exists()
    with holder(checkpoint):
        begun = begun_at(folder)
        for file in files:
            file.chmod(0o444)

        assert is_locked(folder)
    files[1].chmod(0o644)
    with process_that(JVM, files[1]):
        assert is_locked(folder)
    assert not is_locked(folder)
    assert begun_at(folder) == begun > 0


def test_a_lock_that_cannot_be_read_is_an_error(checkpoint: Path) -> None:
    """It does not look like one that is held."""
    (checkpoint / "driver.lock").mkdir(parents=True)

    with pytest.raises(CheckpointError, match=r"cannot be read: \[Errno 21\]"):
        is_locked(Folder.at(checkpoint))


def test_a_killed_holder_lets_go(checkpoint: Path) -> None:
    """No stale lock is left behind by a process that had no chance to clean up."""
    with holder(checkpoint) as process:
        process.kill()
        process.wait()

    with checkpoint_lock(Folder.at(checkpoint), patience=AT_ONCE):
        owner = (checkpoint / "driver.lock").read_text()

    assert owner == str(os.getpid())


def test_a_holder_that_is_about_to_end_is_waited_for(checkpoint: Path) -> None:
    """A restart right after a stop gets the lock when the former driver has gone."""
    with holder(checkpoint) as process:
        assert process.stdin is not None
        process.stdin.close()

        with checkpoint_lock(Folder.at(checkpoint), patience=LONG):
            owner = (checkpoint / "driver.lock").read_text()

    assert owner == str(os.getpid())


def test_a_jvm_that_has_outlived_its_program_keeps_the_next_one_off(checkpoint: Path) -> None:
    """The wait is before any read: a later commit of the old JVM would be missed."""
    checkpoint.mkdir()
    with process_that(JVM, checkpoint / "jvm.lock") as process:
        with (
            pytest.raises(CheckpointError, match="in use by Spark's JVM of an earlier driver"),
            checkpoint_lock(Folder.at(checkpoint), patience=AT_ONCE),
        ):
            pytest.fail("the JVM may commit a batch")
        assert process.stdin is not None
        process.stdin.close()

        with (
            checkpoint_lock(Folder.at(checkpoint), patience=LONG),
            process_that(JVM, checkpoint / "jvm.lock"),
        ):
            pass  # a JVM of its own takes the lock then


def test_one_process_has_one_driver(checkpoint: Path) -> None:
    """A second application in the same process is refused in the same way."""
    folder = Folder.at(checkpoint)
    with (
        checkpoint_lock(folder),
        pytest.raises(CheckpointError, match=f"in use by process {os.getpid()};"),
        checkpoint_lock(folder, patience=AT_ONCE),
    ):
        pytest.fail("the lock is held twice")


def test_the_lock_ends_with_its_block(checkpoint: Path) -> None:
    """An error releases the lock like an ordinary end."""
    folder = Folder.at(checkpoint)

    with pytest.raises(LookupError), checkpoint_lock(folder):
        raise LookupError

    with checkpoint_lock(folder, patience=AT_ONCE), holder(checkpoint.parent / "other"):
        pass


def test_a_new_checkpoint_is_for_its_user_alone(checkpoint: Path, tmp_path: Path) -> None:
    """An existing folder keeps its rights, and so do its parents."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    above = tmp_path / "above"
    for folder in (checkpoint, shared, above / "new"):
        with checkpoint_lock(Folder.at(folder)):
            pass

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (checkpoint, shared, above / "new")]
    assert modes == [0o700, 0o750, 0o700]
    assert stat.S_IMODE(above.stat().st_mode) & 0o055 == 0o055 & ~umask()


def umask() -> int:
    """Return the umask of this process."""
    current = os.umask(0o077)
    os.umask(current)
    return current


def test_the_name_of_a_former_holder_is_replaced(checkpoint: Path) -> None:
    """The process in the message is the holder alone, however long the former number was."""
    checkpoint.mkdir()
    (checkpoint / "driver.lock").write_text("123456789012345")

    with checkpoint_lock(Folder.at(checkpoint)):
        owner = (checkpoint / "driver.lock").read_text()

    assert owner == str(os.getpid())


def test_a_checkpoint_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The error names the checkpoint and the system's reason."""
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "checkpoint"

    with (
        pytest.raises(CheckpointError) as caught,
        checkpoint_lock(Folder.at(folder), patience=AT_ONCE),
    ):
        pytest.fail("a file was taken for a folder")

    assert caught.value.message.startswith(f"checkpoint {folder} cannot be written: [Errno 20] ")


@pytest.mark.spark
def test_a_jvm_that_has_outlived_its_program_is_noticed(checkpoint: Path) -> None:
    """It could still commit; the error says how to find it, and the next driver starts when it has ended."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - starts a JVM
    jvm, folder = SparkContext._jvm, Folder.at(checkpoint)  # noqa: SLF001 - the way to it
    file = checkpoint / "jvm.lock"
    checkpoint.mkdir()
    with process_that(JVM, file) as process:
        with (
            pytest.raises(CheckpointError) as caught,
            jvm_lock(jvm, folder, patience=AT_ONCE),
        ):
            pytest.fail("two drivers hold the lock")
        assert process.stdin is not None
        process.stdin.close()
        with jvm_lock(jvm, folder, patience=LONG):
            command = [sys.executable, "-c", JVM, str(file)]
            other = subprocess.run(command, capture_output=True, check=False)
    with process_that(JVM, file):
        pass

    assert caught.value.message == (
        f"checkpoint {checkpoint} is in use by Spark's JVM of an earlier driver, whose program has "
        f"ended; stop that JVM (fuser {checkpoint}/jvm.lock names the process)"
    )
    assert b"BlockingIOError" in other.stderr


def test_other_file_systems_are_refused() -> None:
    """They have no lock; the error explains the risk and names the setting."""
    with (
        pytest.raises(ConfigurationError) as caught,
        checkpoint_lock(Folder.at("mock://bucket/checkpoint")),
    ):
        pytest.fail("two drivers could run")

    assert caught.value.message == (
        "checkpoint mock://bucket/checkpoint is neither on a local file system, in an S3-compatible store nor in "
        "HDFS, and only there a lock keeps a second driver from using it. If two drivers run at the same time, each may lose "
        "or repeat effects of the other one. Set spark.statefun.checkpoint-lock=none if another system "
        "ensures that there is only one driver"
    )


@pytest.mark.broker
@pytest.mark.spark
def test_the_lock_can_be_switched_off(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Then there are no lock files, and tools know that such a run may go on."""
    module = parse_module(kafka.module({kafka.topic("users"): ["test.fns/any"]}))
    functions = StatefulFunctions()
    functions.register("test.fns/any", lambda ctx, message: None)
    shown: list[bool] = []

    class Watching(SystemClock):
        """A clock that looks at the checkpoint."""

        def now(self) -> int:
            shown.append(shows_runs(Folder.at(checkpoint)))
            return super().now()

    with pytest.raises(ConfigurationError, match=r"checkpoint-lock=none if another system"):
        run(module, functions, "mock://bucket/checkpoint")
    run(module, functions, checkpoint, checkpoint_lock="none", clock=Watching())
    without = [*checkpoint.glob("*.lock")]
    run(module, functions, checkpoint)

    assert without == []
    assert shown
    assert not any(shown)
    assert shows_runs(Folder.at(checkpoint))
    assert stat.S_IMODE(checkpoint.stat().st_mode) == 0o700
    assert len([*checkpoint.glob("*.lock")]) == 2
