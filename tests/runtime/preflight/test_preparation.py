# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from pathlib import Path

import attrs
import pytest
from harness import KafkaHarness, run
from programs import obedient
from two_step import Crash, Mounted

from statefun.module.model import Module
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.runtime.preflight.preparation import prepare
from statefun.runtime.settings import Settings


@pytest.mark.spark
@pytest.mark.broker
def test_a_later_number_of_state_partitions_has_no_effect(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning has both numbers; the same number, or none, causes no warning."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["t.fns/a"]})
    kafka.send(inputs, [("Ada", "[]")])

    warned = []
    for number in (2, 2, None, 3):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "statefun"):
            run(module, obedient(out), checkpoint, state_partitions=number)
        warned.append([line for line in caplog.messages if "state-partitions" in line])

    assert warned[:3] == [[], [], []]
    [line] = warned[3]
    assert line.startswith("state-partitions=3 has no effect: the state")
    assert "is divided into 2 partitions" in line
    assert line.endswith(f": statefun rescale {checkpoint} --state-partitions 3")


def test_spark_finds_offsets_whose_rewriting_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start gives their file its own name again before the query begins."""
    mounted = Mounted(tmp_path, monkeypatch)
    offsets = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n{"t":{"0":9}}'
    checkpoint = mounted.crashing(None)
    IngressOrder([]).write(checkpoint)
    checkpoint.write("metadata", b'{"id":"query"}')
    checkpoint.child("commits").write("0", b"v1\n{}")
    checkpoint.child("offsets").write("0", offsets)
    file = tmp_path / "checkpoint" / "offsets" / "0"
    settings = attrs.evolve(Settings.resolve({}, None, checkpoint=tmp_path), checkpoint=checkpoint)

    steps = 0
    while file.exists():
        with pytest.raises(Crash):
            CommitLog(mounted.crashing(steps)).rewrite_offsets([{"t": {"0": 5}}])
        steps += 1
    prepared = prepare(Module(), attrs.evolve(settings, checkpoint=mounted.crashing(None)))

    assert prepared.newest == 0
    assert file.read_bytes().endswith(b'{"t": {"0": 5}}')
