# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from admin_api import served

from statefun.runtime.reporting.figures import PartitionFigures

FILES = """
kind: io.statefun.file.v1/ingress
spec:
  id: test/limits
  files:
    - path: {folder}/a
      format: {{type: json-lines, idField: name}}
      valueFormat: {{type: text}}
      targets: [test/greeter]
    - path: {folder}/b
      format: {{type: json-lines, idField: name}}
      valueFormat: {{type: text}}
      targets: [test/greeter]
"""
TOPICS = """
kind: io.statefun.kafka.v1/ingress
spec:
  id: test/in
  address: localhost:1
  consumerGroupId: tests
  topics:
    - {topic: orders, valueFormat: {type: text}, targets: [test/greeter]}
    - {topicPattern: "orders.*", valueFormat: {type: text}, targets: [test/other]}
"""


def test_an_edge_counts_each_record_of_a_connector_once(tmp_path: Path) -> None:
    """Ten records of an ingress cannot be twenty at its only target, however many paths it reads."""
    with served(tmp_path, declared=FILES.format(folder=tmp_path)) as api:
        api.figures.connectors = {"test/limits": 10}
        [edge] = api.ask("GET", "/topology")[1]["edges"]

    assert edge["count"] == 10


def test_records_go_along_the_edge_of_their_route(tmp_path: Path) -> None:
    """A route with the name of a topic takes its records, and a pattern those of the other topics."""
    with served(tmp_path, declared=TOPICS) as api:
        api.figures.partitions = [
            PartitionFigures("test/in", topic, partition, "tests", read, 0, 1)
            for topic, partition, read in [
                ("orders", "0", 4),
                ("orders", "1", 5),
                ("orders-2", "0", 3),
            ]
        ]
        edges = api.ask("GET", "/topology")[1]["edges"]

    counts = {edge["target"]["name"]: edge["count"] for edge in edges}
    assert counts == {"test/greeter": 7, "test/other": 2}
