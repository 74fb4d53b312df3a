# SPDX-License-Identifier: Apache-2.0
"""The code of the guide does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import KafkaHarness, run

from statefun import Context, KafkaEgressMessage, Message, StatefulFunctions

ROOT = Path(__file__).resolve().parents[1]


def blocks(file: str, language: str) -> list[str]:
    """Return the code blocks of one language in a document."""
    text = (ROOT / file).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.broker
@pytest.mark.spark
def test_the_coroutine_answers(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Every record comes out, with its key."""
    asked, rates = kafka.topic("asked"), kafka.topic("rates")
    functions = StatefulFunctions()

    def send(egress: str, **parts: Any) -> KafkaEgressMessage:
        assert egress == "com.example.guide/out"
        return KafkaEgressMessage("test/out", **{**parts, "topic": rates})

    code = blocks("docs/guide.md", "python")[0].replace(
        "from statefun import Context, KafkaEgressMessage, Message, function\n", ""
    )
    names = {
        "Context": Context,
        "Message": Message,
        "KafkaEgressMessage": send,
        "function": functions.bind,
    }
    exec(code, names)
    kafka.send(asked, [(name, name) for name in ("EUR", "USD")])
    module = kafka.module({asked: ["com.example.guide/rates"]})
    run(
        module.replace("valueType: io.statefun.types/string", "valueFormat: {type: text}"),
        functions,
        checkpoint,
    )

    received = sorted((record.key, record.value) for record in kafka.receive(rates))
    assert received == [("EUR", "EUR"), ("USD", "USD")]


@pytest.mark.broker
def test_the_broker_of_the_guide_runs() -> None:
    """The block's own assertion holds."""
    exec(blocks("docs/guide.md", "python")[1], {})


@pytest.mark.broker
@pytest.mark.spark
def test_the_test_of_the_guide_passes(tmp_path: Path) -> None:
    """As a test of the README's application, in a process of its own, with an imported handler."""
    (tmp_path / "app.py").write_text(blocks("README.md", "python")[0])
    (tmp_path / "module.yaml").write_text(blocks("README.md", "yaml")[0])
    (tmp_path / "test_app.py").write_text(blocks("docs/guide.md", "python")[2])
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
