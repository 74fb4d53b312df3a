# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from harness import KafkaHarness, run

from statefun import Context, Message, StatefulFunctions
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.errors import CheckpointError

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def log_of(checkpoint: Path, files: dict[str, str]) -> CommitLog:
    """Write files of a checkpoint and return its log."""
    for name, content in files.items():
        path = checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return CommitLog(Folder.at(checkpoint))


def test_a_checkpoint_that_does_not_exist_is_fresh(checkpoint: Path) -> None:
    """Nothing is planned or committed, and there is no query id."""
    log = log_of(checkpoint, {})

    assert log.newest() == -1
    assert log.is_fresh()
    assert not log.has(0)
    assert log.query_id() == ""
    assert not checkpoint.exists()


def test_a_source_is_settled_up_to_the_newest_committed_batch(checkpoint: Path) -> None:
    """A batch that is only planned does not count."""
    assert log_of(checkpoint, {}).settled(0) is None

    files = {f"offsets/{n}": f'v1\n{METADATA}\n{{"log":{n}}}\n{{"batch":0}}' for n in range(3)}
    log = log_of(checkpoint, {**files, "commits/0": "v1\n{}", "commits/1": "v1\n{}"})

    assert log.settled(0) == {"log": 1}


def test_each_batch_says_how_many_state_partitions_there_are(checkpoint: Path) -> None:
    """Spark writes the number into each batch; a batch of an unknown form has none."""
    conf = '{"conf":{"spark.sql.shuffle.partitions":"7"}}'
    log = log_of(checkpoint, {"offsets/0": f"v1\n{METADATA}\n-", "offsets/1": f"v1\n{conf}\n-"})

    assert (log.state_partitions(0), log.state_partitions(1)) == (None, 7)


def test_the_newest_batch_has_the_greatest_number(checkpoint: Path) -> None:
    """Files with numbers count as batches; Spark's other files do not."""
    others = (
        ".10.crc",
        ".11.4f1d.tmp",
        "12.tmp",
        "-1",
        "1e3",
        "_spark_metadata",
        "\N{SUPERSCRIPT TWO}0",
    )
    log = log_of(checkpoint, {f"commits/{name}": "v1\n{}" for name in ("9", "10", *others)})

    assert log.newest() == 10
    assert log.has(9)
    assert log.has(10)
    assert not log.has(11)


def test_a_planned_batch_makes_a_checkpoint_used(checkpoint: Path) -> None:
    """From the first planned batch on, sources no longer choose where to start."""
    log = log_of(checkpoint, {"offsets/.0.crc": ""})

    before = log.is_fresh()
    log_of(checkpoint, {"offsets/0": f"v1\n{METADATA}\n-"})

    assert (before, log.is_fresh()) == (True, False)
    assert log.newest() == -1


def test_the_query_id_is_the_one_in_the_metadata(checkpoint: Path) -> None:
    """The id that Spark gave the checkpoint is read from its metadata."""
    id_ = str(uuid.uuid4())

    log = log_of(checkpoint, {"metadata": json.dumps({"id": id_})})

    assert log.query_id() == id_


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("{}", "'id'"),
        ("[]", "list indices must be integers or slices, not str"),
    ],
)
def test_damaged_metadata_is_named(checkpoint: Path, content: str, reason: str) -> None:
    """The error names the file and what is wrong with it."""
    log = log_of(checkpoint, {"metadata": content})

    with pytest.raises(CheckpointError) as caught:
        log.query_id()

    assert caught.value.message == (
        f"{checkpoint}/metadata does not have the form in which Spark writes it ({reason}); "
        "restore the checkpoint from a copy"
    )


def test_end_offsets_are_those_of_every_source(checkpoint: Path) -> None:
    """Each source has its line; one without data has no offset."""
    one, two = {"one": {"0": 5, "1": 0}}, {"two": {"0": 7}, "three": {"0": 1}}
    lines = ["v1", METADATA, json.dumps(one), "-", json.dumps(two), '{"batch": 3}']
    log = log_of(checkpoint, {"offsets/4": "\n".join(lines)})

    assert log.end_offsets(4) == [one, None, two, {"batch": 3}]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"v2\n{METADATA}\n-", "must have the format v1 in its first line, but has 'v2'"),
        ("", "must have the format v1 in its first line, but has ''"),
        (
            f"v1\n{METADATA}\n[",
            "does not have the form in which Spark writes it (Expecting value: line 1 column 2 (char 1))",
        ),
    ],
)
def test_offsets_of_another_form_are_named(checkpoint: Path, content: str, reason: str) -> None:
    """The error names the file and what is wrong with it."""
    log = log_of(checkpoint, {"offsets/4": content})

    with pytest.raises(CheckpointError) as caught:
        log.end_offsets(4)

    assert caught.value.message == (
        f"{checkpoint}/offsets/4 {reason}; restore the checkpoint from a copy"
    )


def test_a_batch_without_offsets_is_named(checkpoint: Path) -> None:
    """The error says which batch the log lacks."""
    log = log_of(checkpoint, {"offsets/4": ""})

    with pytest.raises(CheckpointError) as caught:
        log.end_offsets(3)

    assert caught.value.message == (
        f"{checkpoint}/offsets has no file of batch 3; restore the checkpoint from a copy"
    )


@pytest.mark.broker
@pytest.mark.spark
def test_spark_writes_what_is_read(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The checkpoint of a query that has run is read as it is."""
    users = kafka.topic("users", partitions=2)
    functions = StatefulFunctions()

    @functions.bind("test.fns/sink")
    def sink(ctx: Context, message: Message) -> None:
        pass

    kafka.send(users, [("Ada", "a"), ("Ada", "b")], partition=1)
    kafka.send(users, [("Alan", "a")], partition=0)
    run(kafka.module({users: ["test.fns/sink"]}), functions, checkpoint)

    log = CommitLog(Folder.at(checkpoint))

    assert not log.is_fresh()
    assert log.newest() == 0
    assert log.has(0)
    assert str(uuid.UUID(log.query_id())) == log.query_id()
    assert log.end_offsets(0) == [{users: {"0": 1, "1": 2}}, {"batch": -1, "tick": -1}]
