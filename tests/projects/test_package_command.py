# SPDX-License-Identifier: Apache-2.0
"""Programs that are packed for the machines of a cluster."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
import venv
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from class_archive import SHORT_LIVED
from confluent_kafka import Producer
from harness import KafkaHarness
from installed_packages import install
from patience import SECONDS
from standalone_cluster import standalone_cluster
from submitting import EXAMPLES

from statefun import cli
from statefun.projects.package_command import commands

PROGRAM = """
import prices
from helpers.texts import shout
from statefun import Context, function


@function("shop/buy")
def buy(ctx: Context, text: str) -> None:
    pass
"""
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


def package(program: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that has imported nothing else."""
    return subprocess.run(
        [sys.executable, "-m", "statefun.cli", "package", str(program), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def packed(program: Path, folder: Path) -> Any:
    """Pack a program; return the JSON document that the command prints."""
    done = package(program, "--output", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_archive_has_all_but_python_and_spark(tmp_path: Path) -> None:
    """It has statefun, what it requires, and the program's own modules; the requirements are pinned."""
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "__init__.py").touch()
    (tmp_path / "helpers" / "texts.py").write_text("shout = str.upper")
    (tmp_path / "prices.py").write_text("import msgspec")
    (tmp_path / "app.py").write_text(PROGRAM)

    document = packed(tmp_path / "app.py", tmp_path / "dist")

    with tarfile.open(document["archive"]) as tar:
        names = set(tar.getnames())
    assert names >= {"prices.py", "helpers/texts.py", "statefun/cli.py", "pyarrow/__init__.py"}
    assert not [name for name in names if name.startswith(("pyspark/", "pytest/", "/", ".."))]
    assert document["modules"] == ["helpers", "prices"]
    pinned = (tmp_path / "dist" / "requirements.txt").read_text().split()
    assert f"pyarrow=={version('pyarrow')}" in pinned
    assert packed(tmp_path / "app.py", tmp_path / "dist") == document
    assert not [line for line in pinned if line.startswith("pyspark")]
    assert [*document["commands"]] == ["standalone", "yarn", "kubernetes"]


def test_what_cannot_be_packed_is_one_sentence(tmp_path: Path) -> None:
    """A further package that is not installed, and a program that does not exist."""
    (tmp_path / "app.py").write_text("import statefun")
    folder = str(tmp_path / "dist")

    missing = package(tmp_path / "app.py", "--output", folder, "--with", "no-such-package")
    nothing = package(tmp_path / "shop.py", "--output", folder)

    assert missing.returncode == nothing.returncode == 1
    assert "no-such-package is not installed in this Python" in missing.stderr
    assert "there is no program" in nothing.stderr


def test_a_file_of_the_user_is_not_replaced(tmp_path: Path) -> None:
    """Many projects have a requirements.txt: to pack into their own folder must not destroy it."""
    own = tmp_path / "requirements.txt"
    own.write_text("statefun\nmy-library @ git+https://example.com/library\n")
    (tmp_path / "app.py").write_text("import statefun\n")

    done = package(tmp_path / "app.py", "--output", str(tmp_path))

    assert done.returncode == 1
    assert (
        f"{own} was not written by this command, and would be replaced: give another" in done.stderr
    )
    assert "my-library" in own.read_text()
    assert not (tmp_path / "packages.tar.gz").exists()


def test_a_printed_command_is_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell reads the same words from the printed text, also where a folder's name has " --" in it."""
    program, output = tmp_path / "a --b" / "app.py", tmp_path / "c --d"
    program.parent.mkdir()
    program.touch()
    install(tmp_path / "installed", monkeypatch, "statefun", {})
    monkeypatch.chdir(tmp_path)

    assert cli.main(["package", str(program), "--output", str(output)]) == 0

    printed = capsys.readouterr().out.split("\n\n")[1:]
    texts = [block.partition(":\n")[2].replace("\\\n", "") for block in printed]  # as a shell does
    wanted = commands(program, output / "packages.tar.gz")
    assert [shlex.split(text) for text in texts] == [list(words) for words in wanted.values()]


@pytest.mark.long(minutes=2.3)
@pytest.mark.broker
@pytest.mark.spark
def test_a_packed_program_runs_where_only_python_and_spark_are(
    kafka: KafkaHarness, tmp_path: Path
) -> None:
    """The workers' Python has neither statefun nor anything else; the printed command brings all."""
    users, greetings = kafka.topic("users"), kafka.topic("greetings")
    source = EXAMPLES / "greeter"
    for name in ("app.py", "module.yaml"):
        text = (source / name).read_text().replace("greetings", greetings)
        text = text.replace("- topic: users", f"- topic: {users}")
        (tmp_path / name).write_text(text)
    bare = tmp_path / "bare"
    venv.create(bare, symlinks=True)
    command = packed(tmp_path / "app.py", tmp_path / "dist")["commands"]["standalone"]
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(users, '{"name": "Ada"}', "Ada")
    assert producer.flush(SECONDS) == 0

    with standalone_cluster(tmp_path / "cluster", workers=1) as cluster:
        here = {
            "s3a://BUCKET/NAME": str(tmp_path / "checkpoint"),
            "spark://HOST:7077": f"spark://127.0.0.1:{cluster.port}",
            f"spark.pyspark.python={PYTHON}": f"spark.pyspark.python={bare / 'bin' / 'python'}",
        }
        program, *words = [_replaced(word, here) for word in command]
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name(program)),
                *("--conf", "spark.statefun.available-now=true"),
                *("--conf", "spark.driver.host=127.0.0.1"),
                *("--conf", "spark.executor.memory=640m"),
                *words,
            ],
            env={
                **os.environ,
                "KAFKA_ADDRESS": kafka.address,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SUBMIT_OPTS": SHORT_LIVED,
                "SPARK_DIST_CLASSPATH": "",  # the driver sends jars to its executors
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    assert done.returncode == 0, done.stdout + done.stderr
    assert [record.value for record in kafka.receive(greetings)] == ["Hello Ada, visit 1"]


def _replaced(word: str, texts: dict[str, str]) -> str:
    for old, new in texts.items():
        word = word.replace(old, new)
    return word
