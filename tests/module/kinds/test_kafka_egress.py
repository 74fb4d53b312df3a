# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from statefun.module.loader import parse_module
from statefun.module.location import Location
from statefun.module.model import DeliverySemantic, KafkaEgress
from statefun.sdk.address import TypeName
from statefun.sdk.errors import ModuleError
from statefun.sdk.failure import OnFailure


def test_reads_a_minimal_egress(read_egress: Callable[..., KafkaEgress]) -> None:
    """Missing keys have the documented default."""
    egress = read_egress()

    assert egress == KafkaEgress(
        id=TypeName("example", "out"),
        address="kafka:9092",
        location=Location("module.yaml", 1, 1),
        delivery_semantic=DeliverySemantic.AT_LEAST_ONCE,
        transaction_timeout=timedelta(minutes=15),
        properties={},
    )


@pytest.mark.parametrize("semantic", list(DeliverySemantic))
def test_reads_delivery_semantics(
    read_egress: Callable[..., KafkaEgress], semantic: DeliverySemantic
) -> None:
    """All three semantics are read."""
    egress = read_egress(f"  deliverySemantic: {{type: {semantic.value}}}\n")

    assert egress.delivery_semantic is semantic


@pytest.mark.parametrize("key", ["transactionTimeout", "transactionTimeoutMillis"])
@pytest.mark.parametrize("value", ["2min", "2 minutes", "120000", "'120000'", "120s"])
def test_reads_timeouts_under_both_names(
    read_egress: Callable[..., KafkaEgress], key: str, value: str
) -> None:
    """Both keys take durations and plain milliseconds."""
    egress = read_egress(f"  deliverySemantic: {{type: exactly-once, {key}: {value}}}\n")

    assert egress.transaction_timeout == timedelta(minutes=2)


def test_both_timeouts_may_agree(read_egress: Callable[..., KafkaEgress]) -> None:
    """Both keys may be set to the same duration."""
    egress = read_egress(
        "  deliverySemantic:\n"
        "    type: exactly-once\n"
        "    transactionTimeout: 1min\n"
        "    transactionTimeoutMillis: 60000\n"
    )

    assert egress.transaction_timeout == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("delivery", "problem"),
    [
        (
            "{type: sometimes}",
            (
                "28: spec.deliverySemantic.type: Invalid delivery semantic type: sometimes; "
                "valid types are [at-least-once, exactly-once, none]"
            ),
        ),
        (
            "exactly-once",
            (
                "21: spec.deliverySemantic: "
                "expected a mapping with the key type, but found a single value"
            ),
        ),
        (
            "{type: none, transactionTimeout: 1min}",
            (
                "34: spec.deliverySemantic.transactionTimeout: "
                "'transactionTimeout' is only used with type exactly-once"
            ),
        ),
        (
            "{type: at-least-once, transactionTimeoutMillis: 1}",
            (
                "43: spec.deliverySemantic.transactionTimeoutMillis: "
                "'transactionTimeoutMillis' is only used with type exactly-once"
            ),
        ),
        (
            "{type: exactly-once, transactionTimeout: 1000, transactionTimeoutMillis: 2000}",
            (
                "21: spec.deliverySemantic: 'transactionTimeout' and 'transactionTimeoutMillis' "
                "are different; give one of them"
            ),
        ),
        (
            "{type: exactly-once, transactionTimeout: 15x}",
            (
                "62: spec.deliverySemantic.transactionTimeout: '15x' is not a duration; write a whole "
                "number and a unit (d, h, min, s, ms, us or ns), such as '15min'; "
                "without a unit it is milliseconds"
            ),
        ),
        (
            "{type: exactly-once, transactionTimeout: 999}",
            (
                "62: spec.deliverySemantic.transactionTimeout: "
                "'999' is out of range; Kafka takes 1000 ms to 2147483647 ms"
            ),
        ),
        (
            "{type: exactly-once, transactionTimeout: 25d}",
            (
                "62: spec.deliverySemantic.transactionTimeout: "
                "'25d' is out of range; Kafka takes 1000 ms to 2147483647 ms"
            ),
        ),
    ],
)
def test_reports_bad_delivery_semantics(
    egress_text: Callable[..., str],
    findings: Callable[..., list[str]],
    delivery: str,
    problem: str,
) -> None:
    """Each mistake is one problem with a correction."""
    found = findings(egress_text(f"  deliverySemantic: {delivery}\n"))

    assert found == [f"m.yaml:5:{problem}"]


def test_timeout_property_counts_without_key(read_egress: Callable[..., KafkaEgress]) -> None:
    """The property sets the timeout of exactly-once if the key does not."""
    egress = read_egress(
        "  deliverySemantic: {type: exactly-once}\n"
        "  properties: {transaction.timeout.ms: 5000, linger.ms: 5}\n"
    )

    assert egress.transaction_timeout == timedelta(seconds=5)
    assert egress.properties == {"linger.ms": "5"}


