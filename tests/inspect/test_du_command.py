# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import KafkaHarness, run
from programs import obedient

from statefun.cli import main
from statefun.inspect.du_command import usage


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("state/0/1/SSTs/000011-3f1b.sst", "state: tables"),
        ("state/0/1/7_3f1b.changelog", "state: changes"),
        ("state/0/1/7_3f1b.zip", "state: snapshots"),
        ("state/0/_metadata/v2/0", "state: snapshots"),
        ("outbox/7/manifest", "outbox"),
        ("connectors/t%2Fin/7", "connectors"),
        ("timers/99.all", "timers"),
        ("calls/99", "long calls"),
        ("offsets/.7.crc", "Spark's logs"),
        ("metadata", "Spark's logs"),
        ("playground.sqlite-wal", "playground"),
        ("runs/3f1b", "other"),
        ("ingresses.json", "other"),
    ],
)
def test_each_file_belongs_to_a_part(path: str, part: str) -> None:
    """The part says what the file is for."""
    [used] = usage({path: 10})

    assert (used.part.name, used.files, used.size) == (part, 1, 10)


@pytest.mark.spark
@pytest.mark.broker
def test_the_parts_of_a_real_checkpoint_are_its_size(
    kafka: KafkaHarness, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All files are counted; the parts that every application has are there."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    kafka.send(inputs, [("Ada", '[["add"]]')])
    run(kafka.module({inputs: ["t.fns/a"]}), obedient(out), checkpoint)
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)

    assert main(["du", str(checkpoint)]) == 0
    *rows, total = capsys.readouterr().out.splitlines()
    assert main(["du", "--json", str(checkpoint)]) == 0
    document = json.loads(capsys.readouterr().out)

    assert total == f"{size:,} bytes in {len(files)} files in {checkpoint}"
    assert rows[0].split() == ["part", "files", "bytes", "holds"]
    assert {"state: changes", "Spark's logs", "other"} <= {each["part"] for each in document}
    assert sum(each["bytes"] for each in document) == size


def test_another_folder_is_no_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence says so, also for a folder that does not exist."""
    assert main(["du", str(tmp_path / "missing")]) == 1

    assert "there is no checkpoint at" in capsys.readouterr().err
