# SPDX-License-Identifier: Apache-2.0
"""Applications whose JVM has little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from class_archive import java_options
from harness import KafkaHarness

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PROGRAM = """
import statefun

BLOB = statefun.SimpleType("t/blob", bytes, bytes)
SIZE = 10_000_000


@statefun.function("t.fns/spread")
def spread(ctx, message):
    for number in range(5):
        name = f"{ctx.address.id}-{number}"
        value = bytes([number]) * SIZE
        ctx.send(statefun.message_builder("t.fns/keep", name, value=value, value_type=BLOB))


@statefun.function("t.fns/keep", specs=[statefun.ValueSpec("kept", BLOB)])
def keep(ctx, message):
    ctx.storage.kept = message.as_type(BLOB)
    size = str(len(ctx.storage.kept))
    ctx.send(statefun.KafkaEgressMessage("test/out", topic="TOPIC", key=ctx.address.id, value=size))


statefun.run(module="module.yaml", checkpoint="checkpoint", available_now=True)
"""


@pytest.mark.long(minutes=1)
def test_a_batch_of_large_messages_needs_no_large_heap(kafka: KafkaHarness, tmp_path: Path) -> None:
    """Half a gigabyte of messages and state, in values of 10 MB, passes a JVM of 512 MB."""
    names, records = kafka.topic("names"), kafka.topic("records")
    kafka.send(names, [(f"k{number}", "x") for number in range(10)])
    (tmp_path / "module.yaml").write_text(kafka.module({names: ["t.fns/spread"]}))
    (tmp_path / "app.py").write_text(PROGRAM.replace("TOPIC", records))
    options = "--master local[2] --driver-memory 512m --conf spark.ui.enabled=false pyspark-shell"
    environment = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": options,
        "SPARK_SUBMIT_OPTS": java_options(),
    }

    ended = subprocess.run(
        [sys.executable, "app.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert [record.value for record in kafka.receive(records)] == ["10000000"] * 50
