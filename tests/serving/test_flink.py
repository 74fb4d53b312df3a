# SPDX-License-Identifier: Apache-2.0
"""Functions of this package under the runtime of Flink StateFun, from Kafka to Kafka."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from command_trees import Expected, trees
from flink_statefun import FlinkStateFun, missing_tools
from harness import KafkaHarness, wait
from languages import commanded
from local_servers import ServedProgram, running

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(bool(missing_tools()), reason="Flink StateFun needs java and javac"),
]

COMMANDS = int(os.environ.get("STATEFUN_COMMANDS", "2000"))
FUNCTIONS = {"plain": commanded.PLAIN, "coroutine": commanded.COROUTINE}
IDS = [f"Grüße/{number}" for number in range(50)]
PARTITIONS = 2


def module_of(kafka: KafkaHarness, topics: dict[str, str], port: int) -> str:
    """Return a module.yaml for Flink StateFun."""
    routes = "".join(
        f"    - {{topic: '{topic}', valueType: {commanded.COMMANDS.typename}, "
        f"targets: [{function}]}}\n"
        for function, topic in topics.items()
    )
    return f"""\
kind: io.statefun.endpoints.v2/http
spec:
  functions: {commanded.NAMESPACE}/*
  urlPathTemplate: http://127.0.0.1:{port}/
---
kind: io.statefun.kafka.v1/ingress
spec:
  id: {commanded.NAMESPACE}/in
  address: {kafka.address}
  consumerGroupId: flink
  startupPosition: {{type: earliest}}
  topics:
{routes}---
kind: io.statefun.kafka.v1/egress
spec:
  id: {commanded.OUT}
  address: {kafka.address}
  deliverySemantic: {{type: exactly-once, transactionTimeout: 1min}}
"""


@pytest.mark.long(minutes=0.5)
def test_everything_comes_exactly_once(kafka: KafkaHarness, tmp_path: Path) -> None:
    """State, messages, delays, cancellations and records mean to Flink what they mean to us."""
    forest = trees(COMMANDS, COMMANDS, list(FUNCTIONS.values()), IDS)
    expected = Expected.of(forest)
    results = kafka.topic("results", PARTITIONS)
    topics = {function: kafka.topic(name, PARTITIONS) for name, function in FUNCTIONS.items()}
    for function, topic in topics.items():
        kafka.send(topic, [(tree.id, tree.value) for tree in forest if tree.function == function])

    log = tmp_path / "server.log"
    server = ServedProgram(Path(commanded.__file__), log, environment={"RESULTS_TOPIC": results})
    with (
        running(server),
        FlinkStateFun(module_of(kafka, topics, server.port), tmp_path / "flink") as job,
    ):

        def have_come() -> bool:
            job.check()
            return len(kafka.receive(results)) >= len(expected)

        with suppress(AssertionError):  # what has not come is told below
            wait(have_come)
        time.sleep(1)  # something may come twice, or come that was cancelled
        job.check()
        records = kafka.receive(results)
        expected.check(record.value for record in records)
        for record in records:
            assert json.loads(record.value)["address"].endswith(f"/{record.key}")
        assert "Traceback" not in log.read_text()