def test_keys_win_over_properties(read_egress: Callable[..., KafkaEgress]) -> None:
    """A key replaces the property of the same meaning, which is not passed on."""
    egress = read_egress(
        "  deliverySemantic: {type: exactly-once, transactionTimeout: 1s}\n"
        "  properties:\n"
        "    - transaction.timeout.ms: 5000\n"
        "    - bootstrap.servers: other:9092\n"
    )

    assert egress.address == "kafka:9092"
    assert egress.transaction_timeout == timedelta(seconds=1)
    assert egress.properties == {}


def test_address_may_be_a_property(read_egress: Callable[..., KafkaEgress]) -> None:
    """Without the key, the property of the same meaning sets the address."""
    egress = read_egress("  properties: [{bootstrap.servers: 'p:1'}]\n", without="address")

    assert egress.address == "p:1"


def test_reports_missing_address(
    egress_text: Callable[..., str], findings: Callable[..., list[str]]
) -> None:
    """An egress needs the address of the brokers."""
    found = findings(egress_text(without="address"))

    assert found == [
        (
            "m.yaml:3:3: spec: missing key 'address' or property 'bootstrap.servers': "
            "the Kafka brokers to connect to first, comma-separated host:port"
        )
    ]


def test_reads_dead_letter_and_replay_topics(egress_text: Callable[..., str]) -> None:
    """An egress has a topic for dead letters, and one for their replays."""
    (egress,) = parse_module(
        egress_text("  deadLetterTopic: dead\n  replayTopic: again\n")
    ).egresses

    assert (egress.dead_letter_topic, egress.replay_topic) == ("dead", "again")


def test_a_replay_topic_needs_a_dead_letter_topic(egress_text: Callable[..., str]) -> None:
    """Without dead letters there is nothing to replay."""
    with pytest.raises(
        ModuleError, match="'replayTopic' needs 'deadLetterTopic' in the same egress"
    ):
        parse_module(egress_text("  replayTopic: again\n"))


@pytest.mark.parametrize(
    "name", ["key.serializer", "value.serializer", "interceptor.classes", "transactional.id"]
)
def test_reports_forbidden_properties(findings: Callable[..., list[str]], name: str) -> None:
    """Properties that the runtime decides are refused, with the reason."""
    (found,) = findings(
        "kind: io.statefun.kafka.v1/egress\n"
        f"spec: {{id: a/b, address: 'kafka:9092', properties: {{{name}: x}}}}\n"
    )

    assert f"spec.properties.{name}: property {name!r} must not be set: " in found


@pytest.mark.parametrize("key", ["deadLetterTopic", "replayTopic"])
def test_invalid_topic_names_are_reported(
    read_egress: Callable[..., KafkaEgress], key: str
) -> None:
    """A dead-letter or replay topic with a name that Kafka refuses is a problem of the file."""
    more = "  deadLetterTopic: dead\n" if key == "replayTopic" else ""

    with pytest.raises(
        ModuleError, match=rf"spec.{key}: 'no such/topic!' is not a name of a topic"
    ):
        read_egress(f"{more}  {key}: no such/topic!\n")


@pytest.mark.parametrize("name", ["max.request.size", "message.max.bytes"])
def test_reads_the_limit_of_record_size(read_egress: Callable[..., KafkaEgress], name: str) -> None:
    """The property has the name of Java or librdkafka, and is not passed on to the client."""
    egress = read_egress(f"  properties: [{{{name}: 5000}}]\n")

    assert (egress.max_record_size, egress.properties) == (5000, {})


def test_different_limits_of_record_size_are_reported(
    read_egress: Callable[..., KafkaEgress],
) -> None:
    """Both names may be set, but only to one size."""
    more = "  properties: [{max.request.size: 5000}, {message.max.bytes: 6000}]\n"

    with pytest.raises(ModuleError, match=r"'max.request.size' and 'message.max.bytes' are diff"):
        read_egress(more)


@pytest.mark.parametrize("policy", list(OnFailure))
def test_reads_the_policy_for_refused_records(
    read_egress: Callable[..., KafkaEgress], policy: OnFailure
) -> None:
    """The key takes the words of failure policies; without it, the runtime decides."""
    assert read_egress(f"  onRefused: {policy.value}\n").on_refused is policy
    assert read_egress().on_refused is None


def test_an_egress_without_guarantee_has_no_policy_for_refused_records(
    read_egress: Callable[..., KafkaEgress],
) -> None:
    """The key would have no effect, so it is reported."""
    with pytest.raises(ModuleError, match=r"'onRefused' cannot be used with deliverySemantic none"):
        read_egress("  onRefused: skip\n  deliverySemantic: {type: none}\n")
