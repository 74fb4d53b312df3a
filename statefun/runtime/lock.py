# SPDX-License-Identifier: Apache-2.0
"""One driver per checkpoint: Spark notices a second one only after both ran the same batch.

A driver is two processes, the program and the JVM in which Spark runs, and either may outlive the
other: each has a lock of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from statefun.runtime.filesystem import Folder
from statefun.sdk.errors import CheckpointError, ConfigurationError

logger = logging.getLogger("statefun")

_NAME = "driver.lock"
_JVM_NAME = "jvm.lock"
# A driver whose JVM was killed needs a moment to notice and go, and the other way round.
_GRACE = timedelta(seconds=10)
_SILENCE = timedelta(seconds=1)
"""After which a word is said about the wait."""
_PAUSE = timedelta(milliseconds=100)


def create_privately(checkpoint: Folder) -> None:
    """Create a local checkpoint that only this user can read and write.

    What it holds is as secret as the records are, and it is trusted: Spark may unpickle stored
    state. A folder that is there already keeps the rights that it has.

    Raises:
        CheckpointError: if it cannot be created.
    """
    if not checkpoint.is_local:
        return
    try:
        Path(checkpoint.location).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {checkpoint.location} cannot be written: {error}"
        ) from error


@contextmanager
def checkpoint_lock(checkpoint: Folder, patience: timedelta = _GRACE) -> Iterator[None]:
    """Hold a local checkpoint for this process; its end releases it, however it comes.

    Raises:
        ConfigurationError: if the checkpoint is on a file system that has no such lock.
        CheckpointError: if another process still holds it after ``patience``.
    """
    if not checkpoint.is_local:
        raise ConfigurationError(
            f"checkpoint {checkpoint.location} is not on a local file system, and only there a "
            "second driver can be kept off it; of two that run at the same time, either may lose "
            "and repeat what the other one has done. Set spark.statefun.checkpoint-lock=none if "
            "something else sees to it that there is only one"
        )
    create_privately(checkpoint)
    folder = Path(checkpoint.location)
    try:
        file = (folder / _NAME).open("a+")
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder} cannot be written: {error}") from error

    def take() -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    with file:
        try:
            is_free = _taken(take, min(_SILENCE, patience))
        except OSError as error:
            raise CheckpointError(
                f"{folder / _NAME} cannot be locked: {error}; put the checkpoint on another file "
                "system, or set spark.statefun.checkpoint-lock=none if something else sees to it "
                "that there is only one driver"
            ) from error
        if not is_free:
            file.seek(0)
            holder = file.read().strip()
            logger.info(
                "checkpoint %s is in use by process %s; waiting up to %g s for it to end",
                folder,
                holder,
                patience.total_seconds(),
            )
            if not _taken(take, patience - _SILENCE):
                raise CheckpointError(
                    f"checkpoint {folder} is in use by process {holder}; stop that one, or give "
                    "this one a checkpoint of its own"
                )
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def jvm_lock(jvm: Any, checkpoint: Folder, patience: timedelta = _GRACE) -> Iterator[None]:
    """Hold a local checkpoint for the JVM of this driver; its end releases it, however it comes.

    A JVM that was held up may live longer than its program, and would still commit the batch that
    this one runs again.

    Args:
        jvm: as py4j shows it.
        checkpoint: one that this process holds.
        patience: how long to wait.

    Raises:
        CheckpointError: if the JVM of another driver still holds it after ``patience``.
    """
    file = jvm.java.io.RandomAccessFile(f"{checkpoint.location}/{_JVM_NAME}", "rw")
    try:
        if not _taken(lambda: file.getChannel().tryLock() is not None, patience):
            raise _in_use_by_jvm(checkpoint)
        yield
    finally:
        with contextlib.suppress(Py4JError, OSError):  # the JVM has ended, and so has its lock
            file.close()


@contextmanager
def jvm_kept_off(checkpoint: Folder) -> Iterator[None]:
    """Keep JVMs off a local checkpoint, for a program that has none.

    Args:
        checkpoint: one that this process holds.

    Raises:
        CheckpointError: if the JVM of a driver holds it.
    """
    with Path(checkpoint.location, _JVM_NAME).open("a+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kind that Java takes
        except BlockingIOError:
            raise _in_use_by_jvm(checkpoint) from None
        yield


def _in_use_by_jvm(checkpoint: Folder) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {checkpoint.location} is in use by Spark's JVM of an earlier driver, "
        f"whose program has ended; stop it (fuser {checkpoint.location}/{_JVM_NAME} names "
        "the process)"
    )


def _taken(take: Callable[[], bool], patience: timedelta) -> bool:
    """Try to take a lock until it is taken, or for so long."""
    deadline = time.monotonic() + patience.total_seconds()
    while not take():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE.total_seconds())
    return True
