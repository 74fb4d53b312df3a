# SPDX-License-Identifier: Apache-2.0
"""A checkpoint moves from one release of Spark to another: ``make compat`` names the other release."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from class_archive import SHORT_LIVED
from harness import KafkaHarness
from submitting import EXAMPLES

from statefun.dev import EmbeddedKafka

OTHER = "STATEFUN_OTHER_SPARK"
"""The variable with the folder in which another release of PySpark is installed."""

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.skipif(OTHER not in os.environ, reason=f"{OTHER} names no release of PySpark"),
]


def greet(broker: EmbeddedKafka, folder: Path, packages: str) -> None:
    """Run the greeter on what its topic has, with the release of PySpark in a folder of packages."""
    options = (
        "--conf spark.statefun.available-now=true --conf spark.ui.enabled=false "
        f"--conf spark.statefun.checkpoint={folder / 'checkpoint'} pyspark-shell"
    )
    environment = {
        **os.environ,
        "KAFKA_ADDRESS": broker.bootstrap_servers,
        "PYTHONPATH": packages,
        "PYSPARK_SUBMIT_ARGS": options,
        "SPARK_SUBMIT_OPTS": SHORT_LIVED,
    }
    del environment["SPARK_DIST_CLASSPATH"]  # it has the Kafka connector of one release
    program = EXAMPLES / "greeter" / "app.py"
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_checkpoint_moves_to_another_release_and_back(
    tmp_path: Path,
) -> None:
    """States and offsets go on: each visit is counted once."""
    with EmbeddedKafka() as broker:
        kafka = KafkaHarness(broker, "")
        for topic in ("users", "greetings"):
            broker.create_topic(topic, partitions=2)
        for packages in (os.environ[OTHER], "", os.environ[OTHER]):
            kafka.send("users", [(name, f'{{"name": "{name}"}}') for name in ("Ada", "Bob")])
            greet(broker, tmp_path, packages)

        assert sorted(record.value for record in kafka.receive("greetings")) == [
            f"Hello {name}, visit {visit}" for name in ("Ada", "Bob") for visit in (1, 2, 3)
        ]
