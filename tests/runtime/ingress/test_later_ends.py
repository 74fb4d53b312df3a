# SPDX-License-Identifier: Apache-2.0
"""The ends of partitions while Spark does not ask; Spark's reports are made here, and the broker is real."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from harness import KafkaHarness, wait
from pyspark.sql.streaming.listener import SourceProgress

from statefun.dev import EmbeddedKafka
from statefun.engine.clock import SystemClock
from statefun.module.loader import parse_module
from statefun.module.model import KafkaIngress
from statefun.runtime.ingress.later_ends import LaterEnds
from statefun.runtime.ingress.positions import positions, total

NOW = timedelta(0)


def ingress(address: str, topic: str) -> KafkaIngress:
    """Return an ingress of one topic."""
    return parse_module(f"""
kind: io.statefun.kafka.v1/ingress
spec:
  id: t/in
  address: {address}
  consumerGroupId: g
  topics:
    - {{topic: {topic}, valueType: io.statefun.types/string, targets: [t.fns/a]}}
""").ingresses[0]


def lag(ends: LaterEnds, declared: KafkaIngress, topic: str, read: int, newest: int) -> int:
    """Return the lag after a report of Spark, with ends that are known besides."""
    start, latest = (json.dumps({topic: {"0": offset}}) for offset in (read, newest))
    source = SourceProgress("", start, start, latest, 0, 0.0, 0.0, {})
    progress: Any = SimpleNamespace(sources=[source])
    ends.add_to(progress)
    return sum(total(position.lags) for position in positions([declared], [None], progress))


@pytest.mark.broker
def test_the_lag_grows_while_sparks_reports_stay_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker that does not answer makes no noise, and the last known ends stay; later reports count more."""
    caplog.set_level(logging.DEBUG, "statefun")
    with EmbeddedKafka() as own:
        kafka, topic = KafkaHarness(own, ""), "users"
        own.create_topic(topic)
        declared = ingress(kafka.address, topic)
        with closing(LaterEnds([declared], SystemClock(), patience=NOW)) as ends:
            assert lag(ends, declared, topic, 0, 0) == 0
            kafka.send(topic, [("Ada", "fine")] * 5)
            wait(lambda: lag(ends, declared, topic, 0, 0) == 5)
            wait(lambda: lag(ends, declared, topic, 2, 3) == 3)
            own.kill()
            unknown = "its partitions' ends are not known"
            wait(lambda: lag(ends, declared, topic, 2, 3) == 3 and unknown in caplog.text)
            assert lag(ends, declared, topic, 2, 3) == 3
            assert lag(ends, declared, topic, 5, 5) == 0
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


def test_a_cluster_that_never_answers_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A report is the same as without the question, and nobody waits for an answer."""
    caplog.set_level(logging.INFO, "statefun")
    declared = ingress("127.0.0.1:9", "users")
    with closing(LaterEnds([declared], SystemClock(), patience=NOW)) as ends:
        assert [lag(ends, declared, "users", 2, 3) for _ in range(3)] == [1, 1, 1]
    assert not caplog.messages
