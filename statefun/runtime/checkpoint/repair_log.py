# SPDX-License-Identifier: Apache-2.0
"""The repairs of a checkpoint: changes of values that people have made, each with who made it and when.

``<checkpoint>/repairs/N`` is a repair whose first change has the number N. A repair is accepted when its file
is on the disk, and applied when the offset of the feedback source in a committed batch has the number of its
last change. So all of its changes are in one micro-batch: that of the command, or, if the command was killed,
the first one of the next run. The files are never deleted: they are the log of all repairs. Of secret values, a file
has only the new ones, and only until they are applied.
"""

from __future__ import annotations

import base64
import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import attrs

from statefun.engine.repairs import DELETE, SET
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.runtime.checkpoint.inbox import AcceptedMessage

REPAIRS_INBOX = "repairs"
"""The name of the inbox of repairs in the offset of the feedback source."""
_FOLDER = "repairs"


@attrs.frozen
class Change:
    """A change of one value of an address."""

    target: bytes
    """The address, encoded as the key of its state."""
    name: str
    """The name of the value."""
    before: AddressState.Value | None
    """The value before the change; None if the address had no such value."""
    after: AddressState.Value | None
    """The value after the change; None if it is deleted."""
    is_secret: bool = False
    """Whether the value is secret: then the log has no content in ``before``, and none in ``after`` once it is applied."""

    def message(self, number: int) -> AcceptedMessage:
        """Return the message that makes the change, with its number in the inbox."""
        if self.after is None:
            return AcceptedMessage(number, self.target, DELETE, self.name.encode())
        return AcceptedMessage(number, self.target, SET, self.after.SerializeToString())


@attrs.frozen
class Repair:
    """Changes that are applied together."""

    first: int
    """The number of the first change in the inbox."""
    who: str
    """The user and the machine."""
    when: datetime
    changes: Sequence[Change]

    @property
    def last(self) -> int:
        """The number of the last change in the inbox."""
        return self.first + len(self.changes) - 1


class RepairLog:
    """The repairs of a checkpoint, and the inbox that delivers their changes.

    Args:
        checkpoint: the checkpoint.
    """

    is_durable = True

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        numbers = [name for name in checkpoint.child(_FOLDER).names() if name.isdecimal()]
        self._firsts = sorted(map(int, numbers))
        self._newest = self._read(self._firsts[-1]).last if self._firsts else 0

    def accept(self, who: str, when: datetime, changes: Sequence[Change]) -> Repair:
        """Add a repair: when this method returns, it is on the disk, and the next micro-batch applies it.

        Args:
            who: the user and the machine.
            when: the present time.
            changes: at least one change.
        """
        logged = [
            attrs.evolve(each, before=_emptied(each.before)) if each.is_secret else each
            for each in changes
        ]
        repair = Repair(self._newest + 1, who, when, logged)
        self._write(repair)
        self._firsts.append(repair.first)
        self._newest = repair.last
        return repair

    def repairs(self) -> list[Repair]:
        """Return all repairs, in order.

        Raises:
            CheckpointError: if a file is damaged.
        """
        return [self._read(first) for first in self._firsts]

    def open(self) -> None:
        """Do nothing: no repair is accepted while a run uses the checkpoint."""

    def readable(self, after: int, *, is_busy: bool = False) -> int:
        """Return the number of the last change that the next micro-batch reads: it reads all changes."""
        del is_busy
        return max(after, self._newest)

    def messages(self, after: int, last: int) -> Sequence[AcceptedMessage]:
        """Return the changes with numbers from ``after + 1`` to ``last``, in order."""
        # The first of these changes may be in the midst of a repair, which begins before it.
        start = max(bisect_right(self._firsts, after + 1) - 1, 0)
        return [
            change.message(number)
            for first in self._firsts[start : bisect_right(self._firsts, last)]
            for number, change in enumerate(self._read(first).changes, first)
            if after < number <= last
        ]

    def is_pending(self) -> bool:
        """Return False: no repair is accepted while a run uses the checkpoint."""
        return False

    def forget(self, last: int) -> None:
        """Delete the contents of secret values in repairs that are applied; the log keeps all repairs.

        Args:
            last: the number of the last change that a committed micro-batch has applied.
        """
        for repair in self.repairs():
            changes = [
                attrs.evolve(each, after=_emptied(each.after)) if each.is_secret else each
                for each in repair.changes
            ]
            if repair.last <= last and changes != repair.changes:
                self._write(attrs.evolve(repair, changes=changes))

    def _write(self, repair: Repair) -> None:
        content = {
            "who": repair.who,
            "when": repair.when.isoformat(),
            "changes": [
                {
                    "target": _text(each.target),
                    "name": each.name,
                    "before": _encoded(each.before),
                    "after": _encoded(each.after),
                    "secret": each.is_secret,
                }
                for each in repair.changes
            ],
        }
        write_framed(self._checkpoint, _path(repair.first), json.dumps(content).encode())

    def _read(self, first: int) -> Repair:
        try:
            content = json.loads(read_framed(self._checkpoint, _path(first)))
            changes = [
                Change(
                    base64.b64decode(each["target"]),
                    str(each["name"]),
                    _decoded(each["name"], each["before"]),
                    _decoded(each["name"], each["after"]),
                    bool(each.get("secret", False)),
                )
                for each in content["changes"]
            ]
            when = datetime.fromisoformat(content["when"])
            return Repair(first, str(content["who"]), when, changes)
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(self._checkpoint, _path(first), error) from error


def repairs_after(repairs: Iterable[Repair], number: int) -> list[Repair]:
    """Return those repairs that are not applied yet, given the number of the last change that is applied."""
    return [repair for repair in repairs if repair.last > number]


def _path(first: int) -> str:
    return f"{_FOLDER}/{first}"


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _emptied(value: AddressState.Value | None) -> AddressState.Value | None:
    """Return a copy of a stored value without its content, which is secret."""
    if value is None:
        return None
    return AddressState.Value(name=value.name, typename=value.typename, expires=value.expires)


def _encoded(value: AddressState.Value | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return {"typename": value.typename, "value": _text(value.value), "expires": value.expires}


def _decoded(name: str, content: dict[str, Any] | None) -> AddressState.Value | None:
    if content is None:
        return None
    return AddressState.Value(
        name=name,
        typename=content["typename"],
        value=base64.b64decode(content["value"]),
        expires=content["expires"],
    )
