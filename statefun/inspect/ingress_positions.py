# SPDX-License-Identifier: Apache-2.0
"""The positions of ingresses in a checkpoint: listed, given to an ingress of another name, or deleted."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

import attrs

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.connector_folder import connector_folder, rename_connector_folder
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_changes import finish_change, replace_order
from statefun.runtime.checkpoint.ingress_order import IngressOrder, SourceOffset, check_format
from statefun.runtime.checkpoint.lock import checkpoint_lock
from statefun.runtime.ingress.identities import rename_identity
from statefun.runtime.ingress.stopping import rewrite_read_offsets
from statefun.sdk.address import TypeName
from statefun.sdk.errors import ConfigurationError

_AT_ONCE = timedelta(0)


@attrs.frozen
class IngressPosition:
    """How far a checkpoint has read an ingress."""

    name: str
    """The id of the ingress; for an ingress that a connector reads, with its kind in parentheses."""
    is_read: bool
    """Whether the last run has read the ingress; else it was removed from the module files."""
    offset: SourceOffset | None
    """The offset in the newest committed micro-batch; None if nothing was read yet."""

    @property
    def is_of_connector(self) -> bool:
        """Whether a connector reads the ingress."""
        return " " in self.name

    def described(self) -> str:
        """Return the offset as a short text.

        >>> IngressPosition("example/in", True, {"users": {"0": 7, "1": 3}}).described()
        'users/0: 7, users/1: 3'
        """
        if self.offset is None:
            return "nothing read"
        if self.is_of_connector:
            return json.dumps(self.offset)
        return ", ".join(
            f"{topic}/{number}: {offset}"
            for topic, partitions in sorted(self.offset.items())
            for number, offset in sorted(partitions.items(), key=lambda each: int(each[0]))
        )


def ingress_positions(checkpoint: Folder) -> list[IngressPosition]:
    """Return the positions of all ingresses of a checkpoint, also of those that were removed.

    Raises:
        CheckpointError: if the checkpoint was not made by statefun, or is damaged.
    """
    check_format(checkpoint)
    order, log = IngressOrder.read(checkpoint), CommitLog(checkpoint)
    ends = order.rewriting.get(log.newest())
    if ends is None:
        ends = log.end_offsets(log.newest()) if log.newest() >= 0 else [None] * len(order.names)
    return [
        *(IngressPosition(name, True, end) for name, end in zip(order.names, ends, strict=False)),
        *(IngressPosition(name, False, end) for name, end in sorted(order.removed.items())),
    ]


def rename_ingress(checkpoint: Folder, former: str, name: str, *, has_lock: bool = True) -> None:
    """Give the position of an ingress another name, so that the ingress with that id goes on there.

    Args:
        checkpoint: the checkpoint of an application that does not run.
        former: the name of the ingress in the checkpoint.
        name: its new name.
        has_lock: whether to lock the checkpoint, so that no application can run with it meanwhile.

    Raises:
        ConfigurationError: if there is no such ingress, if the new name is taken, or is of another kind.
        CheckpointError: if an application runs with the checkpoint, or a file is damaged.
    """
    position = _position(checkpoint, former)
    _id(name)
    if name in {each.name for each in ingress_positions(checkpoint)}:
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown} already has offsets of ingress {name}; if they are not needed, "
            f"delete them first: statefun ingress forget {checkpoint.shown} '{name}'"
        )
    if _kind(name) != _kind(former):
        raise ConfigurationError(
            f"ingress {former} cannot become {name}: offsets of different kinds of ingresses have different "
            "forms; give the id of a connector's ingress with its kind, as 'statefun ingress list' prints it"
        )
    with _locked(checkpoint, has_lock=has_lock):
        finish_change(checkpoint)
        rewrite_read_offsets(
            checkpoint
        )  # while the stop offsets of the last run have the former name
        # In this order: if a crash comes between two steps, the same command does the rest.
        if position.is_of_connector:
            rename_connector_folder(checkpoint, _id(former), _id(name))
        rename_identity(checkpoint, former, name)
        order = IngressOrder.read(checkpoint)
        removed = {name if each == former else each: end for each, end in order.removed.items()}
        names = [name if each == former else each for each in order.names]
        IngressOrder(names, removed).write(checkpoint)


def forget_ingress(checkpoint: Folder, name: str, *, has_lock: bool = True) -> None:
    """Delete the position of an ingress: if it is declared, it begins at its startup position again.

    Args:
        checkpoint: the checkpoint of an application that does not run.
        name: the name of the ingress in the checkpoint.
        has_lock: whether to lock the checkpoint, so that no application can run with it meanwhile.

    Raises:
        ConfigurationError: if there is no such ingress, or if no micro-batch is committed yet.
        CheckpointError: if an application runs with the checkpoint, or a file is damaged.
    """
    position = _position(checkpoint, name)
    if CommitLog(checkpoint).newest() < 0:
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown} has no committed micro-batch yet, so no offsets can be deleted: use a "
            "new checkpoint"
        )
    with _locked(checkpoint, has_lock=has_lock):
        finish_change(checkpoint)
        rewrite_read_offsets(checkpoint)
        order = IngressOrder.read(checkpoint)
        removed = {each: end for each, end in order.removed.items() if each != name}
        replace_order(checkpoint, [each for each in order.names if each != name], removed)
        # Only now: a crash between these steps leaves files that nobody needs, and loses nothing.
        rename_identity(checkpoint, name, None)
        if position.is_of_connector:
            connector_folder(checkpoint, _id(name)).remove_all()


def _position(checkpoint: Folder, name: str) -> IngressPosition:
    positions = {each.name: each for each in ingress_positions(checkpoint)}
    if name not in positions:
        near = difflib.get_close_matches(name, positions, 1)
        hint = f"; did you mean '{near[0]}'?" if near else f"; it has {_enumerated(positions)}"
        raise ConfigurationError(f"checkpoint {checkpoint.shown} has no ingress {name}{hint}")
    return positions[name]


def _locked(checkpoint: Folder, *, has_lock: bool) -> AbstractContextManager[None]:
    return checkpoint_lock(checkpoint, _AT_ONCE) if has_lock else nullcontext()


def _enumerated(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no ingress"


def _id(name: str) -> TypeName:
    return TypeName.parse(name.partition(" ")[0])


def _kind(name: str) -> str:
    return name.partition(" ")[2]
