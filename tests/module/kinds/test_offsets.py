# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.module.kinds.offsets import parse_topic_partition
from statefun.module.loader import parse_module
from statefun.module.model import FromSpecificOffsets, KafkaIngress, TopicPartition

TOPICS = st.from_regex(r"\A[a-zA-Z0-9._-]{1,249}\Z")
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))


@given(partition=PARTITIONS)
def test_reads_partitions_as_they_are_written(partition: TopicPartition) -> None:
    """Reading is the inverse of writing topic/partition."""
    parsed = parse_topic_partition(f"{partition.topic}/{partition.partition}")

    assert parsed == partition


@pytest.mark.parametrize("text", ["", "t", "t/", "/0", "t/x", "t/-1", "a/b/0", "t/2147483648"])
def test_refuses_other_texts(text: str) -> None:
    """Any other text is not a partition."""
    with pytest.raises(
        ValueError, match=r"^does not conform to the <topic>/<partition_id> format$"
    ):
        parse_topic_partition(text)


@given(
    offsets=st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), min_size=1),
    as_list=st.booleans(),
)
def test_a_list_and_a_mapping_have_the_same_offsets(
    offsets: dict[TopicPartition, int], *, as_list: bool
) -> None:
    """Offsets may be a list of single-key mappings or one mapping."""
    dash = "- " if as_list else "  "
    lines = [
        f"      {dash}'{partition.topic}/{partition.partition}': {offset}\n"
        for partition, offset in offsets.items()
    ]
    text = (
        "kind: io.statefun.kafka.v1/ingress\n"
        "spec:\n"
        "  id: a/b\n"
        "  address: kafka:9092\n"
        "  topics: [{topic: t, valueType: a/T, targets: [a/f]}]\n"
        "  startupPosition:\n"
        "    type: specific-offsets\n"
        "    offsets:\n" + "".join(lines)
    )

    [ingress] = parse_module(text).ingresses

    assert ingress.startup_position == FromSpecificOffsets(offsets)


def test_specific_offsets_need_no_consumer_group(read_ingress: Callable[..., KafkaIngress]) -> None:
    """Only group offsets need a consumer group."""
    ingress = read_ingress(
        "  startupPosition: {type: specific-offsets, offsets: {names/0: 5}}\n",
        without="consumerGroupId",
    )

    assert ingress.startup_position == FromSpecificOffsets({TopicPartition("names", 0): 5})
    assert ingress.consumer_group_id is None


def test_reports_every_bad_offset(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]]
) -> None:
    """Bad partitions, bad offsets, duplicates and bad items are all reported."""
    text = ingress_text(
        "  startupPosition:\n"
        "    type: specific-offsets\n"
        "    offsets:\n"
        "      - names: 1\n"
        "      - names/0: -1\n"
        "      - names/1: 1\n"
        "      - names/01: 2\n"
        "      - names/2\n"
    )

    found = findings(text)

    path = "spec.startupPosition.offsets"
    assert found == [
        f"m.yaml:14:9: {path}[0].names: names does not conform to the <topic>/<partition_id> format",
        (
            f"m.yaml:15:18: {path}[1].names/0: "
            "'-1' is not a whole number from 0 to 9223372036854775807"
        ),
        (
            f"m.yaml:17:9: {path}[3].names/01: "
            "'names/01' is the same partition as the one at m.yaml:16:9"
        ),
        f"m.yaml:18:9: {path}[4]: expected exactly one 'topic/partition: offset'",
    ]


@pytest.mark.parametrize("empty", ["[]", "{}"])
def test_reports_empty_offsets(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]], empty: str
) -> None:
    """An empty list or mapping of offsets is a problem."""
    text = ingress_text(f"  startupPosition: {{type: specific-offsets, offsets: {empty}}}\n")

    found = findings(text)

    assert found == [
        (
            "m.yaml:11:54: spec.startupPosition.offsets: "
            "must not be empty; list at least one of: 'topic/partition: offset'"
        )
    ]
