# SPDX-License-Identifier: Apache-2.0
"""Drivers that are killed and stopped while their checkpoint is in an S3-compatible store."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from harness import KafkaHarness, wait
from killed_application import counting_program, running

from statefun.runtime.checkpoint.folder import Folder

pytestmark = [pytest.mark.broker, pytest.mark.spark]

KEYS = "abc"


@pytest.mark.long(minutes=2.9)
def test_each_record_is_published_once_whatever_happens_to_drivers(
    kafka: KafkaHarness, store: Folder, tmp_path: Path
) -> None:
    """One is killed in the middle, one is stopped until another one has taken over, and goes on then: it ends."""
    source, results = kafka.topic("source"), kafka.topic("results")
    module = kafka.module({source: ["test/number"]}, semantic="exactly-once")
    program = counting_program(results, checkpoint=store.location, records_per_batch=10)
    sent = 0

    def folder_of(driver: str) -> Path:
        folder = tmp_path / driver
        folder.mkdir()
        text = module.replace("valueType: io.statefun.types/string", "valueFormat: {type: text}")
        (folder / "module.yaml").write_text(text)
        (folder / "app.py").write_text(program)
        return folder

    def send(count: int) -> None:
        nonlocal sent
        numbers = range(sent + 1, sent + count + 1)
        kafka.send(source, [(key, str(number)) for number in numbers for key in KEYS])
        sent += count

    def published() -> int:
        return len(kafka.receive(results))

    with running(folder_of("killed")):
        send(40)
        wait(lambda: published() > 0)
    before = published()
    stopped_folder = folder_of("stopped")
    with running(stopped_folder) as stopped:
        send(40)
        wait(lambda: published() > before)
        os.killpg(stopped.pid, signal.SIGSTOP)
        before = published()
        with running(folder_of("last")):
            send(10)
            wait(lambda: published() == sent * len(KEYS))
            assert before < sent * len(KEYS)
            os.killpg(stopped.pid, signal.SIGCONT)
            wait(lambda: stopped.poll() is not None)
            send(10)
            wait(lambda: published() >= sent * len(KEYS))
        assert stopped.returncode != 0
        log = (stopped_folder / "log").read_text()

    # A request that was under way while it was stopped has timed out, and may be the first thing that it notices.
    assert any(text in log for text in ("another driver", "another run", "at each attempt")), log
    values = defaultdict(list)
    for record in kafka.receive(results):
        values[record.key].append(record.value)
    assert values == {key: [f"{n} {n}" for n in range(1, sent + 1)] for key in KEYS}
