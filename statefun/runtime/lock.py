# SPDX-License-Identifier: Apache-2.0
"""One driver per checkpoint: Spark notices a second one only after both ran the same batch."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from statefun.runtime.filesystem import Folder
from statefun.sdk.errors import CheckpointError

logger = logging.getLogger("statefun")

_NAME = "driver.lock"
# A driver whose JVM was killed needs a moment to notice and go.
_GRACE = timedelta(seconds=10)
_SILENCE = timedelta(seconds=1)
"""After which a word is said about the wait."""


@contextmanager
def checkpoint_lock(checkpoint: Folder, patience: timedelta = _GRACE) -> Iterator[None]:
    """Hold a local checkpoint for this process; its end releases it, however it comes.

    File systems other than the local one have no such lock; who starts drivers there has to see
    to it that there is one.

    Raises:
        CheckpointError: if another process still holds it after ``patience``.
    """
    if not checkpoint.is_local:
        yield
        return
    folder = Path(checkpoint.location)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _NAME).open("a+")
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder} cannot be written: {error}") from error
    with file:
        began = time.monotonic()
        deadline = began + patience.total_seconds()
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    file.seek(0)
                    raise CheckpointError(
                        f"checkpoint {folder} is in use by process {file.read().strip()}; stop "
                        "that one, or give this one a checkpoint of its own"
                    ) from None
                if not told and time.monotonic() > began + _SILENCE.total_seconds():
                    told = True
                    file.seek(0)
                    logger.info(
                        "checkpoint %s is in use by process %s; waiting up to %g s for it to end",
                        folder,
                        file.read().strip(),
                        patience.total_seconds(),
                    )
                time.sleep(0.1)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
