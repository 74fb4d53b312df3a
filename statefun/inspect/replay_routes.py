# SPDX-License-Identifier: Apache-2.0
"""Where dead letters go when they are replayed: into their topics, or to their targets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from typing import NamedTuple

from statefun.engine.origin import replay_headers
from statefun.inspect.dead_letter import DeadLetter, LetterHeaders
from statefun.module.model import KafkaEgress, Module
from statefun.module.topic_routes import route_of
from statefun.sdk.errors import ConfigurationError


class Replay(NamedTuple):
    """The record that a letter becomes."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: LetterHeaders


class ReplayRoutes:
    """Finds the way of each dead letter of a module."""

    def __init__(
        self, module: Module, egress: KafkaEgress, topics: Container[str], *, to_target: bool
    ) -> None:
        """Prepare for letters.

        Args:
            module: the application's.
            egress: the one with the topic of dead letters.
            topics: those that its cluster has.
            to_target: whether letters are to go to the functions that failed, and not into the
                topics that they came from.

        Raises:
            ConfigurationError: if they are to go to their targets, and there is no topic for that.
        """
        self._topics = topics
        self._module = module
        self._egress = egress
        self._to_target = to_target
        if to_target and egress.replay_topic is None:
            raise ConfigurationError(
                f"{egress.label} has no replayTopic, through which letters could go to their "
                "targets"
            )

    def replay(self, letter: DeadLetter, lacks: Container[str] = ()) -> Replay:
        """Return the record for the replay of a letter.

        Args:
            letter: the letter.
            lacks: the parts that need not be there, because they are replaced.

        Raises:
            ConfigurationError: saying what else can be done, if the letter cannot be replayed so.
        """
        lost = sorted(part for part in letter.left_out if part not in lacks)
        if lost:
            where = "topic {topic}, partition {partition}, offset {offset}"
            place = defaultdict(lambda: "?", letter.facts)
            raise ConfigurationError(
                f"dead letter {letter.id} was too large to hold all of its record, and lacks its "
                f"{','.join(lost)}; send the record at {where.format_map(place)} again"
            )
        return self._into_replays(letter) if self._to_target else self._into_origin(letter)

    def _into_replays(self, letter: DeadLetter) -> Replay:
        if letter.target_type is None:
            raise ConfigurationError(
                f"dead letter {letter.id} was for no function: its record could not be read "
                f"({letter.facts.get('error-message', '')})"
            )
        id_ = letter.target_id or letter.key
        kept = replay_headers(letter.facts, letter.key, id_)
        headers = [*letter.headers, *kept]
        return Replay(str(self._egress.replay_topic), id_, letter.value, headers)

    def _into_origin(self, letter: DeadLetter) -> Replay:
        origin = letter.facts.get("topic")
        if origin is None or origin == self._egress.replay_topic:
            raise ConfigurationError(
                f"dead letter {letter.id} is a message from "
                f"{letter.facts.get('caller', 'a function')}, and came from no topic; replay it "
                "with --to-target"
            )
        own = [
            egress
            for egress in self._module.egresses
            if str(egress.id) == letter.facts.get("egress")
        ]
        addresses = {egress.address for egress in own} or {
            ingress.address
            for ingress in self._module.ingresses
            if route_of(ingress.topics, origin) is not None
        }
        connectors = [
            ingress
            for ingress in self._module.connector_ingresses
            if route_of(ingress.topics, origin) is not None
        ]
        if connectors and not addresses:
            raise ConfigurationError(
                f"dead letter {letter.id} came from {origin} by ingress {connectors[0].id}, which is no "
                "topic of Kafka's; "
                + (
                    f"it was for no function: write the record to {origin} again"
                    if letter.target_type is None
                    else "replay it with --to-target"
                )
            )
        if addresses and self._egress.address not in addresses:
            raise ConfigurationError(
                f"dead letter {letter.id} came from topic {origin}, which is on another cluster than "
                "the dead letters, so that no transaction could cover both; replay it with --to-target"
            )
        if origin not in self._topics:
            raise ConfigurationError(
                f"dead letter {letter.id} came from topic {origin}, which is not there any more; create "
                "it again, or replay the letter with --to-target"
            )
        return Replay(origin, letter.key, letter.value, letter.headers)
