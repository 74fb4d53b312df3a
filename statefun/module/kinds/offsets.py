# SPDX-License-Identifier: Apache-2.0
"""Reads offsets of partitions, written as ``topic/partition: offset``."""

from __future__ import annotations

import re
from contextlib import suppress

from statefun.module.model import TopicPartition
from statefun.module.yaml.nodes import Node, ScalarNode
from statefun.module.yaml.problems import Invalid, Problems
from statefun.module.yaml.readers import integer, pairs, pairs_schema, refuse_empty
from statefun.module.yaml.shapes import described, schema_of

_TOPIC_PARTITION = re.compile(r"(?P<topic>[^/\s]+)/(?P<partition>[0-9]{1,10})")
_MAX_PARTITION = 2**31 - 1
_MAX_OFFSET = 2**63 - 1
_WHAT = "'topic/partition: offset'"

_offset = integer(0, _MAX_OFFSET)


def parse_topic_partition(text: str) -> TopicPartition:
    """Parse the name of a partition, written as ``topic/partition``.

    >>> parse_topic_partition("user-topic/0")
    TopicPartition(topic='user-topic', partition=0)

    Raises:
        ValueError: if ``text`` is not of this form. The error text continues a sentence whose
            subject is ``text``.
    """
    match = _TOPIC_PARTITION.fullmatch(text)
    if match is None or int(match["partition"]) > _MAX_PARTITION:
        raise ValueError("does not conform to the <topic>/<partition_id> format")
    return TopicPartition(match["topic"], int(match["partition"]))


@described(pairs_schema("list of `topic/partition: offset`", schema_of(_offset)))
def specific_offsets(node: Node, problems: Problems) -> dict[TopicPartition, int]:
    """Read offsets by partition, from a list of single-key mappings or from one mapping."""
    offsets: dict[TopicPartition, int] = {}
    keys: dict[TopicPartition, ScalarNode] = {}
    refuse_empty(node, _WHAT, problems)
    for key, value in pairs(_WHAT)(node, problems).items():
        with suppress(Invalid):
            offset = _offset(value, problems)
            partition = _partition(key, problems)
            first = keys.setdefault(partition, key)
            if first is not key:
                sentence = f"{key.quoted} is the same partition as the one at {first.location}"
                problems.report(key.location, key.path, sentence)
            offsets[partition] = offset
    return offsets


def _partition(key: ScalarNode, problems: Problems) -> TopicPartition:
    try:
        return parse_topic_partition(key.text)
    except ValueError as error:
        sentence = f"{key.source} {error}"
        raise problems.report(key.location, key.path, sentence) from None
