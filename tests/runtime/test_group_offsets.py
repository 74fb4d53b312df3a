# SPDX-License-Identifier: Apache-2.0
"""Committing the offsets of committed batches to a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from harness import KafkaHarness

from statefun.runtime.commit_log import CommitLog
from statefun.runtime.filesystem import Folder
from statefun.runtime.ingress.group_offsets import Commits, GroupOffsets
from statefun.spec import parse_module

pytestmark = pytest.mark.broker


def test_what_a_cluster_refuses_is_counted_and_told(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next batch tries again, with all partitions."""
    users = kafka.topic("users", 2)
    module = parse_module(kafka.module({users: ["test.fns/one"]}, group=users))
    (checkpoint / "offsets").mkdir(parents=True)
    batches: list[dict[str, int]] = [{"0": 3, "99": 5}, {"0": 4, "1": 7}]
    for number, offsets in enumerate(batches):
        text = f"v1\n{{}}\n{json.dumps({users: offsets})}"
        (checkpoint / "offsets" / str(number)).write_text(text)
    group_offsets = GroupOffsets(module.ingresses, [None], CommitLog(Folder.at(checkpoint)))

    group_offsets.commit(0)
    refused = attrs.evolve(group_offsets.commits[0])
    group_offsets.commit(1)
    group_offsets.close()

    assert (refused.succeeded, refused.failed) == (0, 1)
    assert (
        f"ingress test/in: offsets of consumer group {users} could not be committed" in caplog.text
    )
    assert group_offsets.commits == [Commits(1, 1, {users: {"0": 4, "1": 7}})]
    assert kafka.group_offsets(users, users, 2) == [4, 7]
