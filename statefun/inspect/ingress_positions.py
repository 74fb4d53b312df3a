# SPDX-License-Identifier: Apache-2.0
"""Lists, renames and deletes the positions of ingresses in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import attrs

from statefun.inspect.checkpoint_options import locked
from statefun.runtime.checkpoint.commit_log import CommitLog, within_stops
from statefun.runtime.checkpoint.connector_folder import (
    clear_connector_folder,
    rename_connector_folder,
)
from statefun.runtime.checkpoint.folder import Folder, missing_checkpoint
from statefun.runtime.checkpoint.ingress_changes import all_ends, finish_change, replace_order
from statefun.runtime.checkpoint.ingress_order import (
    INGRESSES,
    STOPS,
    IngressOrder,
    SourceOffset,
    check_format,
)
from statefun.runtime.checkpoint.pauses import rename_paused
from statefun.runtime.checkpoint.renamed_ingresses import forget_command
from statefun.runtime.ingress.identities import rename_identity
from statefun.runtime.ingress.stopping import rewrite_read_offsets, stops_of_last_run
from statefun.sdk.address import TypeName
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.nearest_names import suggestion


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
    """Return the positions of all ingresses in a checkpoint, including ingresses that were removed from module files.

    Raises:
        CheckpointError: if the checkpoint was not made by statefun, or is damaged.
    """
    if not (checkpoint.has(INGRESSES) or CommitLog(checkpoint).query_id()):
        raise missing_checkpoint(checkpoint)
    check_format(checkpoint)
    if CommitLog(checkpoint).newest() < 0:
        names = IngressOrder.read(checkpoint).names
        return [IngressPosition(name, is_read=True, offset=None) for name in names]
    ends, removed = all_ends(checkpoint)
    stops = stops_of_last_run(checkpoint)
    return [
        IngressPosition(
            name,
            name not in removed,
            end if end is None or name not in stops else within_stops(end, stops[name]),
        )
        for name, end in sorted(ends.items(), key=lambda each: each[0] in removed)
    ]


def rename_ingress(checkpoint: Folder, former: str, name: str, *, has_lock: bool = True) -> None:
    """Give the position of an ingress another name: the ingress with the new name continues from the position.

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
    id_, _, kind = name.partition(" ")
    name = " ".join(filter(None, (str(TypeName.parse(id_)), kind.strip())))
    if name in {each.name for each in ingress_positions(checkpoint)}:
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown} already has offsets of ingress {name}; if they are not needed, "
            f"delete them first: {forget_command(checkpoint, name)}"
        )
    if _kind(name) != _kind(former):
        raise ConfigurationError(
            f"ingress {former} cannot become {name}: offsets of different kinds of ingresses have different "
            "forms; an ingress of a connector keeps its kind, as 'statefun ingress list' prints it"
        )
    with _prepared(checkpoint, has_lock=has_lock) as guarded:
        # In this order: if a crash comes between two steps, the same command does the rest.
        if position.is_of_connector:
            rename_connector_folder(guarded, _id(former), _id(name))
        rename_identity(guarded, former, name)
        rename_paused(guarded, str(_id(former)), str(_id(name)))
        order = IngressOrder.read(guarded)

        def renamed(each: str) -> str:
            return name if each == former else each

        IngressOrder(
            [renamed(each) for each in order.names],
            {renamed(each): end for each, end in order.removed.items()},
            {renamed(each): topics for each, topics in order.topics.items()},
        ).write(guarded)


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
    with _prepared(checkpoint, has_lock=has_lock) as guarded:
        order = IngressOrder.read(guarded)
        names = [each for each in order.names if each != name]
        removed = {**order.removed, name: None}
        # As long as it is listed as removed, the command can be repeated after a crash.
        replace_order(guarded, IngressOrder(names, removed, order.topics))
        rename_identity(guarded, name, None)
        if position.is_of_connector:
            clear_connector_folder(guarded, _id(name))
        del removed[name]
        topics = {each: topics for each, topics in order.topics.items() if each != name}
        IngressOrder(names, removed, topics).write(guarded)


def _position(checkpoint: Folder, name: str) -> IngressPosition:
    positions = {each.name: each for each in ingress_positions(checkpoint)}
    if name not in positions:
        hint = suggestion(name, positions) or f"it has {_enumerated(positions)}"
        raise ConfigurationError(f"checkpoint {checkpoint.shown} has no ingress {name}; {hint}")
    return positions[name]


@contextmanager
def _prepared(checkpoint: Folder, *, has_lock: bool) -> Iterator[Folder]:
    """Lock the checkpoint during the block; first complete changes of its offsets that a run or command has begun."""
    with locked(checkpoint, has_lock=has_lock) as guarded:
        finish_change(guarded)
        rewrite_read_offsets(guarded)
        guarded.remove(
            STOPS
        )  # they are in the log now, and would count for another ingress of the name
        yield guarded


def _enumerated(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no ingress"


def _id(name: str) -> TypeName:
    return TypeName.parse(name.partition(" ")[0])


def _kind(name: str) -> str:
    return name.partition(" ")[2]
