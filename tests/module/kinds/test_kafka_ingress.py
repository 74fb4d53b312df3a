# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

import pytest

from statefun.module.loader import parse_module
from statefun.module.location import Location
from statefun.module.model import (
    AutoOffsetReset,
    FromDate,
    FromEarliest,
    FromGroupOffsets,
    FromLatest,
    FromSpecificOffsets,
    KafkaIngress,
    OnDataLoss,
    StartupPosition,
    TopicPartition,
)
from statefun.module.topic_routes import TopicRoute
from statefun.sdk.address import RESERVED, TypeName
from statefun.sdk.errors import ModuleError
from statefun.sdk.failure import OnFailure

QUARTER_PAST_FOUR = datetime(2020, 2, 1, 4, 15, tzinfo=timezone.utc)
DATE = "'2020-02-01 04:15:00.00 Z'"


def test_reads_a_minimal_ingress(read_ingress: Callable[..., KafkaIngress]) -> None:
    """Missing keys have the documented default."""
    ingress = read_ingress()

    assert ingress == KafkaIngress(
        id=TypeName("example", "in"),
        address="kafka:9092",
        topics=(
            TopicRoute(
                topic="names",
                value_type=TypeName("example", "Name"),
                targets=(TypeName("example", "greeter"),),
                location=Location("module.yaml", 7, 7),
            ),
        ),
        location=Location("module.yaml", 1, 1),
        consumer_group_id="group",
        startup_position=FromGroupOffsets(),
        auto_offset_reset=AutoOffsetReset.LATEST,
        properties={},
    )


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("type: group-offsets", FromGroupOffsets()),
        ("type: earliest", FromEarliest()),
        ("type: latest", FromLatest()),
        (
            "type: specific-offsets, offsets: [{a/0: 91}, {a/1: 11}]",
            FromSpecificOffsets({TopicPartition("a", 0): 91, TopicPartition("a", 1): 11}),
        ),
        (f"type: date, date: {DATE}", FromDate(QUARTER_PAST_FOUR)),
        (f"type: at-timestamp, date: {DATE}", FromDate(QUARTER_PAST_FOUR)),
        (f"type: at-timestamp, timestamp: {DATE}", FromDate(QUARTER_PAST_FOUR)),
        ("type: at-timestamp, timestamp: 1580530500000", FromDate(QUARTER_PAST_FOUR)),
    ],
)
def test_reads_startup_positions(
    read_ingress: Callable[..., KafkaIngress], position: str, expected: StartupPosition
) -> None:
    """Every type of startup position is read."""
    ingress = read_ingress(f"  startupPosition: {{{position}}}\n")

    assert ingress.startup_position == expected


@pytest.mark.parametrize(
    ("position", "problem"),
    [
        (
            "type: newest",
            (
                "27: spec.startupPosition.type: Invalid startup position type: newest; valid values "
                "are [group-offsets, earliest, latest, specific-offsets, date, at-timestamp]"
            ),
        ),
        (
            "typ: earliest",
            (
                "21: spec.startupPosition.typ: "
                "unknown key 'typ'; did you mean 'type'? allowed keys: date, offsets, timestamp, type"
            ),
        ),
        (
            "offsets: [{a/0: 1}]",
            (
                "20: spec.startupPosition: missing required key 'type': one of group-offsets, "
                "earliest, latest, specific-offsets, date, at-timestamp"
            ),
        ),
        (
            "type: earliest, offsets: [{a/0: 1}]",
            "37: spec.startupPosition.offsets: 'offsets' is only used with type specific-offsets",
        ),
        (
            f"type: latest, date: {DATE}",
            "35: spec.startupPosition.date: 'date' is only used with type date or at-timestamp",
        ),
        (
            "type: specific-offsets",
            (
                "20: spec.startupPosition: missing required key 'offsets': "
                "the offset of each 'topic/partition' to start at"
            ),
        ),
        (
            "type: date",
            (
                "20: spec.startupPosition: missing required key 'date': "
                "the time to start at, with a time zone; reading begins at the first record of "
                "this time or later"
            ),
        ),
        (
            f"type: date, date: {DATE}, timestamp: 5",
            "20: spec.startupPosition: has both 'date' and 'timestamp'; give one of them",
        ),
        (
            f"type: date, dat: {DATE}",
            (
                "33: spec.startupPosition.dat: "
                "unknown key 'dat'; did you mean 'date'? allowed keys: date, timestamp, type"
            ),
        ),
        (
            "type: date, date: yesterday",
            (
                "39: spec.startupPosition.date: 'yesterday' is not a date; write a date such as "
                "'2020-02-01 04:15:00.00 Z', '2020-02-01T04:15:00+01:00' or epoch milliseconds"
            ),
        ),
    ],
)
def test_reports_bad_startup_positions(
    ingress_text: Callable[..., str],
    findings: Callable[..., list[str]],
    position: str,
    problem: str,
) -> None:
    """Each mistake is one problem with a correction."""
    text = ingress_text(f"  startupPosition: {{{position}}}\n")

    found = findings(text)

    assert found == [f"m.yaml:11:{problem}"]


