# SPDX-License-Identifier: Apache-2.0
"""What a rescaling leaves in the files of a checkpoint, wherever it was interrupted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from two_step import Crash, Mounted

from statefun.protocol.runtime_pb2 import Manifest, TraceEntries
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.rescaling import (
    clear_rescaling,
    drop_planned,
    interrupted_rescaling,
    rescale_command,
)
from statefun.runtime.checkpoint.trace_log import TraceLog, read_traces
from statefun.sdk.errors import CheckpointError


def planned(partitions: int) -> bytes:
    """Return the content of a plan, as Spark writes it."""
    conf = f'{{"conf":{{"spark.sql.shuffle.partitions":"{partitions}"}}}}'
    return f'v1\n{conf}\n{{"log":7}}\n{{"batch":-1,"tick":-1}}'.encode()


def filled(folder: Folder, plans: Mapping[int, int], committed: int, states: int) -> Folder:
    """Write Spark's logs, the effects of the newest batches, and states into a folder, and return it."""
    traces = TraceLog(folder, 1000)
    for batch, partitions in plans.items():
        folder.child("offsets").write(f"{batch}", planned(partitions))
        Outbox(folder).stage(Manifest(batch=batch))
        traces.add(batch, TraceEntries(tasks=[b"entries"]))
        if batch <= committed:
            folder.child("commits").write(f"{batch}", b"v2\n{}")
    for number in range(states):
        folder.child(f"state/0/{number}").write("3_a.changelog", b"changes")
    folder.child("state/0/_metadata").write("metadata", b"v1")
    return folder


def partitions(folder: Folder) -> list[str]:
    """Return the names in the folder with the states."""
    return folder.child("state/0").names()


def test_a_batch_that_is_not_committed_is_dropped_with_its_effects(tmp_path: Path) -> None:
    """Nothing of committed batches is touched, and a checkpoint without a planned batch stays as it is."""
    folder = filled(Folder.at(tmp_path), {4: 2, 5: 2, 6: 2}, 5, 2)

    drop_planned(folder)
    once = folder.sizes()
    drop_planned(folder)

    assert CommitLog(folder).planned() == 5
    assert Outbox(folder).batches() == [4, 5]
    folder.child("commits").write("6", b"v2\n{}")  # of a command, without invocations
    assert [each.batch for file in read_traces(folder) for each in file] == [4, 5]
    folder.child("commits").remove("6")
    assert folder.sizes() == once


def test_the_first_batch_is_never_dropped(tmp_path: Path) -> None:
    """Without it, a start would read from the startup positions of its own time."""
    folder = filled(Folder.at(tmp_path), {0: 2}, -1, 0)

    drop_planned(folder)
    clear_rescaling(folder)

    assert CommitLog(folder).planned() == 0


def test_a_start_drops_what_an_interrupted_rescaling_has_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so in one line; the partitions of the newest commit stay."""
    folder = filled(Folder.at(tmp_path), {5: 2, 6: 16}, 5, 9)

    with caplog.at_level(logging.WARNING, "statefun"):
        clear_rescaling(folder)
        clear_rescaling(folder)

    assert CommitLog(folder).planned() == 5
    assert partitions(folder) == ["0", "1", "_metadata"]
    [line] = caplog.messages
    assert line == (
        f"the rescaling of checkpoint {tmp_path} to 16 partitions was interrupted, and is dropped: the state still "
        "has 2 partitions"
    )


def test_a_start_in_an_object_store_says_how_a_rescaling_is_finished(store: Folder) -> None:
    """It changes nothing, as the JVM of the command may still commit the micro-batch; other batches are no reason."""
    filled(store, {5: 2, 6: 16}, 5, 9)
    before = store.sizes()

    with pytest.raises(
        CheckpointError, match=r"to 16 partitions was interrupted; to finish it: "
    ) as caught:
        clear_rescaling(store)

    assert caught.value.message.endswith(rescale_command(store, 16))
    assert interrupted_rescaling(store) == 16
    assert store.sizes() == before
    store.child("offsets").write("6", planned(2))
    clear_rescaling(store)
    assert interrupted_rescaling(store) is None
    assert CommitLog(store).planned() == 6


def test_a_start_keeps_a_batch_that_the_last_run_has_planned(tmp_path: Path) -> None:
    """After a rescaling that was completed, it only deletes partitions that are no longer used."""
    folder = filled(Folder.at(tmp_path), {5: 9, 6: 2, 7: 2}, 6, 9)

    clear_rescaling(folder)

    assert CommitLog(folder).planned() == 7
    assert Outbox(folder).batches() == [5, 6, 7]
    assert partitions(folder) == ["0", "1", "_metadata"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    numbers=st.tuples(st.integers(1, 4), st.integers(1, 6)),
    is_committed=st.booleans(),
    steps=st.lists(st.integers(0, 8), max_size=4),
)
def test_a_start_that_crashes_is_finished_by_the_next_one(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    numbers: tuple[int, int],
    is_committed: bool,
    steps: list[int],
) -> None:
    """However often and wherever it crashes, there are the old partitions, or the new ones if they were committed."""
    before, after = numbers
    root = tmp_path_factory.mktemp("rescaling")
    mounted = Mounted(root, monkeypatch)
    filled(
        mounted.crashing(None),
        {5: before, 6: after},
        6 if is_committed else 5,
        max(before, after),
    )

    for each in steps:
        try:
            clear_rescaling(mounted.crashing(each))
        except Crash:
            continue
    folder = mounted.crashing(None)
    clear_rescaling(folder)

    log, valid = CommitLog(folder), after if is_committed else before
    assert log.state_partitions(log.newest()) == valid
    # A batch of the former number of partitions is an ordinary one, which the next run repeats.
    assert log.planned() == (6 if is_committed or before == after else 5)
    assert partitions(folder) == [*map(str, range(valid)), "_metadata"]


def test_the_command_names_the_checkpoint_and_the_number(tmp_path: Path) -> None:
    """The warning of a start has it."""
    assert (
        rescale_command(Folder.at(tmp_path), 16)
        == f"statefun rescale {tmp_path} --state-partitions 16"
    )
