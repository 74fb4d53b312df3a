# SPDX-License-Identifier: Apache-2.0
"""Ingresses that are added to a checkpoint, removed from it, or declared in another order.

The order of a checkpoint's sources is in Spark's log of offsets and in ``ingresses.json``. A change rewrites
both, in a way that a crash at any moment leaves either the old or the new order. It never changes how far an
ingress was read: the offsets of removed ingresses are kept in ``ingresses.json``, until a person deletes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import attrs

from statefun.module.connectors import ConnectorIngress
from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import (
    IngressOrder,
    SourceOffset,
    source_name,
    topics_of_ingress,
)
from statefun.runtime.checkpoint.renamed_ingresses import (
    check_changes,
    check_committed,
    forget_command,
)
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
    order, ends = _read(checkpoint)
    if not order.rewriting:
        log.check_sources(len(order.names) + 1)
    check_changes(checkpoint, order, ends, ingresses)
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
    _, ends = _read(checkpoint)
    return [ends.get(source_name(ingress)) for ingress in ingresses]


def all_ends(
    checkpoint: Folder, batch: int | None = None
) -> tuple[dict[str, SourceOffset | None], set[str]]:
    """Return the end offsets of all ingresses by name, and the names of those that were removed.

    The ingresses that are read are in the order of the query's sources.

    Args:
        checkpoint: a checkpoint that is not fresh.
        batch: the micro-batch that ends at these offsets; None for the newest committed one.

    Raises:
        CheckpointError: if a file of the checkpoint is missing or damaged.
    """
    order, ends = _read(checkpoint, batch)
    return ends, {*order.removed}


def former_topics(
    checkpoint: Folder, ingresses: Sequence[KafkaIngress | ConnectorIngress]
) -> list[Sequence[str] | None]:
    """Return for each ingress the topics and patterns that it declared before; None for a new ingress."""
    topics = IngressOrder.read(checkpoint).topics
    return [topics.get(source_name(ingress)) for ingress in ingresses]


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
    order, ends = _read(checkpoint)
    names = [source_name(ingress) for ingress in ingresses]
    topics = {**order.topics, **{source_name(each): topics_of_ingress(each) for each in ingresses}}
    if names == [*order.names] and not any(starts):
        if topics != order.topics:
            attrs.evolve(order, topics=topics).write(checkpoint)
        return
    check_committed(checkpoint)
    removed = {name: end for name, end in ends.items() if name not in names}
    for level, text in _changes(checkpoint, order, names):
        logger.log(level, "%s", text)
    for name, start in zip(names, starts, strict=True):
        if name in order.names and start:
            logger.info("ingress %s: new topics begin at its startup position: %s", name, [*start])
    replace_order(
        checkpoint, IngressOrder(names, removed, topics), dict(zip(names, starts, strict=True))
    )


def replace_order(
    checkpoint: Folder,
    order: IngressOrder,
    starts: Mapping[str, SourceOffset | None] | None = None,
) -> None:
    """Replace the order of a checkpoint's sources, in Spark's log of offsets and in ``ingresses.json``.

    Args:
        checkpoint: a checkpoint that is not fresh, and that no query uses.
        order: the new order. An ingress that is a source already, or was removed, keeps its offsets.
        starts: the starting offsets of what the checkpoint has not read yet, by the names of the ingresses.

    Raises:
        CheckpointError: if a file of Spark's log is damaged.
    """
    former, log = IngressOrder.read(checkpoint), CommitLog(checkpoint)
    rewriting: dict[int, Sequence[SourceOffset | None]] = {}
    for batch in log.planned_batches():
        *ends, feedback = log.end_offsets(batch)
        if len(ends) != len(former.names):
            raise CheckpointError(
                f"{log.offsets_file(batch)} has the offsets of {len(ends)} ingresses, but must have the offsets of "
                f"{len(former.names)}; restore the checkpoint from a copy"
            )
        by_name = {**former.removed, **dict(zip(former.names, ends, strict=True))}
        sources = [_merged(by_name.get(name), (starts or {}).get(name)) for name in order.names]
        rewriting[batch] = [*sources, feedback]
    attrs.evolve(order, rewriting=rewriting).write(checkpoint)
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


def _read(
    checkpoint: Folder, batch: int | None = None
) -> tuple[IngressOrder, dict[str, SourceOffset | None]]:
    """Return the order of a checkpoint, and the end offsets of all ingresses by name.

    Args:
        checkpoint: the checkpoint.
        batch: the micro-batch that ends at these offsets; None for the newest committed one.
    """
    while True:
        order, log = IngressOrder.read(checkpoint), CommitLog(checkpoint)
        read = max(log.newest(), 0) if batch is None else batch
        ends = order.rewriting.get(read) or log.end_offsets(read)
        if IngressOrder.read(checkpoint) == order:  # else a start has just changed both
            return order, {**order.removed, **dict(zip(order.names, ends, strict=False))}


def _merged(end: SourceOffset | None, start: SourceOffset | None) -> SourceOffset | None:
    return end if start is None else {**(end or {}), **start}


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
                f"declared again, it goes on there; to delete them: {forget_command(checkpoint, name)}"
            )
            yield logging.WARNING, text
