# SPDX-License-Identifier: Apache-2.0
"""Makes the record that replays a dead letter: into its original topic, or to its target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from typing import NamedTuple

from statefun.engine.origin import replay_headers
from statefun.module.model import KafkaEgress, Module
from statefun.module.topic_routes import route_of
from statefun.runtime.letters.dead_letter import DeadLetter, LetterHeaders
from statefun.sdk.errors import ConfigurationError


class Replay(NamedTuple):
    """The record that replays a dead letter."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: LetterHeaders


class ReplayRoutes:
    """Makes the record that replays a dead letter of an application."""

    def __init__(
        self, module: Module, egress: KafkaEgress, topics: Container[str], *, to_target: bool
    ) -> None:
        """Check that letters can be replayed.

        Args:
            module: the ingresses and egresses of the application.
            egress: the egress that has the dead-letter topic.
            topics: the topics that the egress's cluster has.
            to_target: if True, a letter goes to the address whose function failed; if False, into the
                topic of its original record.

        Raises:
            ConfigurationError: if ``to_target`` is True and the egress has no replay topic.
        """
        self._topics = topics
        self._module = module
        self._egress = egress
        self._to_target = to_target
        if to_target and egress.replay_topic is None:
            raise ConfigurationError(
                f"{egress.label} has no replayTopic, which --to-target needs; declare one, or replay "
                "without --to-target"
            )

    def replay(self, letter: DeadLetter, lacks: Container[str] = ()) -> Replay:
        """Return the record that replays a letter.

        Args:
            letter: the dead letter.
            lacks: the names of the parts that the letter may lack, because the caller replaces them.

        Raises:
            ConfigurationError: if the letter cannot be replayed; the error text says what to do.
        """
        missing_parts = sorted(part for part in letter.left_out if part not in lacks)
        if missing_parts:
            where = "topic {topic}, partition {partition}, offset {offset}"
            place = defaultdict(lambda: "?", letter.facts)
            raise ConfigurationError(
                f"dead letter {letter.id} lacks the {','.join(missing_parts)} of its record, which was "
                f"too large for it; send the record at {where.format_map(place)} again"
            )
        return self._into_replays(letter) if self._to_target else self._into_origin(letter)

    def _into_replays(self, letter: DeadLetter) -> Replay:
        if letter.target_type is None:
            raise ConfigurationError(
                f"dead letter {letter.id} has no target: its record could not be read "
                f"({letter.facts.get('error-message', '')}); replay it without --to-target"
            )
        id_ = letter.target_id or letter.key
        headers = [*letter.headers, *replay_headers(letter.facts, letter.key, id_)]
        return Replay(str(self._egress.replay_topic), id_, letter.value, headers)

    def _into_origin(self, letter: DeadLetter) -> Replay:
        origin = letter.facts.get("topic")
        if origin is None or origin == self._egress.replay_topic:
            raise ConfigurationError(
                f"dead letter {letter.id} is a message from "
                f"{letter.facts.get('caller', 'a function')}, and not a record of a topic; replay "
                "it with --to-target"
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
                f"dead letter {letter.id} came from {origin} by ingress {connectors[0].id}, which is not "
                "a Kafka topic; "
                + (
                    f"it has no target: write the record to {origin} again"
                    if letter.target_type is None
                    else "replay it with --to-target"
                )
            )
        if addresses and self._egress.address not in addresses:
            raise ConfigurationError(
                f"dead letter {letter.id} came from topic {origin}, which is on another cluster than "
                "the dead letters, so that one transaction cannot write to both; replay it with "
                "--to-target"
            )
        if origin not in self._topics:
            raise ConfigurationError(
                f"dead letter {letter.id} came from topic {origin}, which does not exist any more; "
                "create it again, or replay the letter with --to-target"
            )
        return Replay(origin, letter.key, letter.value, letter.headers)
