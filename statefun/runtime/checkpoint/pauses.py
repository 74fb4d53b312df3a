# SPDX-License-Identifier: Apache-2.0
"""The file ``paused.json`` of a checkpoint: the parts that a person has paused, also for later runs.

A command writes the file, and a running application reads it again and again: so people can pause and resume without a
port, also while the application does not run. A process locks the file while it changes it, so that of two changes at the
same moment none is lost; in a store, which has no locks, the later one of two changes wins.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum

import attrs

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

PAUSED_FILE = "paused.json"
_in_process = threading.Lock()
"""Lets one thread of this process at a time change a file."""


class Pausable(Enum):
    """The kinds of parts of an application that can be paused."""

    APPLICATION = "application"
    INGRESS = "ingress"
    EGRESS = "egress"


@attrs.frozen
class Parts:
    """The parts that an application had at its last start, by their ids."""

    ingresses: frozenset[str] = frozenset()
    egresses: frozenset[str] = frozenset()


@attrs.frozen
class Paused:
    """The parts of an application that are paused."""

    application: bool = False
    """Whether the application begins no micro-batch; records of committed micro-batches are published anyway."""
    ingresses: frozenset[str] = frozenset()
    """The ids of the ingresses of which no record is read."""
    egresses: frozenset[str] = frozenset()
    """The ids of the egresses to which no record is published."""

    def has(self, part: Pausable, name: str = "") -> bool:
        """Return whether a part is paused; the name is empty for the whole application.

        >>> Paused(egresses=frozenset({"t/out"})).has(Pausable.EGRESS, "t/out")
        True
        """
        return self.application if part is Pausable.APPLICATION else name in self._names(part)

    def changed(self, part: Pausable, name: str, *, is_paused: bool) -> Paused:
        """Return a copy in which one part is paused or resumed.

        >>> Paused().changed(Pausable.APPLICATION, "", is_paused=True)
        Paused(application=True, ingresses=frozenset(), egresses=frozenset())
        """
        if part is Pausable.APPLICATION:
            return attrs.evolve(self, application=is_paused)
        names = self._names(part)
        names = names | {name} if is_paused else names - {name}
        if part is Pausable.INGRESS:
            return attrs.evolve(self, ingresses=names)
        return attrs.evolve(self, egresses=names)

    def parts(self) -> list[str]:
        """Return the paused parts for logs and errors.

        >>> Paused(ingresses=frozenset({"t/in"}), egresses=frozenset({"t/out"})).parts()
        ['ingress t/in', 'egress t/out']
        """
        return [
            *(["the application"] if self.application else []),
            *(f"ingress {name}" for name in sorted(self.ingresses)),
            *(f"egress {name}" for name in sorted(self.egresses)),
        ]

    def _names(self, part: Pausable) -> frozenset[str]:
        return self.ingresses if part is Pausable.INGRESS else self.egresses


def read_paused(checkpoint: Folder) -> tuple[Parts, Paused] | None:
    """Return the parts of a checkpoint's application, and which of them are paused; None before its first start.

    Raises:
        CheckpointError: if the file is damaged.
    """
    # The process that wrote it may have ended before it was on the disk.
    checkpoint.sync(PAUSED_FILE)
    try:
        content = json.loads(read_framed(checkpoint, PAUSED_FILE))
        parts, paused = content["parts"], content["paused"]
        return (
            Parts(frozenset(parts["ingresses"]), frozenset(parts["egresses"])),
            Paused(
                bool(paused["application"]),
                frozenset(paused["ingresses"]),
                frozenset(paused["egresses"]),
            ),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(checkpoint, PAUSED_FILE, error) from error


def write_paused(checkpoint: Folder, parts: Parts, paused: Paused) -> None:
    """Write the paused parts to the disk; when this function returns, they outlive a loss of power."""
    content = {
        "parts": {"ingresses": sorted(parts.ingresses), "egresses": sorted(parts.egresses)},
        "paused": {
            "application": paused.application,
            "ingresses": sorted(paused.ingresses),
            "egresses": sorted(paused.egresses),
        },
    }
    write_framed(checkpoint, PAUSED_FILE, json.dumps(content).encode())


def change_paused(checkpoint: Folder, part: Pausable, name: str, *, is_paused: bool) -> bool:
    """Pause or resume one part of an application; return whether that has changed anything.

    Raises:
        CheckpointError: if the file is damaged.
    """
    with _changing(checkpoint):
        parts, paused = read_paused(checkpoint) or (Parts(), Paused())
        changed = paused.changed(part, name, is_paused=is_paused)
        if changed != paused:
            write_paused(checkpoint, parts, changed)
        return changed != paused


def rename_paused(checkpoint: Folder, former: str, name: str) -> None:
    """If an ingress that gets another id is paused, pause it under the new id."""
    with _changing(checkpoint):
        parts, paused = read_paused(checkpoint) or (Parts(), Paused())
        if paused.has(Pausable.INGRESS, former):
            paused = paused.changed(Pausable.INGRESS, former, is_paused=False)
            paused = paused.changed(Pausable.INGRESS, name, is_paused=True)
            # It may be resumed before the next start.
            ingresses = parts.ingresses - {former} | {name}
            write_paused(checkpoint, attrs.evolve(parts, ingresses=ingresses), paused)


@contextmanager
def _changing(checkpoint: Folder) -> Iterator[None]:
    """Keep other threads from changing the file during the block, and other processes if it is on a local disk."""
    with _in_process:
        if not checkpoint.is_local or not checkpoint.exists():
            yield
            return
        folder = os.open(checkpoint.location, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


class Pauses:
    """The paused parts of a running application; may be used in any thread.

    Args:
        checkpoint: keeps what is paused.

    Raises:
        CheckpointError: if the file is damaged.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._listeners: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        _, self.paused = read_paused(checkpoint) or (None, Paused())
        """What is paused at present."""

    def declare(self, ingresses: Iterable[str], egresses: Iterable[str]) -> None:
        """Store the ids of the application's ingresses and egresses, so that people can pause them."""
        parts = Parts(frozenset(ingresses), frozenset(egresses))
        with _changing(self._checkpoint):
            known, paused = read_paused(self._checkpoint) or (None, Paused())
            if parts != known:
                write_paused(self._checkpoint, parts, paused)

    def look(self) -> bool:
        """Read the paused parts from the checkpoint again; return whether they have changed.

        A change takes effect with the next micro-batch, or the next batches that an egress publishes.

        Raises:
            CheckpointError: if the file is damaged.
        """
        with self._looking:  # so that what another thread has read earlier does not replace it
            _, paused = read_paused(self._checkpoint) or (None, Paused())
            if paused == self.paused:
                return False
            self.paused = paused
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()
        return True

    def listen(self, listener: Callable[[], object]) -> None:
        """Call a function after each change from now on."""
        with self._lock:
            self._listeners.append(listener)

    def forget(self, listener: Callable[[], object]) -> None:
        """Call the function no longer, if it was passed to :meth:`listen`."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)
