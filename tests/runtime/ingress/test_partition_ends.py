# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from harness import KafkaHarness, wait

from statefun.dev import EmbeddedKafka
from statefun.engine.clock import SystemClock
from statefun.engine.watermark import Partition
from statefun.module.loader import parse_module
from statefun.module.model import KafkaIngress
from statefun.runtime.ingress import partition_ends
from statefun.runtime.ingress.partition_ends import CaughtUp, End, PartitionEnds
from statefun.runtime.ingress.starting_offsets import admin_client

PARTITION = Partition("t/in", "clicks", 0)


def test_a_partition_is_caught_up_for_as_long_as_its_cluster_has_confirmed() -> None:
    """The age of the answer counts: nobody knows what has come since, whatever the time is now."""
    caught_up = CaughtUp()

    assert caught_up.look({PARTITION: 5}, {PARTITION: End(5, 1000)}) == {PARTITION: 0}
    assert caught_up.look({PARTITION: 5}, {PARTITION: End(5, 1000)}) == {PARTITION: 0}
    assert caught_up.look({PARTITION: 5}, {PARTITION: End(5, 3000)}) == {PARTITION: 2000}


def test_a_backlog_or_a_silent_cluster_begins_anew() -> None:
    """So does a record that was read meanwhile."""
    caught_up = CaughtUp()
    for read, ends in ((5, {PARTITION: End(6, 2000)}), (5, {}), (6, {PARTITION: End(6, 2000)})):
        caught_up.look({PARTITION: 5}, {PARTITION: End(5, 1000)})

        caught_up.look({PARTITION: read}, ends)

        assert caught_up.look({PARTITION: 6}, {PARTITION: End(6, 4000)})[PARTITION] <= 2000


@pytest.mark.broker
def test_a_cluster_that_has_not_answered_is_asked_by_a_new_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The former client might go on asking a broker that is gone."""
    clients: list[AdminClient] = []

    def connected(ingress: KafkaIngress) -> AdminClient:
        clients.append(admin_client(ingress))
        return clients[-1]

    monkeypatch.setattr(partition_ends, "admin_client", connected)
    with EmbeddedKafka() as broker:
        broker.create_topic("clicks")
        (ingress,) = parse_module(
            KafkaHarness(broker, "").module({"clicks": ["test.fns/one"]})
        ).ingresses
        assert isinstance(ingress, KafkaIngress)
        ends = PartitionEnds([ingress], SystemClock())
        place = Partition(str(ingress.id), "clicks", 0)

        def found() -> list[int]:
            ends.ask([place])
            return [end.offset for end in ends.ends([]).values()]

        wait(lambda: found() == [0])
        former = len(clients)
        broker.pause()
        while_paused = found()
        broker.resume()
        wait(lambda: found() == [0])
        ends.stop()

    assert while_paused == []
    assert len(clients) > former
