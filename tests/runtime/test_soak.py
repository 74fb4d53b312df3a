# SPDX-License-Identifier: Apache-2.0
"""A short version of ``make soak``."""

from __future__ import annotations

import contextlib
import functools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from class_archive import java_options
from soak import has_lanes, shared_points
from soak_app import INSIDE, OF_PUBLISHING, POINTS
from soak_functions import chained
from soak_run import Soak
from soak_troubles import ENDINGS, TROUBLES, harass, kill_all, kill_program
from soak_verdict import Surviving, disorder, found_wrong, wrong_windows

from statefun.dev import EmbeddedKafka

OTHER_ENDINGS = [ending for ending in ENDINGS if ending not in {kill_all, kill_program}]
"""The crash at a point is an end of both, and a frozen JVM outlives its program, too."""


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedKafka]:
    """Run a broker that may be frozen and killed."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.mark.long(minutes=5)
@pytest.mark.broker
@pytest.mark.spark
def test_the_topic_holds_what_the_surviving_state_says(
    own_broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """It is killed after a publication that is not recorded yet, then in each other way."""
    soak = Soak(own_broker, own_broker.bootstrap_servers, tmp_path, random.Random(1), "short-")
    soak.java_options = java_options()
    with contextlib.closing(soak):
        soak.create_topics()
        soak.send(500)
        soak.crash_at("after publish, exactly-once")
        harass(soak, len(OTHER_ENDINGS), messages=1000, endings=OTHER_ENDINGS)

        assert soak.finish() == ""
    assert soak.done["drivers that ended while chunks waited"]
    assert soak.page.looks
    kinds = [kind for kind in soak.done if not kind.startswith("drivers that ended")]
    assert "workers killed" in kinds
    assert len(kinds) == 2 + len(OTHER_ENDINGS) + len(TROUBLES)


@pytest.mark.long(minutes=1.1)
@pytest.mark.broker
@pytest.mark.spark
def test_what_waits_in_chunks_survives_the_driver(
    own_broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """It is killed while some chunks have come back and others have not: all is in order, once."""
    soak = Soak(own_broker, own_broker.bootstrap_servers, tmp_path, random.Random(1), "chunks-")
    soak.java_options = java_options()
    with contextlib.closing(soak):
        soak.create_topics()
        size = soak.write(300)
        driver = soak.start()
        soak.wait_for(driver, lambda: soak.waiting() >= size)
        most = soak.waiting()
        soak.elsewhere.start()
        soak.wait_for(driver, lambda: soak.waiting() < most)
        kill_all(soak, driver)
        soak.elsewhere.kill()

        assert soak.has_chunks()
        assert soak.finish() == ""


def test_seeds_share_all_named_points() -> None:
    """Each point as often, and none of publishing where Python workers publish."""
    hands = shared_points(of=10, hits=3)

    dealt = Counter(point for hand in hands for point in hand)
    assert dealt == dict.fromkeys([*POINTS, INSIDE], 3)
    assert max(map(len, hands)) - min(map(len, hands)) <= 1
    for seed, hand in enumerate(hands):
        assert not (has_lanes(seed) and OF_PUBLISHING.intersection(hand))


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


def test_the_verdict_finds_entries_in_another_order() -> None:
    """The token of an entry begins with its number, which is that of the message in its ledger."""
    chain = [(1, "1 a"), (2, "2 b"), (3, "3 c")]

    assert not disorder(chain)
    assert not disorder(chain[1:])
    assert "{2: 3, 3: 2}" in disorder([(1, "1 a"), (2, "3 c"), (3, "2 b")])


def test_the_verdict_finds_windows_that_close_twice_and_lost_entries() -> None:
    """Late entries count, wherever they come; windows close in the order of their starts."""
    chain = [(1, "100 3 a"), (2, "late 1 b"), (3, "101 2 c")]

    assert not wrong_windows(chain, 6)
    assert "7 entries were sent" in wrong_windows(chain, 7)
    assert "[100, 100]" in wrong_windows([(1, "100 3 a"), (2, "100 3 b")], 6)
    assert "[101, 100]" in wrong_windows([(1, "101 3 a"), (2, "100 3 b")], 6)


def test_after_a_restore_only_what_the_snapshot_knows_counts() -> None:
    """A function's later records are replaced by those of the restored application; no others are."""
    surviving = Surviving()
    for restores, entry in [(0, (1, "a")), (0, (2, "b")), (0, (3, "lost")), (1, (3, "c"))]:
        surviving.add(restores, "f", *entry)
    surviving.add(1, "f", 3, "c")  # twice in one life of a checkpoint
    surviving.add(0, "g", 1, "x")

    assert surviving.chains == {"f": [*CHAIN, CHAIN[-1]], "g": [(1, "x")]}
    assert surviving.records == 5


def test_after_a_restore_a_function_may_get_no_message_again() -> None:
    """What the snapshot does not know of it is lost; later records must all be counted."""
    surviving = Surviving()
    for restores, entry in [(0, (1, "a")), (0, (2, "b")), (0, (3, "lost"))]:
        surviving.add(restores, "f", *entry)
    surviving.add(1, "g", 1, "x")

    assert surviving.known_to(0, "f", 2) == surviving.chains["f"]
    assert surviving.known_to(1, "f", 2) == CHAIN[:2]
    assert surviving.known_to(1, "g", 0) == [(1, "x")]
    assert surviving.known_to(1, "new", 0) == []
