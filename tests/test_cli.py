# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from command_line import commands
from harness import KafkaHarness, run
from stored_checkpoint import CHECKPOINTS

import statefun
from statefun import (
    Context,
    KafkaEgressMessage,
    Message,
    SimpleType,
    StatefulFunctions,
    TopicError,
)
from statefun.cli import main
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT

TEXT = SimpleType("t/text", str.encode, bytes.decode)

STORED = str(CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}")
COMMAND = [sys.executable, "-m", "statefun.cli"]


def test_the_versions_are_those_that_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the versions of all parts that a report of a problem needs."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    first, python, spark, java = capsys.readouterr().out.splitlines()
    form = "compiled" if statefun.__compiled__ else "not compiled"
    assert ended.value.code == 0
    assert first == f"statefun {version('statefun')} ({form})"
    assert python == f"Python {platform.python_version()}"
    assert spark == f"PySpark {version('pyspark')}"
    assert re.fullmatch(r"Java \d+\S* \(/.*/java\)", java)


def test_a_missing_java_is_a_version_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints where it has looked."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(SystemExit):
        main(["--version"])

    java = capsys.readouterr().out.splitlines()[-1]
    assert java == f"Java is missing in {tmp_path}/bin, where JAVA_HOME points"


def test_a_command_ends_quietly_if_its_output_is_closed() -> None:
    """``statefun schema | head -1`` prints no error; its status is that of a closed pipe."""
    process = subprocess.Popen(
        [*COMMAND, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()

    with process:
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_ctrl_c_is_no_error_while_a_command_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is that of Ctrl-C, and no traceback is printed."""

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)

    assert main(["state", "ls"]) == 130
    assert capsys.readouterr() == ("", "")


SLOW = {"pyspark", "pandas", "numpy", "pyarrow", "confluent_kafka", "obstore", "rocksdict"}
"""Packages that take longer to import than short commands run."""
ARROW = {"numpy", "pyarrow"}
WITH_KAFKA_OR_SPARK = {"dlq", "dev", "run"}
"""The commands whose help imports Kafka's client or PySpark nevertheless."""


@pytest.mark.parametrize(
    ("arguments", "slow"),
    [
        (["--help"], SLOW),
        (["--version"], SLOW),
        (["schema"], SLOW - ARROW),
        (["state", "ls", "--checkpoint", STORED], SLOW),
        # Messages are under way there, which are stored in Arrow's form.
        (["state", "show", "test.fns/account/Ada", "--checkpoint", STORED], SLOW - ARROW),
        (["du", STORED], SLOW),
    ],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], slow: set[str]) -> None:
    """So it starts at once."""
    code = (
        "import atexit, sys; from statefun.cli import main;"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); sys.exit(main(sys.argv[1:]))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0
    assert slow & {*done.stderr.split()} == set()
    assert "statefun.cli" in done.stderr.split()


def test_the_help_of_a_command_imports_nothing_slow() -> None:
    """All of them in one process import none of the slow packages."""
    names = {name for name in commands() if " " not in name} - WITH_KAFKA_OR_SPARK
    code = f"import sys; from statefun.cli import parser; parser({sorted(names)!r}); print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "statefun.inspect.state_command" in done.stdout.split()
    assert SLOW & {*done.stdout.split()} == set()


@pytest.mark.long(minutes=1)
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("semantic", ["exactly-once", "at-least-once"])
def test_a_record_that_stops_an_application_is_removed(
    kafka: KafkaHarness, checkpoint: Path, capsys: pytest.CaptureFixture[str], semantic: str
) -> None:
    """After ``outbox skip``, the next start publishes all other records once."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["t.fns/f"]}, value_type="t/text", semantic=semantic)
    registry = StatefulFunctions()

    @registry.bind("t.fns/f")
    def f(ctx: Context, message: Message) -> None:
        value = message.as_type(TEXT)
        topic = f"{out}.missing" if value == "poison" else out
        ctx.send(KafkaEgressMessage("test/out", topic=topic, key=ctx.address.id, value=value))

    records = [(f"k{n % 7}", "poison" if n == 20 else f"{n}") for n in range(40)]
    kafka.send(inputs, records)
    for _ in range(2):
        with pytest.raises(TopicError, match="the records stay in the outbox"):
            run(module, registry, checkpoint, records_per_batch=10)
    capsys.readouterr()

    assert main(["outbox", "list", "--records", str(checkpoint)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if ".missing" in line]
    batch, state, egress, _, number, topic, key, _ = line.split()
    assert (state, egress, topic, key) == ("committed", "test/out", f"{out}.missing", "k6")
    assert main(["outbox", "list", "--records", "--json", str(checkpoint)]) == 0
    (listed,) = [
        each for each in json.loads(capsys.readouterr().out) if each["topic"].endswith(".missing")
    ]
    assert (listed["batch"], listed["record"], listed["key"]) == (int(batch), int(number), "k6")
    assert main(["outbox", "list", "--json", str(checkpoint)]) == 0
    lanes = json.loads(capsys.readouterr().out)
    assert sum(each["records"] for each in lanes if each["batch"] == int(batch)) > 0
    command = ["outbox", "skip", str(checkpoint), "--batch", batch, "--egress", egress]
    assert main([*command, "--record", number, "--yes"]) == 0
    summary = run(module, registry, checkpoint)

    values = [record.value for record in kafka.receive(out)]
    once = values if semantic == "exactly-once" else list(dict.fromkeys(values))
    assert sorted(once) == sorted(value for _, value in records if value != "poison")
    assert summary.refused == 0
    capsys.readouterr()
    assert main(["outbox", "list", str(checkpoint)]) == 0
    assert capsys.readouterr().out.startswith("no batches with records to publish")