@pytest.mark.parametrize(
    ("word", "reset"),
    [
        ("latest", AutoOffsetReset.LATEST),
        ("earliest", AutoOffsetReset.EARLIEST),
        ("EARLIEST", AutoOffsetReset.EARLIEST),
    ],
)
def test_reads_offset_reset(
    read_ingress: Callable[..., KafkaIngress], word: str, reset: AutoOffsetReset
) -> None:
    """Words are read in upper and lower case, as in Stateful Functions."""
    ingress = read_ingress(f"  autoOffsetResetPosition: {word}\n")

    assert ingress.auto_offset_reset is reset


def test_properties_are_strings_as_written(read_ingress: Callable[..., KafkaIngress]) -> None:
    """Numbers and booleans become their text in the file."""
    ingress = read_ingress(
        "  properties:\n    - a: 5\n    - b: true\n    - c: 1.50\n    - d: 0x1F\n    - e: ''\n"
    )

    assert ingress.properties == {"a": "5", "b": "true", "c": "1.50", "d": "0x1F", "e": ""}


@pytest.mark.parametrize(
    "properties", ["{a: 5, b: yes}", "[{a: 5}, {b: yes}]", "\n    - a: 5\n    - b: yes"]
)
def test_properties_are_a_list_or_a_mapping(
    read_ingress: Callable[..., KafkaIngress], properties: str
) -> None:
    """The documented list of single-key mappings, or one mapping."""
    ingress = read_ingress(f"  properties: {properties}\n")

    assert ingress.properties == {"a": "5", "b": "yes"}


def test_keys_win_over_properties(read_ingress: Callable[..., KafkaIngress]) -> None:
    """A key replaces the property of the same meaning, which is not passed on."""
    ingress = read_ingress(
        "  autoOffsetResetPosition: latest\n"
        "  properties:\n"
        "    - bootstrap.servers: other:9092\n"
        "    - group.id: other\n"
        "    - auto.offset.reset: earliest\n"
        "    - fetch.min.bytes: 5\n"
    )

    assert ingress.address == "kafka:9092"
    assert ingress.consumer_group_id == "group"
    assert ingress.auto_offset_reset is AutoOffsetReset.LATEST
    assert ingress.properties == {"fetch.min.bytes": "5"}


def test_properties_stand_in_for_keys(
    ingress_text: Callable[..., str], read_ingress: Callable[..., KafkaIngress]
) -> None:
    """Without a key, the property of the same meaning sets the value."""
    del ingress_text
    ingress = read_ingress(
        "  properties: {bootstrap.servers: 'p:1', auto.offset.reset: earliest}\n",
        without="address",
    )

    assert ingress.address == "p:1"
    assert ingress.auto_offset_reset is AutoOffsetReset.EARLIEST
    assert ingress.properties == {}


