# SPDX-License-Identifier: Apache-2.0
"""A table on Spark and a real broker that publishes its changes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from harness import KafkaHarness, wait
from killed_application import running

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PROGRAM = """
import statefun
from statefun.joins import Table

Table("test/rows", str, materialize="TOPIC", egress="test/out")

if __name__ == "__main__":
    statefun.run(checkpoint="CHECKPOINT")
"""


@pytest.mark.long(minutes=0.6)
def test_a_topic_has_each_change_once(kafka: KafkaHarness, tmp_path: Path) -> None:
    """Rows and tombstones of each key come once and in order through a kill; the last one of a key is its row."""
    topic, out = kafka.topic("rows", 2), kafka.topic("now", 2)
    chance = random.Random(7)
    records = [
        (chance.choice("abcdef"), None if chance.random() < 0.3 else str(number))
        for number in range(200)
    ]
    tmp_path.joinpath("module.yaml").write_text(
        kafka.module({topic: ["test/rows"]}, semantic="exactly-once").replace(
            "valueType: io.statefun.types/string",
            "valueFormat: {type: text}, tombstones: deliver",
        )
    )
    program = PROGRAM.replace("TOPIC", out).replace("CHECKPOINT", str(tmp_path / "checkpoint"))
    tmp_path.joinpath("app.py").write_text(program)

    kafka.send(topic, records[:100])
    with running(tmp_path):
        wait(lambda: len(kafka.receive(out)) >= 20)
        kafka.send(topic, records[100:])
    with running(tmp_path):
        wait(lambda: len(kafka.receive(out)) >= len(records))

    received = kafka.receive(out)
    for key in "abcdef":
        changes = [value or "" for each, value in records if each == key]
        assert [each.value for each in received if each.key == key] == changes
    assert len(received) == len(records)
