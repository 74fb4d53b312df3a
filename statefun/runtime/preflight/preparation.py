# SPDX-License-Identifier: Apache-2.0
"""Prepares a run before its query starts: checks and recovers the checkpoint, and decides where to read."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import attrs

from statefun.module.connectors import ConnectorIngress
from statefun.module.model import KafkaIngress, Module
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.ingress_changes import (
    change_order,
    committed_ends,
    finish_change,
    former_topics,
    in_order,
)
from statefun.runtime.checkpoint.ingress_order import (
    IngressOrder,
    check_format,
    source_name,
    topics_of_ingress,
)
from statefun.runtime.checkpoint.outbox import Leftovers, Outbox
from statefun.runtime.checkpoint.rescaling import clear_rescaling, rescale_command
from statefun.runtime.ingress.bootstrapping import Bootstrap
from statefun.runtime.ingress.declared import all_sources
from statefun.runtime.ingress.identities import check_identities, write_identities
from statefun.runtime.ingress.known_topics import KnownTopics
from statefun.runtime.ingress.removed_partitions import removed_partitions
from statefun.runtime.ingress.starting_offsets import (
    check_topics,
    later_starts,
    starting_offsets,
)
from statefun.runtime.ingress.stopping import Bounds, rewrite_read_offsets
from statefun.runtime.kafka.topics import refuse_missing_topics
from statefun.runtime.preflight.recovery import Succession, check_logs
from statefun.runtime.release.delivery import Delivery
from statefun.runtime.settings import Settings

logger = logging.getLogger("statefun")


@attrs.frozen
class Prepared:
    """The results of the preparation, which the rest of the run uses."""

    newest: int
    """The number of the newest committed batch; -1 if no batch is committed."""
    ingresses: Sequence[KafkaIngress]
    """The Kafka ingresses in the order of the query's sources."""
    starts: Sequence[str]
    """The starting offset of each Kafka ingress, in the form of Spark's sources."""
    bounds: Bounds
    """The stop positions of the Kafka ingresses."""
    leftovers: Leftovers
    """The committed batches of earlier runs whose effects are not all published and delivered yet."""
    delivery: Delivery
    """Determines up to which micro-batch, of this run or an earlier one, messages are delivered."""
    succession: Succession
    """Detects that another driver commits micro-batches."""
    bootstrap: Bootstrap
    """Knows which ingresses may not be read yet."""
    topics: KnownTopics
    """Checks that the topics of the Kafka ingresses stay the same ones."""
    connectors: Sequence[ConnectorIngress] = ()
    """The ingresses of connectors, whose sources come after those of Kafka's ingresses."""


def prepare(module: Module, settings: Settings) -> Prepared:
    """Check a checkpoint, recover it, and decide where its ingresses start and stop.

    Args:
        module: the module with the ingresses and egresses to check.
        settings: the settings, with the checkpoint, which this process must have locked.

    Raises:
        StatefunError: if the run cannot begin; the checkpoint's state stays that of the last committed batch.
    """
    checkpoint = settings.checkpoint
    check_format(checkpoint)
    check_logs(checkpoint)
    refuse_missing_topics(module.egresses, settings.kafka_timeout)
    commit_log = CommitLog(checkpoint)
    commit_log.finish_rewriting()
    clear_rescaling(checkpoint)
    finish_change(checkpoint)
    ordered = in_order(checkpoint, all_sources(module))
    ingresses = [ingress for ingress in ordered if isinstance(ingress, KafkaIngress)]
    connectors = [ingress for ingress in ordered if isinstance(ingress, ConnectorIngress)]
    is_fresh = commit_log.is_fresh()
    if is_fresh:
        topics = {source_name(ingress): topics_of_ingress(ingress) for ingress in ordered}
        IngressOrder([*topics], topics=topics).write(checkpoint)
    else:
        _warn_of_partitions(settings, commit_log.state_partitions(commit_log.planned()))
    rewrite_read_offsets(checkpoint)
    endless_ingresses = (*connectors, *module.playground_ingresses)
    bounds = Bounds(checkpoint, commit_log, ingresses, are_endless=bool(endless_ingresses))
    newest = commit_log.newest()
    leftovers = Outbox(checkpoint).recover(newest)
    delivery = Delivery(checkpoint)
    # If a batch is planned, but none is committed, Spark reads the planned offsets, not the starting ones.
    ends = None if is_fresh else committed_ends(checkpoint, ingresses)
    starts, new_starts, bootstrap = _starts(settings, ends, ingresses, bounds)
    if not is_fresh:
        change_order(checkpoint, ordered, [*new_starts, *(None for _ in connectors)])
    return Prepared(
        newest,
        ingresses,
        starts,
        bounds,
        leftovers,
        delivery,
        Succession(newest),
        bootstrap,
        KnownTopics(checkpoint, ingresses),
        connectors,
    )


def _warn_of_partitions(settings: Settings, present: int | None) -> None:
    requested = settings.state_partitions
    if requested is not None and present not in {None, requested}:
        logger.warning(
            "state-partitions=%d has no effect: the state in the checkpoint is divided into %d partitions; to change "
            "that, end the application, and run: %s",
            requested,
            present,
            rescale_command(settings.checkpoint, requested),
        )


def _starts(
    settings: Settings,
    ends: Sequence[dict[str, Any] | None] | None,
    ingresses: Sequence[KafkaIngress],
    bounds: Bounds,
) -> tuple[list[str], list[dict[str, Any] | None], Bootstrap]:
    """Decide where the Kafka ingresses start and stop, and which ones are read first.

    Args:
        settings: the settings, with the checkpoint.
        ends: the end offsets that the checkpoint has for each ingress; None if the checkpoint is fresh.
        ingresses: the ingresses in the order of the sources.
        bounds: decides on the stop positions and writes them.

    Returns:
        First the starting offsets of Spark's sources, which Spark uses only on a fresh checkpoint. Then, for a
        checkpoint that is not fresh, the starting offsets of the topics that each ingress has not read before; None
        for an ingress without such topics. Last the object that knows which ingresses are read first.
    """
    timeout = settings.kafka_timeout
    for ingress, offsets in zip(ingresses, ends or (), strict=False):
        removed = removed_partitions(ingress, offsets or {})
        if removed is not None:
            raise removed
    partitions = [check_topics(ingress, timeout) for ingress in ingresses]
    offsets_by_ingress = [offsets or {} for offsets in ends or ()] or [{} for _ in ingresses]
    identities = check_identities(
        settings.checkpoint, ingresses, partitions, offsets_by_ingress, timeout
    )
    write_identities(settings.checkpoint, identities)
    new_starts: list[dict[str, Any] | None] = []
    if ends is None:
        offsets_by_ingress = [
            starting_offsets(ingress, topics, timeout)
            for ingress, topics in zip(ingresses, partitions, strict=True)
        ]
    else:
        former = former_topics(settings.checkpoint, ingresses)
        later = [
            later_starts(ingress, topics, end, declared, timeout)
            for ingress, topics, end, declared in zip(
                ingresses, partitions, ends, former, strict=True
            )
        ]
        offsets_by_ingress = [
            {**old, **new} for old, new in zip(offsets_by_ingress, later, strict=True)
        ]
        new_starts = [new or (None if end else {}) for end, new in zip(ends, later, strict=True)]
    starts = bounds.decide(partitions, offsets_by_ingress, timeout)
    bounds.write()
    bootstrap = Bootstrap.decide(ingresses, partitions, starts, bounds.stops, timeout)
    texts = [json.dumps(start) if ends is None else "latest" for start in starts]
    return texts, new_starts, bootstrap