def test_group_property_stands_in_for_group_key(
    read_ingress: Callable[..., KafkaIngress],
) -> None:
    """A consumer group may be given as a property."""
    ingress = read_ingress("  properties: {group.id: p}\n", without="consumerGroupId")

    assert ingress.consumer_group_id == "p"


def test_reports_bad_properties(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]]
) -> None:
    """Every bad property is reported, without its value."""
    text = ingress_text(
        "  properties:\n"
        "    - a: 1\n"
        "      b: 2\n"
        "    - c\n"
        "    - d:\n"
        "    - e: [1]\n"
        "    - f: 1\n"
        "    - f: 2\n"
        "    - auto.offset.reset: none\n"
    )

    found = findings(text)

    path = "spec.properties"
    scalar = "the value of a property must be a string, a number or a boolean"
    assert found == [
        f"m.yaml:12:7: {path}[0]: expected exactly one 'name: value'",
        f"m.yaml:14:7: {path}[1]: expected exactly one 'name: value'",
        f"m.yaml:15:9: {path}[2].d: {scalar}",
        f"m.yaml:16:10: {path}[3].e: {scalar}",
        f"m.yaml:18:7: {path}[5].f: duplicate key 'f'; it first appears at m.yaml:17:7",
        (
            f"m.yaml:19:26: {path}[6].auto.offset.reset: "
            "Invalid autoOffsetResetPosition: none; valid values are [latest, earliest]"
        ),
    ]


@pytest.mark.parametrize("properties", ["5", "~"])
def test_unreadable_properties_do_not_make_keys_missing(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]], properties: str
) -> None:
    """If properties cannot be read, keys that they may replace are not reported as missing."""
    text = ingress_text(f"  properties: {properties}\n", without="address")

    found = findings(text)

    what = "nothing" if properties == "~" else "a single value"
    assert found == [
        f"m.yaml:10:15: spec.properties: expected a list of 'name: value', but found {what}"
    ]


def test_reports_missing_address(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]]
) -> None:
    """An ingress needs the address of the brokers."""
    found = findings(ingress_text(without="address"))

    assert found == [
        (
            "m.yaml:3:3: spec: missing key 'address' or property 'bootstrap.servers': "
            "the Kafka brokers to connect to first, comma-separated host:port"
        )
    ]


@pytest.mark.parametrize("position", ["", "  startupPosition: {type: group-offsets}\n"])
def test_reports_missing_consumer_group(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]], position: str
) -> None:
    """A start at group offsets needs a consumer group."""
    found = findings(ingress_text(position, without="consumerGroupId"))

    assert found == [
        (
            "m.yaml:3:3: spec: missing key 'consumerGroupId' or property 'group.id': "
            "startupPosition group-offsets, the default, starts at the offsets of this group"
        )
    ]


def test_misspelt_keys_have_one_problem_each(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]]
) -> None:
    """A misspelt key is not reported as missing as well, and the near miss is named."""
    text = ingress_text("  startupPositon: {type: earliest}\n")
    for right, wrong in [("address", "adress"), ("consumerGroupId", "consumerGroup")]:
        text = text.replace(right, wrong)
    text = text.replace("valueType", "valuetype").replace("topics", "Topics")

    found = findings(text)

    allowed = (
        "allowed keys: address, autoOffsetResetPosition, bootstrapFrom, commitOffsets, "
        "consumerGroupId, eventTime, failurePolicy, id, onDataLoss, properties, startupPosition, stopPosition, topics"
    )
    assert found == [
        f"m.yaml:4:3: spec.adress: unknown key 'adress'; did you mean 'address'? {allowed}",
        (
            "m.yaml:5:3: spec.consumerGroup: "
            f"unknown key 'consumerGroup'; did you mean 'consumerGroupId'? {allowed}"
        ),
        f"m.yaml:6:3: spec.Topics: unknown key 'Topics'; did you mean 'topics'? {allowed}",
        (
            "m.yaml:11:3: spec.startupPositon: "
            f"unknown key 'startupPositon'; did you mean 'startupPosition'? {allowed}"
        ),
    ]


