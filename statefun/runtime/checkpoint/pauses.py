# SPDX-License-Identifier: Apache-2.0
"""The file ``paused.json`` of a checkpoint: what a person has paused, which stays paused across restarts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from enum import Enum

import attrs

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

PAUSED_FILE = "paused.json"


class Part(Enum):
    """The kinds of parts of an application that can be paused."""

    APPLICATION = "application"
    INGRESS = "ingress"
    EGRESS = "egress"


@attrs.frozen
class Paused:
    """The parts of an application that are paused."""

    application: bool = False
    """Whether the application begins no micro-batch; records of committed micro-batches are published anyway."""
    ingresses: frozenset[str] = frozenset()
    """The ids of the ingresses of which no record is read."""
    egresses: frozenset[str] = frozenset()
    """The ids of the egresses to which no record is published."""

    def has(self, part: Part, name: str = "") -> bool:
        """Return whether a part is paused; the application has no name.

        >>> Paused(egresses=frozenset({"t/out"})).has(Part.EGRESS, "t/out")
        True
        """
        return self.application if part is Part.APPLICATION else name in self._names(part)

    def changed(self, part: Part, name: str, *, is_paused: bool) -> Paused:
        """Return what is paused after one part was paused or resumed.

        >>> Paused().changed(Part.APPLICATION, "", is_paused=True)
        Paused(application=True, ingresses=frozenset(), egresses=frozenset())
        """
        if part is Part.APPLICATION:
            return attrs.evolve(self, application=is_paused)
        names = self._names(part)
        names = names | {name} if is_paused else names - {name}
        if part is Part.INGRESS:
            return attrs.evolve(self, ingresses=names)
        return attrs.evolve(self, egresses=names)

    def _names(self, part: Part) -> frozenset[str]:
        return self.ingresses if part is Part.INGRESS else self.egresses


def read_paused(checkpoint: Folder) -> Paused:
    """Return what is paused in a checkpoint.

    Raises:
        CheckpointError: if the file is damaged.
    """
    checkpoint.sync(
        PAUSED_FILE
    )  # the process that wrote it may have ended before it was on the disk
    try:
        content = json.loads(read_framed(checkpoint, PAUSED_FILE))
        return Paused(
            bool(content["application"]),
            frozenset(content["ingresses"]),
            frozenset(content["egresses"]),
        )
    except FileNotFoundError:
        return Paused()
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(checkpoint, PAUSED_FILE, error) from error


def write_paused(checkpoint: Folder, paused: Paused) -> None:
    """Write what is paused; when this function returns, it is on the disk."""
    content = {
        "application": paused.application,
        "ingresses": sorted(paused.ingresses),
        "egresses": sorted(paused.egresses),
    }
    write_framed(checkpoint, PAUSED_FILE, json.dumps(content).encode())


class Pauses:
    """Pauses and resumes parts of a running application; may be used in any thread.

    Args:
        checkpoint: keeps what is paused.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._lock = threading.RLock()
        self._listeners: list[Callable[[], object]] = []
        self.paused = read_paused(checkpoint)
        """What is paused at present."""

    def change(self, part: Part, name: str = "", *, is_paused: bool) -> bool:
        """Pause or resume a part, durably; return whether that has changed anything.

        The change takes effect with the next micro-batch, or the next batch that an egress publishes.
        """
        with self._lock:
            changed = self.paused.changed(part, name, is_paused=is_paused)
            if changed == self.paused:
                return False
            write_paused(self._checkpoint, changed)
            self.paused = changed
            for listener in tuple(self._listeners):
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
