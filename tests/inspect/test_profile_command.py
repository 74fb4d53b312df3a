# SPDX-License-Identifier: Apache-2.0
"""``statefun profile``: a flame graph of a running application's functions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from harness import KafkaHarness, running, wait

from statefun import Context, Message, StatefulFunctions
from statefun.cli import main
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings


@pytest.mark.broker
@pytest.mark.spark
def test_the_flame_graph_names_the_functions(
    kafka: KafkaHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The samples are of the workers that call the functions."""
    users = kafka.topic("users")
    functions = StatefulFunctions()

    def burn() -> None:
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass

    @functions.bind("test.fns/count")
    def count(_ctx: Context, _message: Message) -> None:
        burn()

    checkpoint, output = tmp_path / "checkpoint", tmp_path / "out.svg"
    settings = Settings.resolve({}, None, checkpoint=checkpoint, records_per_batch=500)
    module = parse_module(kafka.module({users: ["test.fns/count"]}))
    kafka.send(users, [(f"{number}", "x") for number in range(10_000)])
    with running(Application(module, functions, settings)):
        wait((checkpoint / "commits" / "0").exists)
        words = ["profile", str(checkpoint), "--duration", "2s", "--output", str(output), "--json"]
        assert main(words) == 0, capsys.readouterr().err

    assert '"file"' in capsys.readouterr().out
    text = output.read_text()
    assert text.startswith("<?xml")
    assert "burn" in text
    assert main(["profile", str(checkpoint)]) == 1
    assert capsys.readouterr().err == (
        f"statefun: [SF600] no application runs with checkpoint {checkpoint}\n"
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--duration", "500ms"], "[SF100] --duration must be at least one second"),
        ([], "[SF600] no application runs with checkpoint"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    """Nothing is sampled."""
    assert main(["profile", str(tmp_path / "nothing"), *words]) == 1
    assert error in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_application_on_a_cluster_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    """The error says how to take the samples there."""
    assert main(["profile", "s3a://bucket/app"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "statefun: [SF100] checkpoint s3a://bucket/app is not in a folder of this machine"
    )
    assert "py-spy record --subprocesses" in line
