# SPDX-License-Identifier: Apache-2.0
"""The locks that let only one driver use a checkpoint; a checkpoint in a store has a lease instead.

Spark notices a second driver only after both drivers have run the same batch. A driver is two processes,
the Python process and the JVM in which Spark runs. Either process may outlive the other, so each has its
own lock.
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
from functools import partial
from pathlib import Path
from typing import IO, Any

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lease import LeaseTimes, epoch_began, held_lease
from statefun.sdk.errors import CheckpointError, ConfigurationError

logger = logging.getLogger("statefun")

_NAME = "driver.lock"
JVM_LOCK = "jvm.lock"
"""The file on which the JVM of a local checkpoint's driver has a lock."""
_UNLOCKED = "unlocked"
"""The name of a file that exists while a run uses the checkpoint without a lock; a killed run leaves it."""
# A program whose JVM was killed needs a moment to notice it and end; so does a JVM whose program ended.
_GRACE = timedelta(seconds=10)
_SILENT_WAIT = timedelta(seconds=1)
"""How long a process waits for a lock before it logs that it waits."""
_PAUSE = timedelta(milliseconds=100)
_TIMES = LeaseTimes()


def can_lock(checkpoint: Folder) -> bool:
    """Return whether :func:`checkpoint_lock` can lock a checkpoint of this kind."""
    return checkpoint.is_local or checkpoint.is_store


def create_privately(checkpoint: Folder, noun: str = "checkpoint") -> None:
    """Create the folder of a local checkpoint, or of its copy, so that only this user can read and write it.

    Its content is as secret as the records, and is trusted: Spark may unpickle stored state. A folder that
    exists already keeps its access rights.

    Args:
        checkpoint: the folder.
        noun: what it is, for errors.

    Raises:
        CheckpointError: if the folder cannot be created.
    """
    if not checkpoint.is_local:
        return
    try:
        Path(checkpoint.location).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"{noun} {checkpoint.shown} cannot be written: {error}") from error


@contextmanager
def checkpoint_lock(
    checkpoint: Folder, patience: timedelta = _GRACE, times: LeaseTimes = _TIMES
) -> Iterator[Folder]:
    """Lock a checkpoint for this process: a local one by locks on files, one in a store by a lease.

    Locks on files end with the process, however it ends; while this process has them, no JVM of an earlier driver can
    commit a batch. A lease of a process that was killed lapses after ``times.lapse``.

    Yields:
        The checkpoint, which refuses changes if this process has lost its lease.

    Raises:
        ConfigurationError: if the checkpoint is on a file system without locks and leases.
        CheckpointError: if another process still holds the lock after ``patience``.
    """
    if checkpoint.is_store:
        with held_lease(checkpoint, patience, times) as guarded:
            yield guarded
        return
    if not checkpoint.is_local:
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown} is neither on a local file system, in an S3-compatible store nor in HDFS, and only "
            "there a lock keeps a second driver from using it. If two drivers run at the same time, each may "
            "lose or repeat effects of the other one. Set spark.statefun.checkpoint-lock=none if "
            "another system ensures that there is only one driver"
        )
    create_privately(checkpoint)
    folder = Path(checkpoint.location)
    with _opened(folder / _NAME) as file:

        def holder() -> str:
            file.seek(0)
            return f"process {file.read().strip()}"

        if not _take_with_message(folder, partial(_try, fcntl.flock, file), holder, patience):
            raise CheckpointError(
                f"checkpoint {folder} is in use by {holder()}; stop that process, or give this application "
                "another checkpoint"
            )
        # At once, also because the time of the change shows which orders are for this run.
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        with _opened(folder / JVM_LOCK) as jvm_file:
            # The same kind of lock as Java's. This process releases it at once: its own JVM takes it later.
            take = partial(_try, fcntl.lockf, jvm_file)
            if not _take_with_message(
                folder, take, lambda: "the JVM of an earlier driver", patience
            ):
                raise _in_use_by_jvm(checkpoint)
        yield checkpoint


def is_locked(checkpoint: Folder) -> bool:
    """Return whether a process has locked a local checkpoint; this needs no right to write, and changes nothing.

    Raises:
        CheckpointError: if the locks cannot be read, or the file system has no locks.
    """
    folder, locks = Path(checkpoint.location), {_NAME: fcntl.flock, JVM_LOCK: fcntl.lockf}
    for name, lock in locks.items():
        try:
            with (folder / name).open() as file:
                # A shared lock, so that others who look at the same time do not see this one.
                if not _try(lock, file, fcntl.LOCK_SH):
                    return True
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CheckpointError(f"checkpoint {folder} cannot be read: {error}") from error
    return False