def test_unknown_keys_without_a_similar_key_list_the_allowed_keys(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]]
) -> None:
    """The problem has no suggestion, but the list of keys."""
    found = findings(ingress_text("  zzz: 1\n"))

    assert found == [
        (
            "m.yaml:11:3: spec.zzz: unknown key 'zzz'; allowed keys: address, "
            "autoOffsetResetPosition, bootstrapFrom, commitOffsets, consumerGroupId, eventTime, "
            "failurePolicy, id, onDataLoss, properties, startupPosition, stopPosition, topics"
        )
    ]


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        (
            "example/in",
            "in",
            (
                "3:7: spec.id: "
                "'in' is not of the form <namespace>/<name>, such as 'com.example.fns/greeter'"
            ),
        ),
        (
            "example/in",
            "[a/b]",
            "3:7: spec.id: expected a typename, <namespace>/<name>, but found a list",
        ),
        ("kafka:9092", "", "4:11: spec.address: expected a string, but found nothing"),
        ("kafka:9092", "''", "4:12: spec.address: must not be empty"),
        ("kafka:9092", "{a: b}", "4:12: spec.address: expected a string, but found a mapping"),
        (
            "example/Name",
            "Name",
            (
                "8:18: spec.topics[0].valueType: "
                "'Name' is not of the form <namespace>/<name>, such as 'com.example.fns/greeter'"
            ),
        ),
        (
            "      valueType: example/Name\n",
            "",
            (
                "7:7: spec.topics[0]: "
                "missing required key 'valueType': the type of the records' values"
            ),
        ),
        (
            "\n        - example/greeter",
            " []",
            (
                "9:16: spec.topics[0].targets: "
                "must not be empty; list at least one of: functions, <namespace>/<name>"
            ),
        ),
        (
            "\n        - example/greeter",
            " example/greeter",
            (
                "9:16: spec.topics[0].targets: "
                "expected a list of functions, <namespace>/<name>, but found a single value"
            ),
        ),
        ("example/in", "statefun/in", f"3:7: spec.id: 'statefun/in' {RESERVED}"),
        (
            "example/Name",
            "statefun.failures/retry",
            f"8:18: spec.topics[0].valueType: 'statefun.failures/retry' {RESERVED}",
        ),
        (
            "example/greeter",
            "statefun.timers/bucket",
            f"10:11: spec.topics[0].targets[0]: 'statefun.timers/bucket' {RESERVED}",
        ),
    ],
)
def test_reports_bad_values(
    ingress_text: Callable[..., str],
    findings: Callable[..., list[str]],
    right: str,
    wrong: str,
    problem: str,
) -> None:
    """Each bad value is one problem at its place."""
    text = ingress_text().replace(right, wrong)

    found = findings(text)

    assert found == [f"m.yaml:{problem}"]


@pytest.mark.parametrize(
    "target", ["greeter", "a/*", "'*/a'", "a/b/c", "'a/b,a/c'", "a/b a/c", "/a"]
)
def test_reports_bad_targets(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]], target: str
) -> None:
    """Targets are functions, without wildcards and comma-separated lists."""
    text = ingress_text().replace("example/greeter", target)

    found = findings(text)

    quoted = target if target.startswith("'") else repr(target)
    assert found == [
        (
            f"m.yaml:10:11: spec.topics[0].targets[0]: {quoted} is invalid syntax for target "
            "functions. Only <namespace>/<name> is supported; list every function on its own."
        )
    ]


def test_reports_empty_topics(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]]
) -> None:
    """An ingress without topics would do nothing."""
    text = ingress_text()
    text = text[: text.index("topics:")] + "topics: []\n"

    found = findings(text)

    assert found == [
        "m.yaml:6:11: spec.topics: must not be empty; list at least one of: mappings with a topic"
    ]


