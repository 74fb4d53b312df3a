# SPDX-License-Identifier: Apache-2.0
"""The lock that lets only one command make a snapshot in a folder at a time.

Each command deletes the files that its snapshot does not have, so two of them would delete each other's.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lease import LeaseTimes, held_lease
from statefun.sdk.errors import CheckpointError, ConfigurationError

_LOCK = "snapshot.lock"


@contextmanager
def only_snapshot(target: Folder) -> Iterator[Folder]:
    """Keep other commands from making a snapshot in a folder during the block.

    The lock ends with the process, however it ends; in a store, it lapses after some time. File systems and stores that
    have neither locks nor leases do without.

    Args:
        target: the folder; a local one must exist.

    Yields:
        The folder, which refuses changes if this process has lost its lease.

    Raises:
        CheckpointError: if another command makes a snapshot in the folder.
    """
    with ExitStack() as stack:
        if target.is_store:
            try:
                target = stack.enter_context(held_lease(target, timedelta(), LeaseTimes()))
            except ConfigurationError:  # as the store replaces an object that exists
                pass
            except CheckpointError as error:
                raise CheckpointError(
                    f"no snapshot can be made in {target.shown} now, perhaps because another one is being made there "
                    f"({error.message}): wait until it has ended, or give another folder"
                ) from error
        elif target.is_local:
            file = stack.enter_context((Path(target.location) / _LOCK).open("a"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # the error depends on the system
                raise CheckpointError(
                    f"another snapshot is being made in {target.shown}: wait until it has ended, or give another folder"
                ) from None
            except OSError:  # as the file system has no locks
                pass
        yield target
