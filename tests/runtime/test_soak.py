# SPDX-License-Identifier: Apache-2.0
"""A short slice of what ``make soak`` does for hours."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from class_archive import java_options
from soak import Soak, found_wrong
from soak_app import chained

from statefun.dev import EmbeddedKafka


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedKafka]:
    """Run a broker that may be frozen and killed."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.mark.broker
@pytest.mark.spark
def test_the_topic_holds_what_the_surviving_state_says(
    own_broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """Killed when a record is published and nobody has noted it yet, and at a random instant."""
    soak = Soak(own_broker, tmp_path, random.Random(1), "short-", java_options=java_options())
    soak.create_topics()
    soak.send(500)
    soak.crash_at("after publish, exactly-once")
    soak.harass(kills=1, messages=1000)

    assert soak.finish() == ""
    assert soak.done["after publish, exactly-once"] == soak.done["drivers killed"] == 1


TOKENS = ["a", "b", "c"]
CHAIN = [*enumerate(TOKENS, 1)]
DIGEST = functools.reduce(chained, TOKENS, "")


@pytest.mark.parametrize(
    ("semantic", "chain", "problem"),
    [
        ("exactly-once", CHAIN, ""),
        ("exactly-once", [*CHAIN, CHAIN[0]], "1 records came twice"),
        ("exactly-once", CHAIN[:2], "counted 3, but the topic has [1, 2]"),
        ("exactly-once", CHAIN[::-1], "counted 3, but the topic has [3, 2, 1]"),
        ("exactly-once", [*CHAIN[:2], (3, "d")], "the topic holds what the state denies"),
        ("at-least-once", [*CHAIN, *CHAIN[1:]], ""),
        ("at-least-once", CHAIN[1:], "counted 3, but the topic has [2, 3]"),
        ("none", CHAIN[1:], ""),
        ("none", [*CHAIN, (3, "d")], "two tokens of one"),
    ],
)
def test_the_verdict_finds_what_is_wrong(
    semantic: str, chain: list[tuple[int, str]], problem: str
) -> None:
    """Lost, doubled, swapped and foreign records, as far as the semantic excludes them."""
    assert found_wrong(semantic, chain, 3, DIGEST) == problem
