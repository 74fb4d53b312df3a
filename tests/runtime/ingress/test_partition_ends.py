# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from harness import KafkaHarness, wait

from statefun.engine.clock import SystemClock
from statefun.engine.watermark import Partition
from statefun.module.loader import parse_module
from statefun.module.model import KafkaIngress
from statefun.runtime.ingress import partition_ends
from statefun.runtime.ingress.partition_ends import CaughtUp, End, PartitionEnds
from statefun.runtime.kafka.cluster_offsets import watermarks

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
def test_a_client_takes_one_question_after_the_other(
    kafka: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread and a run that wants to know the ends at once share the client, whose memory would be freed early."""
    topic, asking, most = kafka.topic("users"), list[int](), list[int]()

    def slowly(*args: Any, **options: Any) -> Any:
        asking.append(1)
        most.append(len(asking))
        try:
            time.sleep(0.1)
            return watermarks(*args, **options)
        finally:
            asking.pop()

    monkeypatch.setattr(partition_ends, "watermarks", slowly)
    (ingress,) = parse_module(kafka.module({topic: ["t/f"]})).ingresses
    assert isinstance(ingress, KafkaIngress)
    ends, partitions = (
        PartitionEnds([ingress], SystemClock()),
        [Partition(str(ingress.id), topic, 0)],
    )
    ends.ends(partitions)
    threads = [threading.Thread(target=ends.ask, args=(partitions,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait(lambda: len(most) > len(threads))
    ends.stop()

    assert max(most) == 1
    assert ends.ends(partitions)[partitions[0]].offset == 0
