# SPDX-License-Identifier: Apache-2.0
"""Shared code of the commands that work on a checkpoint: arguments, the checkpoint's lock, and file errors."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lease import is_renewed
from statefun.runtime.checkpoint.lock import can_lock, checkpoint_lock, is_locked, shows_runs
from statefun.sdk.errors import CheckpointError, ConfigurationError

_AT_ONCE = timedelta(0)


def add_checkpoint(command: Any) -> None:
    """Add the argument for the checkpoint to a command."""
    command.add_argument("checkpoint", help="the folder of the checkpoint, or its URI")


def add_checkpoint_or_program(command: Any) -> None:
    """Add the options for the checkpoint and the program to a command that decodes or encodes values."""
    command.add_argument(
        "--checkpoint",
        help="the folder of the checkpoint, or its URI (default: that of a program without settings)",
    )
    command.add_argument(
        "--program",
        type=Path,
        help="the application's program (.py), whose types decode and encode values; without it, only values of "
        "primitive types are decoded and encoded",
    )


def checkpoint_of(options: argparse.Namespace) -> Folder:
    """Return the checkpoint that the options name, or the default one of the program.

    Raises:
        ConfigurationError: if the options name neither.
    """
    if options.checkpoint:
        return Folder.at(options.checkpoint)
    if options.program is None:
        raise ConfigurationError(
            "give the checkpoint with --checkpoint, or a program with --program"
        )
    return Folder.at(options.program.absolute().parent / ".statefun" / options.program.stem)


def add_no_lock(command: Any) -> None:
    """Add the option ``--no-lock`` to a command that changes a checkpoint."""
    command.add_argument(
        "--no-lock",
        action="store_true",
        help="for a checkpoint that is not on a local file system, or that a run with "
        "checkpoint-lock=none has used: you make sure that no application runs with it",
    )


def positive_number(text: str) -> int:
    """Return the number in an argument, which must be a whole number of at least 1.

    Raises:
        ArgumentTypeError: if the argument is not such a number.
    """
    return _number(text, 1)


def micro_batch_number(text: str) -> int:
    """Return the number in an argument, which must be the number of a micro-batch.

    Raises:
        ArgumentTypeError: if the argument is not such a number.
    """
    return _number(text, 0)


def _number(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least {least}, not {text!r}")
    return number


@contextmanager
def usable(checkpoint: Folder) -> Iterator[None]:
    """During the block, raise errors of the file system as a CheckpointError that names the checkpoint."""
    try:
        yield
    except (CheckpointError, BrokenPipeError):
        # A store has failed, which the error names; or the reader of the output has ended.
        raise
    except OSError as error:
        raise CheckpointError(f"checkpoint {checkpoint.shown} cannot be used: {error}") from error


def check_lock(checkpoint: Folder, *, no_lock: bool, further: str = "") -> None:
    """Check that a checkpoint's lock shows whether an application runs, unless the user has given --no-lock.

    Args:
        checkpoint: the checkpoint.
        no_lock: whether the user has given ``--no-lock``, and so makes sure that no application runs.
        further: the end of the error text about a checkpoint without a lock: what else the user has to do.

    Raises:
        ConfigurationError: if the lock does not show whether an application runs, and ``no_lock`` is False.
    """
    if no_lock:
        return
    if not can_lock(checkpoint):
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown} is neither on a local file system, in an S3-compatible store nor in HDFS, and cannot be locked: "
            f"make sure that no application runs with it, then add --no-lock{further}"
        )
    if not shows_runs(checkpoint):
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown} was used by a run with checkpoint-lock=none. That run may be "
            "going on, as its end is not recorded: make sure that it has ended, and add --no-lock"
        )


def is_in_use(checkpoint: Folder) -> bool | None:
    """Return whether an application runs with a checkpoint; None if no lock shows that.

    Raises:
        CheckpointError: if the lock cannot be read.
    """
    if not shows_runs(checkpoint):
        return None
    if checkpoint.is_store:
        return is_renewed(checkpoint)  # to take the lease would end a driver that is only slow
    return is_locked(checkpoint)


def locked(checkpoint: Folder, *, has_lock: bool) -> AbstractContextManager[Folder]:
    """Return a context manager that locks a checkpoint, if ``has_lock``, so that no application can run with it.

    Entering it returns the checkpoint, which refuses changes if the lock is lost. It raises a CheckpointError if an
    application runs with the checkpoint.
    """
    return checkpoint_lock(checkpoint, _AT_ONCE) if has_lock else nullcontext(checkpoint)
