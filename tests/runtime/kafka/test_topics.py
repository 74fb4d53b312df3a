# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta

import pytest
from harness import KafkaHarness

from statefun import TopicError
from statefun.module.loader import parse_module
from statefun.runtime.kafka.topics import refuse_missing_topics

PATIENCE = timedelta(seconds=5)


@pytest.mark.broker
def test_a_declared_topic_has_to_exist(kafka: KafkaHarness) -> None:
    """The topics of dead letters and of their replays are checked."""
    dead = kafka.topic("dead")
    module = kafka.module({"in": ["t/f"]}, dead_letters=dead)

    refuse_missing_topics(parse_module(module).egresses, PATIENCE)
    with pytest.raises(TopicError, match="topic again does not exist"):
        refuse_missing_topics(parse_module(f"{module}  replayTopic: again\n").egresses, PATIENCE)


@pytest.mark.broker
def test_a_cluster_that_does_not_answer_does_not_delay_a_start(
    kafka: KafkaHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """A log line says that the records of its egress are kept."""
    module = kafka.module({"in": ["t/f"]}, dead_letters="dead").replace(
        kafka.address, "127.0.0.1:1"
    )

    refuse_missing_topics(parse_module(module).egresses, timedelta(seconds=1))

    assert "egress test/out: no Kafka broker answered at 127.0.0.1:1" in caplog.text
    assert "the records of the egress stay in the outbox until a broker answers" in caplog.text
