# SPDX-License-Identifier: Apache-2.0
"""A short slice of what ``make soak`` does for hours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from soak import Soak

from statefun.dev import EmbeddedKafka

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedKafka]:
    """Run a broker that may be frozen and killed."""
    with EmbeddedKafka() as broker:
        yield broker


def soak(broker: EmbeddedKafka, folder: Path, semantic: str) -> Soak:
    """Return an application with topics of its own."""
    made = Soak(broker, folder, semantic, random.Random(1), f"{semantic}-")
    made.create_topics()
    return made


def test_killed_at_random_instants_the_topic_holds_what_the_state_says(
    own_broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """Drivers and workers, with functions whose effects nobody can predict."""
    application = soak(own_broker, tmp_path, "exactly-once")
    application.harass(kills=2, messages=2000)
    application.finish()

    assert application.verdict() == ""


@pytest.mark.parametrize("semantic", ["exactly-once", "at-least-once"])
def test_killed_between_commit_and_clean_up(
    own_broker: EmbeddedKafka, tmp_path: Path, semantic: str
) -> None:
    """The point at which a record is published, and nobody has noted it yet."""
    application = soak(own_broker, tmp_path, semantic)
    application.send(500)
    application.crash_at("after commit")
    application.finish()

    assert application.done["after commit"] == 1
    assert application.verdict() == ""


def test_a_verdict_can_fail(own_broker: EmbeddedKafka, tmp_path: Path) -> None:
    """A record too many is found."""
    application = soak(own_broker, tmp_path, "none")
    application.sent = 10

    assert application.verdict() == "10 messages were sent, and 0 were handled"
