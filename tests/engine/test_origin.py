# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.engine.origin import facts_of, key_of, original, replay_headers
from statefun.protocol.runtime_pb2 import RecordOrigin

Header = RecordOrigin.Header
HEADERS = st.lists(
    st.builds(Header, key=st.text().filter(lambda key: not key.startswith("statefun-")))
)
NUMBERS = st.integers(0, 2**63 - 1)
ORIGINS = st.builds(
    RecordOrigin,
    topic=st.text("abc.-_", min_size=1),
    partition=st.integers(0, 2**31 - 1),
    offset=NUMBERS,
    timestamp=NUMBERS,
    route=NUMBERS,
    headers=HEADERS,
)
KEYS = st.none() | st.binary()


def replayed(first: RecordOrigin, key: bytes | None, id_: bytes) -> RecordOrigin:
    """Return the origin of the record that a replay writes, as dispatching finds it."""
    facts = {name: str(value) for name, value in facts_of(first).items()}
    again = RecordOrigin(topic="again", partition=1, offset=7, timestamp=9)
    again.headers.extend(first.headers)
    again.headers.append(Header(key="statefun-type", value=b"t/text"))
    for name, value in replay_headers(facts, key, id_):
        again.headers.append(Header(key=name, value=value))
    return again


def test_a_replay_has_the_event_time_of_its_message() -> None:
    """Without it, no window could take a message that another function has sent."""
    headers = dict(replay_headers({"event-time": "1767225600000"}, b"k", b"k"))

    assert headers == {"statefun-event-time": b"1767225600000"}


@given(ORIGINS, KEYS, st.binary())
def test_a_replayed_record_comes_from_where_it_came_from_at_first(
    first: RecordOrigin, key: bytes | None, id_: bytes
) -> None:
    """Its topic, place, time, key and own headers are restored, however often it is replayed."""
    once = original(replayed(first, key, id_))
    twice = original(replayed(once, key, id_))

    if key is None:
        first.keyless = True
    elif key != id_:
        first.key = key
    assert once == first
    assert twice == first


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic", None),
        ("topic", b"\xff"),
        ("partition", None),
        ("partition", b"one"),
        ("offset", b""),
        ("route", b"none"),
        ("timestamp", b"99999999999999999999"),
    ],
)
def test_headers_that_are_not_ours_say_nothing(name: str, value: bytes | None) -> None:
    """If another program writes a record into the topic of replays, this topic is its origin."""
    again = replayed(RecordOrigin(topic="users", partition=1, offset=2, timestamp=3), None, b"")
    (header,) = [each for each in again.headers if each.key == f"statefun-{name}"]
    if value is None:
        again.headers.remove(header)
    else:
        header.value = value

    found = original(again)

    assert (found.topic, found.partition, found.offset, found.timestamp) == ("again", 1, 7, 9)


def test_a_record_without_a_key_has_none() -> None:
    """The id of its address is not its key; an own key goes before the id."""
    assert key_of(RecordOrigin(keyless=True), b"id") is None
    assert key_of(RecordOrigin(key=b"key"), b"id") == b"key"
    assert key_of(RecordOrigin(), b"id") == b"id"
