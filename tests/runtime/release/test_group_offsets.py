# SPDX-License-Identifier: Apache-2.0
"""Committing the offsets of committed batches to a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from harness import KafkaHarness, wait

from statefun.module.loader import parse_module
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.release.group_offsets import Commits, GroupOffsets

pytestmark = pytest.mark.broker


def group(
    kafka: KafkaHarness, checkpoint: Path, users: str, *batches: dict[str, int]
) -> GroupOffsets:
    """Return the group of an application that has read so far, batch by batch."""
    module = parse_module(kafka.module({users: ["test.fns/one"]}, group=users))
    (checkpoint / "offsets").mkdir(parents=True)
    for number, offsets in enumerate(batches):
        text = f"v1\n{{}}\n{json.dumps({users: offsets})}"
        (checkpoint / "offsets" / str(number)).write_text(text)
    return GroupOffsets(module.ingresses, [None], CommitLog(Folder.at(checkpoint)))


def test_refused_commits_are_counted_and_logged(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next batch commits the offsets of all partitions again."""
    users = kafka.topic("users", 2)
    group_offsets = group(kafka, checkpoint, users, {"0": 3, "99": 5}, {"0": 4, "1": 7})

    group_offsets.commit(0)
    wait(lambda: group_offsets.commits[0].failed > 0)
    refused = attrs.evolve(group_offsets.commits[0])
    group_offsets.commit(1)
    group_offsets.close()

    assert (refused.succeeded, refused.failed) == (0, 1)
    assert (
        f"ingress test/in: offsets of consumer group {users} could not be committed" in caplog.text
    )
    assert group_offsets.commits == [Commits(1, 1, {users: {"0": 4, "1": 7}})]
    assert kafka.group_offsets(users, users, 2) == [4, 7]


def test_nothing_waits_for_a_cluster_that_does_not_answer(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It delays neither a batch nor the end; only the newest waiting offsets are committed."""
    users = kafka.topic("users")
    group_offsets = group(kafka, checkpoint, users, *({"0": number} for number in range(5)))
    group_offsets.commit(0)
    wait(lambda: group_offsets.commits[0].succeeded > 0)

    kafka.broker.pause()
    try:
        for batch in range(1, 5):
            group_offsets.commit(batch)
        group_offsets.close()
        while_paused = attrs.evolve(group_offsets.commits[0])
    finally:
        kafka.broker.resume()
    wait(lambda: kafka.group_offsets(users, users) == [4])

    assert (while_paused.succeeded, while_paused.failed) == (1, 0)
    assert "may not be committed: the cluster did not answer in time" in caplog.text
    assert group_offsets.commits[0].succeeded < 5
