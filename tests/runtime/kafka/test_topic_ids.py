# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import sys

import pytest
from confluent_kafka import TopicCollection, Uuid
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._topic import TopicDescription
from harness import KafkaHarness
from patience import SECONDS

from statefun.runtime.kafka.topic_ids import id_of_topic


@pytest.mark.broker
def test_the_id_of_a_topic_is_not_kept(kafka: KafkaHarness) -> None:
    """Neither by this process, nor by confluent-kafka, which forgets to give one reference back."""
    topic = kafka.topic("a")
    admin = AdminClient({"bootstrap.servers": kafka.address})
    before = _uuids()

    ids = {id_of_topic(_description(admin, topic)) for _ in range(20)}

    assert len(ids) == 1
    assert len(ids.pop()) == 22
    assert _uuids() <= before


def test_the_id_of_a_description_that_leaks_nothing_is_left_alone() -> None:
    """As of a version of confluent-kafka that has been mended."""
    description = TopicDescription("t", Uuid(1, 2), is_internal=False, partitions=[])
    before = sys.getrefcount(description.topic_id)

    id_ = id_of_topic(description)

    after = sys.getrefcount(description.topic_id)
    assert (id_, after) == (str(Uuid(1, 2)), before)


def _uuids() -> int:
    gc.collect()
    return sum(type(each) is Uuid for each in gc.get_objects())


def _description(admin: AdminClient, topic: str) -> TopicDescription:
    (future,) = admin.describe_topics(TopicCollection([topic])).values()
    description: TopicDescription = future.result(SECONDS)
    return description
