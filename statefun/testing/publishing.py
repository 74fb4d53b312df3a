# SPDX-License-Identifier: Apache-2.0
"""Publishes the records of an application under test, with the delivery semantics of its egresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random

from statefun.engine.sinks import EgressRecord
from statefun.module.model import DeliverySemantic, Module
from statefun.testing.outcomes import PublishedRecord


class Publishing:
    """The topics of an application's egresses, with their published records.

    Args:
        module: the components of the application.
        random: decides how many records are published before a crash.
        crashes: decides whether the application crashes while it publishes to an egress, given the egress's id.
    """

    def __init__(self, module: Module, random: Random, crashes: Callable[[str], bool]) -> None:
        self._random = random
        self._crashes = crashes
        self._semantics = {
            **{str(egress.id): egress.delivery_semantic for egress in module.egresses},
            **{
                str(egress.id): DeliverySemantic.EXACTLY_ONCE
                if egress.is_exactly_once
                else DeliverySemantic.AT_LEAST_ONCE
                for egress in module.connector_egresses
            },
        }
        self._published: defaultdict[str, list[PublishedRecord]] = defaultdict(list)

    def records(self, topic: str) -> list[PublishedRecord]:
        """Return the records that were published to a topic so far."""
        return list(self._published[topic]) if topic in self._published else []

    def publish(self, records: Sequence[tuple[str, EgressRecord]]) -> None:
        """Publish the records of a micro-batch, given as pairs of an egress's id and a record."""
        by_egress: defaultdict[str, list[EgressRecord]] = defaultdict(list)
        for egress, record in records:
            by_egress[egress].append(record)
        for egress, own in by_egress.items():
            semantic, remaining = self._semantics[egress], own
            if semantic is not DeliverySemantic.EXACTLY_ONCE:
                while self._crashes(egress):
                    is_lost = semantic is DeliverySemantic.NONE
                    sent = self._random.randint(0 if is_lost else 1, len(own)) if remaining else 0
                    self._append(remaining[:sent])
                    remaining = [] if is_lost else own
            self._append(remaining)

    def _append(self, records: Sequence[EgressRecord]) -> None:
        for record in records:
            self._published[record.topic].append(PublishedRecord.of(record))
