# SPDX-License-Identifier: Apache-2.0
"""Applications some of whose functions run elsewhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import KafkaHarness, run
from local_servers import connected, free_port

from statefun import Context, KafkaEgressMessage, Message, StatefulFunctions

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.takes(minutes=1)]

SERVED = """
from statefun import *

@function("served.fns/counter", specs=[ValueSpec("count", IntType)])
def count(ctx, message):
    ctx.storage.count = (ctx.storage.count or 0) + 1
    text = message.as_string()
    if text == "fail":
        raise ValueError("as it was told")
    ctx.send(message_builder("local.fns/printer", ctx.address.id, str_value=f"{text} {ctx.storage.count}"))
"""


@contextmanager
def served(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """Serve the functions; yield the process, which listens."""
    (folder / "served.py").write_text(SERVED)
    command = [sys.executable, "-m", "statefun.cli", "serve", "served.py", "--port", str(port)]
    with (folder / "served.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, text=True)
    try:
        connected(port, process).close()
        yield process
    finally:
        process.kill()
        process.wait()


def printing(topic: str) -> StatefulFunctions:
    """Return the functions of the program: one, which publishes what it is sent."""
    functions = StatefulFunctions()

    @functions.bind("local.fns/printer")
    def show(ctx: Context, message: Message) -> None:
        value = message.as_string()
        ctx.send(KafkaEgressMessage("test/out", topic=topic, key=ctx.address.id, value=value))

    return functions


def endpoint(port: int, more: str = "") -> str:
    """Return the document of an endpoint."""
    return f"""
---
kind: io.statefun.endpoints.v2/http
spec:
  functions: served.fns/*
  urlPathTemplate: http://127.0.0.1:{port}/{{function.name}}
{more}"""


def test_remote_and_local_functions_message_each_other(kafka: KafkaHarness, tmp_path: Path) -> None:
    """State of remote functions is kept here, over restarts."""
    port = free_port()
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["served.fns/counter"]}) + endpoint(port)
    with served(tmp_path, port):
        for turn in range(2):
            texts = [(name, f"{turn}{n}") for n in range(50) for name in ("Ada", "Bob")]
            wire = [(name, b"\x0a" + bytes([len(text)]) + text.encode()) for name, text in texts]
            kafka.send(inputs, wire)
            summary = run(module, printing(out), tmp_path / "checkpoint")
            assert summary.invocations == 200
    received = kafka.receive(out)
    for name in ("Ada", "Bob"):
        values = [each.value for each in received if each.key == name]
        assert values == [f"{t}{n} {t * 50 + n + 1}" for t in range(2) for n in range(50)]
