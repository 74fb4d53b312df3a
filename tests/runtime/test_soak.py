# SPDX-License-Identifier: Apache-2.0
"""A short slice of what ``make soak`` does for hours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from soak import Soak

from statefun.dev import EmbeddedKafka

pytestmark = pytest.mark.broker


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


@pytest.mark.spark
def test_the_topic_holds_what_the_surviving_state_says(
    own_broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """Killed when a record is published and nobody has noted it yet, and at a random instant."""
    application = soak(own_broker, tmp_path, "exactly-once")
    application.send(500)
    application.crash_at("after commit")
    application.harass(kills=1, messages=1000)
    application.finish()

    assert application.done["after commit"] == application.done["drivers killed"] == 1
    assert application.verdict() == ""


def test_a_verdict_can_fail(own_broker: EmbeddedKafka, tmp_path: Path) -> None:
    """Messages that nobody has handled are found."""
    application = soak(own_broker, tmp_path, "none")
    application.sent = 10

    assert application.verdict() == "10 messages were sent, and 0 were handled"
