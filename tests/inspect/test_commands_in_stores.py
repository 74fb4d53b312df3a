# SPDX-License-Identifier: Apache-2.0
"""The commands that look into a checkpoint, change and copy it, for a checkpoint in an S3-compatible store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stored_checkpoint import CHECKPOINTS

import statefun
from statefun import Context, IntType, Message, StatefulFunctions, ValueSpec
from statefun.cli import main
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT
from statefun.runtime.spark.session import open_session
from statefun.runtime.stored.committed_state import with_state

COUNTER = "test.fns/counter"
STORED = CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}"


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command, and return the JSON document that it prints."""
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail, and return its sentence."""
    assert main([*arguments]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def beside(location: str, name: str) -> str:
    """Return the URI of another folder beside the one of this URI."""
    path, mark, query = location.partition("?")
    return f"{path}-{name}{mark}{query}"


def states(checkpoint: Folder) -> dict[bytes, bytes]:
    """Return the states of all addresses."""
    return with_state(checkpoint, None, dict)


@pytest.fixture
def copied(store: Folder) -> str:
    """Return the URI of the stored checkpoint's copy in the store."""
    for path in Folder.at(STORED).sizes():
        *folders, name = path.split("/")
        source, target = Folder.at(STORED), store
        for folder in folders:
            source, target = source.child(folder), target.child(folder)
        target.write(name, source.read(name))
    return store.location


def test_a_checkpoint_in_a_store_is_looked_at_and_copied(
    copied: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command prints the same as for the local checkpoint; a snapshot comes and goes between both."""
    for command in (
        ("state", "ls", "--checkpoint", "{}"),
        ("state", "count", "--at-batch", "1", "--checkpoint", "{}"),
        ("state", "show", "test.fns/account/Ada", "--checkpoint", "{}"),
        ("state", "show", "test.fns/ledger/Ada", "--checkpoint", "{}"),
        ("state", "types", "--checkpoint", "{}"),
        ("state", "log", "--checkpoint", "{}"),
        ("ingress", "list", "{}"),
    ):
        local, remote = (
            document(capsys, *(each.format(location) for each in command))
            for location in (str(STORED), copied)
        )
        assert remote == local, command
    snapshot, restored = str(tmp_path / "snapshot"), beside(copied, "restored")

    assert document(capsys, "snapshot", copied, snapshot)["batch"] == 2
    assert document(capsys, "restore", snapshot, restored)["batch"] == 2

    assert states(Folder.at(restored)) == states(Folder.at(STORED))
    assert sum(part["files"] for part in document(capsys, "du", restored)) == len(
        Folder.at(restored).sizes()
    )
    assert "has files: give an empty folder" in refused(capsys, "restore", snapshot, restored)
    nowhere = beside(copied, "nowhere")
    error = refused(capsys, "state", "count", "--checkpoint", nowhere)
    assert f"there is no checkpoint at {copied.partition('?')[0]}-nowhere" in error
    assert "secret&" not in error


@pytest.mark.long(minutes=1.2)
@pytest.mark.spark
def test_spark_reads_and_changes_a_state_in_a_store(
    store: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint is made there, queried, repaired, exported, and made again from the export."""
    functions = StatefulFunctions()

    @functions.bind(COUNTER, [ValueSpec("count", IntType)])
    def count(ctx: Context, message: Message) -> None: ...

    spark = open_session(debug=False, state_partitions=1, kafka=False)
    frame = spark.createDataFrame([("ada", 1), ("bob", 2)], "id string, count int")
    statefun.bootstrap(spark, store.location, {COUNTER: frame}, functions=functions)
    before = dict(spark.conf.getAll)
    found = statefun.state(spark, store.location, COUNTER, functions=functions)
    assert sorted((row.id, row["count"]) for row in found.collect()) == [("ada", 1), ("bob", 2)]
    assert spark.conf.getAll == before
    options, address = ("--checkpoint", store.location), f"{COUNTER}/ada"

    assert main(["state", "set", address, "count", "7", *options]) == 0
    capsys.readouterr()
    query = f"select id, count from `{COUNTER}` where count > 2"  # noqa: S608 - of Spark
    assert document(capsys, "state", "sql", query, *options)["rows"] == [{"id": "ada", "count": 7}]
    (change,) = document(capsys, "state", "log", *options)["changes"]
    assert (change["address"], change["name"]) == (address, "count")

    file, again = str(tmp_path / "state.parquet"), beside(store.location, "again")
    assert main(["state", "export", store.location, file]) == 0
    assert main(["state", "import", file, again]) == 0
    assert states(Folder.at(again)) == states(store)
