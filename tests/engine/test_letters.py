# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from statefun import Address, KafkaEgress, RecordError, secret_type, simple_type
from statefun.engine.letters import DeadLetterTopic, Original, facts
from statefun.engine.sinks import headers_size

SIZES = st.integers(0, 30_000)
NAMES = ["value", "headers", "key"]


def size(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> int:
    """Return the bytes of key, value and headers."""
    return len(key or b"") + len(value or b"") + headers_size(headers)


@given(
    key=st.none() | SIZES.map(lambda n: b"k" * n),
    value=st.none() | SIZES.map(lambda n: b"v" * n),
    headers=st.lists(
        st.tuples(st.sampled_from(["trace", "statefun-time"]), SIZES.map(lambda n: b"h" * n)),
        max_size=3,
    ),
    facts=st.dictionaries(
        st.sampled_from(["error-message", "target", "caller", "topic"]),
        st.integers(0, 9000).flatmap(
            lambda n: st.sampled_from(["e" * n, "\u00e9" * n, "\ud800" * n])
        ),
    ),
    limit=st.integers(20_000, 60_000),
)
def test_a_letter_fits_and_says_what_it_lacks(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    facts: dict[str, str],
    limit: int,
) -> None:
    """Each part is whole, or a header names it; no part is left out that would have fitted."""
    topic = DeadLetterTopic("t/out", "dead", limit)
    own = [each for each in headers if not each[0].startswith("statefun-")]

    letter, left_out = topic.letter(Original(key, value, headers), facts.items())

    found = dict(letter.headers or ())
    names = [name for name in found if name.startswith("statefun-")]
    cut = (found.get("statefun-cut") or b"").decode().split(",")
    assert size(letter.key, letter.value, [*(letter.headers or ())]) <= limit
    assert (found.get("statefun-left-out") or b"").decode().split(",") == (left_out or [""])
    assert [name for name in NAMES if name in left_out] == left_out
    assert letter.key == (None if "key" in left_out else key)
    assert letter.value == (None if "value" in left_out else value)
    kept = [each for each in letter.headers or () if each[0] not in names]
    assert kept == ([] if "headers" in left_out else own)
    for name, text in facts.items():
        content = text.encode("utf-8", "backslashreplace")
        got = found[f"statefun-{name}"] or b""
        if name in cut:
            assert len(got) <= 2003
            assert content.startswith(got.removesuffix(b"..."))
        else:
            assert got == content
    if size(key, value, own) + 12_000 < limit:
        assert left_out == []


def test_a_target_that_a_replay_needs_is_whole() -> None:
    """Facts that must stay whole are never cut; the other parts are left out instead."""
    topic = DeadLetterTopic("t/out", "dead", 20_000)
    original = Original(b"k" * 15_000, b"value", [])

    letter, left_out = topic.letter(original, [("target", "t" * 19_000)], ["target"])

    assert left_out == ["value", "key"]
    assert dict(letter.headers or ())["statefun-target"] == b"t" * 19_000


def test_a_traceback_may_be_longer_than_other_texts() -> None:
    """A traceback beyond its own limit is cut, and a header names it."""
    topic = DeadLetterTopic("t/out", "dead", 60_000)
    original = Original(b"k", b"value", [])

    whole, _ = topic.letter(original, [("traceback", "t" * 8000)])
    cut, _ = topic.letter(original, [("traceback", "\u00e9" * 8000)])

    assert dict(whole.headers or ()) == {"statefun-traceback": b"t" * 8000}
    found = dict(cut.headers or ())
    assert found["statefun-cut"] == b"traceback"
    assert (found["statefun-traceback"] or b"").decode() == "\u00e9" * 4000 + "..."


def test_an_egress_may_have_no_dead_letter_topic() -> None:
    """Then there is no place for letters."""
    plain = KafkaEgress.for_id("t/out").with_kafka_address("localhost:1")
    with_topic = KafkaEgress.for_id("t/out").with_kafka_address("localhost:1")
    topic = DeadLetterTopic.of(with_topic.with_option("deadLetterTopic", "dead").build())

    assert DeadLetterTopic.of(None) is None
    assert DeadLetterTopic.of(plain.build()) is None
    assert topic is not None
    assert (topic.egress, topic.topic) == ("t/out", "dead")


def test_the_facts_of_a_record_that_was_not_decoded_say_so() -> None:
    """A message without caller, target and traceback has no such facts."""
    error = RecordError("no key")
    record = facts(
        error,
        "RecordError",
        attempts=1,
        time=7,
        caller=None,
        origin={"topic": "users"},
        typename="t/v",
        is_encoded=True,
        target=None,
        traceback="",
    )
    message = facts(
        error,
        "KeyError",
        attempts=2,
        time=8,
        caller=Address("t/g", "Bob"),
        origin={},
        typename="t/v",
        target=Address("t/f", "Ada"),
        traceback="here",
    )

    about = {"error-code": "SF400", "error-message": "no key", "type": "t/v"}
    assert dict(record) == {
        **about,
        "error-type": "RecordError",
        "attempts": "1",
        "time": "7",
        "topic": "users",
        "encoded": "yes",
    }
    assert dict(message) == {
        **about,
        "error-type": "KeyError",
        "attempts": "2",
        "time": "8",
        "caller": "t/g/Bob",
        "target": "t/f/Ada",
        "target-type": "t/f",
        "traceback": "here",
    }


def test_a_letter_with_a_secret_value_says_so() -> None:
    """The commands do not know the types of the program."""
    secret_type(simple_type("test.secrets/Letter", bytes, bytes))
    made = facts(
        RecordError("no key"),
        "RecordError",
        attempts=1,
        time=7,
        caller=None,
        origin={},
        typename="test.secrets/Letter",
        target=None,
        traceback="",
    )

    assert ("secret", "yes") in made
