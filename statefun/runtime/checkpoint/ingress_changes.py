# SPDX-License-Identifier: Apache-2.0
"""Ingresses that are added to a checkpoint, removed from it, or declared in another order.

The order of a checkpoint's sources is in Spark's log of offsets and in ``ingresses.json``. A change rewrites
both, in a way that a crash at any moment leaves either the old or the new order. It never changes how far an
ingress was read: the offsets of removed ingresses are kept in ``ingresses.json``, until a person deletes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import attrs

from statefun.module.connectors import ConnectorIngress
from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import IngressOrder, SourceOffset, source_name
from statefun.sdk.errors import CheckpointError

logger = logging.getLogger("statefun")

Ingress = TypeVar("Ingress", bound=KafkaIngress | ConnectorIngress)


def in_order(checkpoint: Folder, ingresses: Sequence[Ingress]) -> list[Ingress]:
    """Return ``ingresses`` in the order of the query's sources; on a fresh checkpoint, unchanged.

    New ingresses come last: those of Kafka before those of connectors. Nothing is changed.

    Args:
        checkpoint: the checkpoint.
        ingresses: the ingresses that the module files declare; Kafka's have to come before others.

    Raises:
        CheckpointError: if the checkpoint was not made by statefun or is damaged, or if a person has to decide
            whether a new ingress is a renamed one.
    """
    log = CommitLog(checkpoint)
    if log.is_fresh():
        return list(ingresses)
    order = IngressOrder.read(checkpoint)
    if not order.rewriting:
        log.check_sources(len(order.names) + 1)
    _check_changes(checkpoint, order, ingresses)
    numbers = {name: number for number, name in enumerate(order.names)}

    def place(ingress: Ingress) -> tuple[bool, int]:
        number = numbers.get(source_name(ingress), len(numbers))
        return isinstance(ingress, ConnectorIngress), number

    return sorted(ingresses, key=place)


def committed_ends(
    checkpoint: Folder, ingresses: Sequence[KafkaIngress | ConnectorIngress]
) -> list[SourceOffset | None]:
    """Return the offset up to which the checkpoint has read each ingress; None if it has read nothing.

    Args:
        checkpoint: a checkpoint that is not fresh.
        ingresses: the ingresses.

    Raises:
        CheckpointError: if a file of the checkpoint is missing or damaged.
    """
    ends = _ends_by_name(checkpoint, IngressOrder.read(checkpoint))
    return [ends.get(source_name(ingress)) for ingress in ingresses]


def described_changes(
    checkpoint: Folder, ingresses: Sequence[KafkaIngress | ConnectorIngress]
) -> list[str]:
    """Return a text about each ingress that a start would add to a checkpoint or remove from it.

    Args:
        checkpoint: a checkpoint that is not fresh.
        ingresses: the ingresses that the module files declare.
    """
    names = [source_name(ingress) for ingress in ingresses]
    return [text for _, text in _changes(checkpoint, IngressOrder.read(checkpoint), names)]


def change_order(
    checkpoint: Folder,
    ingresses: Sequence[KafkaIngress | ConnectorIngress],
    starts: Sequence[SourceOffset | None],
) -> None:
    """Make ``ingresses`` the sources of the query, in their order; do nothing if they are already.

    Args:
        checkpoint: a checkpoint that is not fresh, and that no query uses.
        ingresses: the ingresses as returned by :func:`in_order`.
        starts: for each ingress, the starting offsets of what the checkpoint has not read yet: of a new
            ingress, or of new topics. None if there is nothing new, or if the source itself decides where to start.
    """
    order = IngressOrder.read(checkpoint)
    names = [source_name(ingress) for ingress in ingresses]
    if names == [*order.names] and not any(starts):
        return
    removed = {
        name: end
        for name, end in _ends_by_name(checkpoint, order).items()
        if end is not None and name not in names
    }
    for level, text in _changes(checkpoint, order, names):
        logger.log(level, "%s", text)
    replace_order(checkpoint, names, removed, dict(zip(names, starts, strict=True)))


def replace_order(
    checkpoint: Folder,
    names: Sequence[str],
    removed: Mapping[str, SourceOffset],
    starts: Mapping[str, SourceOffset | None] | None = None,
) -> None:
    """Replace the order of a checkpoint's sources, in Spark's log of offsets and in ``ingresses.json``.

    Args:
        checkpoint: a checkpoint that is not fresh, and that no query uses.
        names: the names of the ingresses in their new order. An ingress that is a source already, or was
            removed, keeps its offsets.
        removed: the offsets of removed ingresses that the checkpoint keeps.
        starts: the starting offsets of what the checkpoint has not read yet, by the names of the ingresses.
    """
    order, log = IngressOrder.read(checkpoint), CommitLog(checkpoint)
    rewriting: dict[int, Sequence[SourceOffset | None]] = {}
    for batch in log.planned_batches():
        *ends, feedback = log.end_offsets(batch)
        by_name = {**order.removed, **dict(zip(order.names, ends, strict=True))}
        sources = [_merged(by_name.get(name), (starts or {}).get(name)) for name in names]
        rewriting[batch] = [*sources, feedback]
    IngressOrder(names, removed, rewriting).write(checkpoint)
    finish_change(checkpoint)


def finish_change(checkpoint: Folder) -> None:
    """Finish a change of the order that a crash has interrupted; do nothing if there is none."""
    log = CommitLog(checkpoint)
    if log.is_fresh():
        return
    order = IngressOrder.read(checkpoint)
    if order.rewriting:
        log.rewrite_sources(order.rewriting)
        attrs.evolve(order, rewriting={}).write(checkpoint)


def _ends_by_name(checkpoint: Folder, order: IngressOrder) -> dict[str, SourceOffset | None]:
    """Return the committed end offsets of all ingresses by name, also of those that were removed."""
    log = CommitLog(checkpoint)
    newest = max(log.newest(), 0)
    ends = order.rewriting.get(newest) or log.end_offsets(newest)
    return {**order.removed, **dict(zip(order.names, ends, strict=False))}


def _merged(end: SourceOffset | None, start: SourceOffset | None) -> SourceOffset | None:
    return end if start is None else {**(end or {}), **start}


def _check_changes(
    checkpoint: Folder,
    order: IngressOrder,
    ingresses: Sequence[KafkaIngress | ConnectorIngress],
) -> None:
    """Check that the sources of a checkpoint can be changed to ``ingresses`` without a person's decision.

    Raises:
        CheckpointError: if a new ingress reads what a removed one has read, or if no micro-batch is committed.
    """
    declared = {source_name(ingress): ingress for ingress in ingresses}
    if set(declared) != set(order.names) and CommitLog(checkpoint).newest() < 0:
        raise CheckpointError(
            f"checkpoint {checkpoint.shown} has planned its first micro-batch with {_enumerated(order.names)}, "
            f"and the module files declare {_enumerated(declared)}; ingresses can be added and removed after the "
            "first micro-batch: start once with the same ingresses, or with a new checkpoint"
        )
    ends = _ends_by_name(checkpoint, order)
    missing = {name: end or {} for name, end in ends.items() if name not in declared}
    for name, ingress in declared.items():
        former = None if name in ends else _former_name(ingress, missing)
        if former is not None:
            raise CheckpointError(
                f"{ingress.label} is new to checkpoint {checkpoint.shown}, and reads what ingress {former} has "
                "read, which the module files no longer declare; if it is the same ingress under another name, "
                f"let it go on there: statefun ingress rename {checkpoint.shown} '{former}' '{name}'; if not, "
                f"delete the offsets of the former one: statefun ingress forget {checkpoint.shown} '{former}'"
            )


def _former_name(
    ingress: KafkaIngress | ConnectorIngress, missing: Mapping[str, SourceOffset]
) -> str | None:
    """Return the name of a missing ingress that a new ingress may be, or whose files it would use; else None.

    Args:
        ingress: the new ingress.
        missing: the ingresses that are no longer declared: their offsets by their names.
    """
    for name, end in sorted(missing.items()):
        if isinstance(ingress, ConnectorIngress):
            id_, _, kind = name.partition(" ")
            if kind and (id_ == str(ingress.id) or kind == f"({ingress.kind})"):
                return name
        elif " " not in name and any(
            route.takes(topic) for topic in end for route in ingress.topics
        ):
            return name
    return None


def _changes(
    checkpoint: Folder, order: IngressOrder, names: Sequence[str]
) -> Iterator[tuple[int, str]]:
    """Yield a text about each ingress that is new, comes back or is removed, with its level for the log."""
    for name in names:
        if name in order.removed:
            text = f"ingress {name} is declared again, and goes on where the checkpoint has stopped"
            yield logging.INFO, text
        elif name not in order.names:
            text = f"ingress {name} is new to the checkpoint, and begins at its startup position"
            yield logging.INFO, text
    for name in order.names:
        if name not in names:
            text = (
                f"ingress {name} is no longer declared; the checkpoint keeps its offsets, and if the ingress is "
                f"declared again, it goes on there; to delete them: statefun ingress forget {checkpoint.shown} "
                f"'{name}'"
            )
            yield logging.WARNING, text


def _enumerated(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no ingress"