def test_reports_duplicate_targets(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]]
) -> None:
    """A function that is listed twice would get each record twice."""
    text = ingress_text("    - {topic: more, valueType: x/y, targets: [a/b, c/d, a/b]}\n")

    found = findings(text)

    assert found == [
        "m.yaml:11:57: spec.topics[1].targets[2]: duplicate target 'a/b'; it is first listed at m.yaml:11:47"
    ]


def test_reports_duplicate_topics(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]]
) -> None:
    """A topic that is listed twice is reported, even if its route has other problems."""
    text = ingress_text("    - {topic: names, valueType: x, targets: [a/b]}\n")

    found = findings(text)

    assert found == [
        (
            "m.yaml:11:15: spec.topics[1].topic: "
            "duplicate topic 'names'; it is first listed at m.yaml:7:14"
        ),
        (
            "m.yaml:11:33: spec.topics[1].valueType: "
            "'x' is not of the form <namespace>/<name>, such as 'com.example.fns/greeter'"
        ),
    ]


def test_names_may_look_like_numbers(read_ingress: Callable[..., KafkaIngress]) -> None:
    """A topic or group called 2024 needs no quotes."""
    ingress = read_ingress("    - {topic: 2024, valueType: a/T, targets: [a/f]}\n")

    assert [route.topic for route in ingress.topics] == ["names", "2024"]


@pytest.mark.parametrize("policy", list(OnFailure))
def test_failure_policies_are_read(policy: OnFailure) -> None:
    """The ingress and one of its topics have policies of their own."""
    (ingress,) = parse_module(
        "kind: io.statefun.kafka.v1/ingress\n"
        "spec:\n"
        f"  {{id: a/b, address: 'k:1', consumerGroupId: g, failurePolicy: {policy.value},\n"
        "  topics: [{topic: one, valueType: a/b, targets: [a/b]},\n"
        f"  {{topic: two, valueType: a/b, targets: [a/b], failurePolicy: {policy.value}}}]}}\n"
    ).ingresses

    assert ingress.failure_policy is policy
    assert [route.failure_policy for route in ingress.topics] == [None, policy]


def test_an_unknown_failure_policy_is_reported_with_the_valid_ones() -> None:
    """The problem lists the valid policies."""
    with pytest.raises(ModuleError, match=r"Invalid failurePolicy: drop; valid values are \[fail"):
        parse_module(
            "kind: io.statefun.kafka.v1/ingress\n"
            "spec: {id: a/b, address: 'k:1', consumerGroupId: g, failurePolicy: drop,\n"
            "  topics: [{topic: one, valueType: a/b, targets: [a/b]}]}\n"
        )


def test_reads_commit_offsets_and_on_data_loss(read_ingress: Callable[..., KafkaIngress]) -> None:
    """By default offsets are committed, and lost data is an error."""
    default = read_ingress("")
    other = read_ingress("  commitOffsets: false\n  onDataLoss: go-on\n")

    assert (default.commit_offsets, default.on_data_loss) == (True, OnDataLoss.FAIL)
    assert (other.commit_offsets, other.on_data_loss) == (False, OnDataLoss.GO_ON)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("key.deserializer", "keys are the ids of addresses, in UTF-8"),
        ("value.deserializer", "the valueType of a topic says how its records become messages"),
        ("interceptor.classes", "the valueType of a topic says how its records become messages"),
        ("enable.auto.commit", "offsets are committed with micro-batches; see commitOffsets"),
        ("auto.commit.interval.ms", "offsets are committed with micro-batches; see commitOffsets"),
    ],
)
def test_reports_forbidden_properties(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]], name: str, reason: str
) -> None:
    """Properties that the runtime decides are refused, with the reason."""
    found = findings(ingress_text(f"  properties: [{{{name}: x}}]\n"))

    assert found == [
        (
            f"m.yaml:11:{19 + len(name)}: spec.properties[0].{name}: property {name!r} must not be set: "
            f"{reason}"
        )
    ]