@contextmanager
def jvm_lock(jvm: Any, checkpoint: Folder, patience: timedelta = _GRACE) -> Iterator[None]:
    """Lock a local checkpoint for this driver's JVM; the lock ends with the JVM, however it ends.

    In a store this does nothing: there the first driver that commits a batch wins, and the other one ends.

    A JVM of an earlier driver may have been suspended and outlive its Python process. Without this lock,
    that JVM would still commit the batch that this driver runs again.

    Args:
        jvm: the packages of the JVM.
        checkpoint: a checkpoint that this process has locked.
        patience: how long to wait for the lock.

    Raises:
        CheckpointError: if the JVM of another driver still holds the lock after ``patience``.
    """
    if not checkpoint.is_local:
        yield
        return
    # Commands lock checkpoints without a JVM, and importing Spark takes long.
    from statefun.runtime.spark_internals.jvm import JvmError  # noqa: PLC0415 - as above

    file = jvm.java.io.RandomAccessFile(f"{checkpoint.location}/{JVM_LOCK}", "rw")
    try:
        if not _take(lambda: file.getChannel().tryLock() is not None, patience):
            raise _in_use_by_jvm(checkpoint)
        yield
    finally:
        with contextlib.suppress(JvmError, OSError):  # the JVM has ended, and so has its lock
            file.close()


@contextmanager
def unlocked(checkpoint: Folder) -> Iterator[Folder]:
    """Mark a checkpoint with a file while a run uses it without a lock; :func:`shows_runs` reads it.

    The file does not show that the run still goes on: if a run is killed, its file stays.
    """
    if not can_lock(checkpoint):
        yield checkpoint
        return
    checkpoint.write(_UNLOCKED, b"")
    try:
        yield checkpoint
    finally:
        checkpoint.remove(_UNLOCKED)


def begun_at(checkpoint: Folder) -> int:
    """Return when the newest run has begun to use a checkpoint, in nanoseconds since the epoch; 0 if that is not known.

    The time is one of the checkpoint's storage, as those of its files are.
    """
    if not can_lock(checkpoint):
        return 0
    unlocked_run, run = checkpoint.facts(_UNLOCKED), 0
    if checkpoint.is_store:
        run = epoch_began(checkpoint)
    elif (facts := checkpoint.facts(_NAME)) is not None:
        run = facts.modified
    return run if unlocked_run is None else max(run, unlocked_run.modified)


def shows_runs(checkpoint: Folder) -> bool:
    """Return whether locks show every run that uses a checkpoint.

    They do not if the checkpoint can have no lock, or if a run without a lock has used it.
    """
    return can_lock(checkpoint) and not checkpoint.has(_UNLOCKED)


def _in_use_by_jvm(checkpoint: Folder) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {checkpoint.shown} is in use by Spark's JVM of an earlier driver, "
        f"whose program has ended; stop that JVM (fuser {checkpoint.shown}/{JVM_LOCK} names "
        "the process)"
    )


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("a+")
    except OSError as error:
        raise CheckpointError(f"checkpoint {path.parent} cannot be written: {error}") from error


def _try(lock: Callable[[IO[str], int], None], file: IO[str], kind: int = fcntl.LOCK_EX) -> bool:
    """Try to lock ``file`` for this process without waiting; return whether this process has the lock now.

    Raises:
        CheckpointError: if the file system has no such locks.
    """
    try:
        lock(file, kind | fcntl.LOCK_NB)
    except (
        BlockingIOError,
        PermissionError,
    ):  # the error for a lock that is held depends on the system
        return False
    except OSError as error:
        raise CheckpointError(
            f"{file.name} cannot be locked: {error}; put the checkpoint on another file "
            "system, or set spark.statefun.checkpoint-lock=none if another system ensures "
            "that there is only one driver"
        ) from error
    return True


def _take_with_message(
    folder: Path, lock: Callable[[], bool], holder: Callable[[], str], patience: timedelta
) -> bool:
    """Try to take a lock for up to ``patience``; log which process has it; return whether it was taken."""
    if _take(lock, min(_SILENT_WAIT, patience)):
        return True
    if patience <= _SILENT_WAIT:
        return False
    logger.info(
        "checkpoint %s is in use by %s; waiting up to %g s for that process to end",
        folder,
        holder(),
        patience.total_seconds(),
    )
    return _take(lock, patience - _SILENT_WAIT)


def _take(lock: Callable[[], bool], patience: timedelta) -> bool:
    """Try to take a lock for up to ``patience``; return whether it was taken."""
    deadline = time.monotonic() + patience.total_seconds()
    while not lock():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE.total_seconds())
    return True
