# SPDX-License-Identifier: Apache-2.0
"""Lines for records as they are written."""

from __future__ import annotations

import pytest
from harness import KafkaHarness, wait

from statefun.dev.record_feed import RecordFeed
from statefun.dev.records import send_record

pytestmark = pytest.mark.broker


@pytest.mark.long(minutes=0.9)
def test_records_are_shown_from_the_start_of_the_feed_on(kafka: KafkaHarness) -> None:
    """Also those of topics that are new; not those that were there."""
    users, lines = kafka.topic("users"), list[str]()
    kafka.send(users, [("old", "x")])

    def own() -> list[str]:
        return [line for line in lines if users in line or ".greetings" in line]

    feed = RecordFeed(kafka.address, lines.append)
    feed.inputs = {users}
    with feed:
        send_record(kafka.address, users, "ada", "Ada\n")
        greetings = kafka.topic("greetings")
        send_record(kafka.address, greetings, "ada", "x" * 400)
        kafka.send(greetings, [(None, None)])
        wait(lambda: len(own()) >= 3)

    assert own()[0] == f"in  {users}  ada  Ada\\n"
    assert own()[1:] == [f"out {greetings}  ada  {'x' * 297}...", f"out {greetings}  -  -"]


def test_at_the_broker_of_others_only_the_topics_of_ingresses_are_shown(
    kafka: KafkaHarness,
) -> None:
    """Their earlier records are not shown."""
    users, others, lines = kafka.topic("users"), kafka.topic("others"), list[str]()
    kafka.send(users, [("old", "x")])

    feed = RecordFeed(kafka.address, lines.append, all_topics=False)
    feed.inputs = {users}
    with feed:

        def is_shown() -> bool:
            kafka.send(others, [("ada", "x")])
            kafka.send(users, [("ada", "Ada")])
            return bool(lines)

        wait(is_shown)

    assert set(lines) == {f"in  {users}  ada  Ada"}
