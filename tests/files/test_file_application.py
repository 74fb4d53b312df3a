# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from harness import run

from statefun import (
    ConnectorError,
    Context,
    EgressMessage,
    Message,
    StatefulFunctions,
    TypedValue,
)
from statefun.module.loader import parse_module
from statefun.module.model import Module

pytestmark = pytest.mark.spark

MODULE = """
kind: io.statefun.file.v1/ingress
spec:
  id: test/in
  failurePolicy: skip
  files:
    - path: in/*.jsonl
      format: {type: json-lines, idField: name}
      valueType: test.files/Visit
      targets: [test.fns/count]
    - path: names
      format: {type: lines}
      valueFormat: {type: text}
      targets: [test.fns/greet]
---
kind: io.statefun.file.v1/egress
spec: {id: test/out, folder: out}
"""


functions = StatefulFunctions()


@functions.bind("test.fns/count")
def count(ctx: Context, message: Message) -> None:
    """Count the visits of a name."""
    visit = TypedValue(message.value_typename(), message.raw_value())
    ctx.send_egress(EgressMessage("test/out", visit))


@functions.bind("test.fns/greet")
def greet(ctx: Context, message: Message) -> None:
    """Greet the visitor whose name a line has."""
    visit = json.dumps({"name": message.as_string(), "number": 0}).encode()
    typed = TypedValue("test.files/Visit", visit)
    ctx.send(Message("test.fns/count", message.as_string(), typed))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the folders to read."""
    for name in ("in", "names"):
        (tmp_path / name).mkdir()
    return tmp_path


def module(folder: Path) -> Module:
    """Return the module, whose paths are relative to the folder."""
    return parse_module(MODULE, str(folder / "module.yaml"))


def written(folder: Path) -> list[tuple[str, int]]:
    """Return the records in the files that were written, sorted."""
    lines = [
        json.loads(line)
        for file in (folder / "out").glob("part-*.jsonl")
        for line in file.read_text().splitlines()
    ]
    return sorted((line["name"], line["number"]) for line in lines)


def test_from_files_to_files(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each run continues where the run before has ended; bad lines are rejected records."""
    visits = folder / "in" / "a.jsonl"
    visits.write_text("".join(f'{{"name": "Ada", "number": {n}}}\n' for n in range(1000)))
    (folder / "names" / "first").write_text("Bob\nEve")
    run(module(folder), functions, folder / "checkpoint")
    first = written(folder)
    with visits.open("a") as file:
        file.write('{"name": "Ada", "number": 1000}\nnonsense\n')
    with caplog.at_level(logging.WARNING):
        second = run(module(folder), functions, folder / "checkpoint")
        third = run(module(folder), functions, folder / "checkpoint")

    expected = [("Ada", n) for n in range(1000)]
    assert first == [*expected, ("Bob", 0), ("Eve", 0)]
    assert written(folder) == [*expected, ("Ada", 1000), ("Bob", 0), ("Eve", 0)]
    assert (second.skipped, third.skipped, third.invocations) == (1, 0, 0)


def test_a_file_that_is_replaced_ends_the_run(folder: Path) -> None:
    """The error has the name of the file and what to do, and no stack trace of the JVM."""
    visits = folder / "in" / "a.jsonl"
    visits.write_text('{"name": "Ada", "number": 1}\n')
    run(module(folder), functions, folder / "checkpoint")
    visits.write_text('{"name": "Eve", "number": 1}\n{"name": "Eve", "number": 2}\n')

    with pytest.raises(ConnectorError) as raised:
        run(module(folder), functions, folder / "checkpoint")

    assert raised.value.message == (
        f"ingress test/in: file {visits} was replaced by another file after a part of it was read; "
        "restore the file, or set onChange: go-on to read the present file from its beginning"
    )
    assert written(folder) == [("Ada", 1)]


def test_files_that_were_read_are_taken_away(folder: Path) -> None:
    """A run that ends by itself takes them away at its end, when all of their records are committed."""
    text = MODULE.replace("  failurePolicy: skip\n", "  failurePolicy: skip\n  afterRead: move\n")
    text = text.replace("folder: out", "folder: out, rollEvery: 0 s")
    visits = folder / "in" / "a.jsonl"
    visits.write_text('{"name": "Ada", "number": 1}\n')
    moving = parse_module(text, str(folder / "module.yaml"))
    run(moving, functions, folder / "checkpoint")
    visits.write_text('{"name": "Eve", "number": 1}\n')
    run(moving, functions, folder / "checkpoint")

    assert sorted(each.name for each in (folder / "in" / "_read").iterdir()) == [
        "a.jsonl",
        "a.jsonl.1",
    ]
    assert not visits.exists()
    assert written(folder) == [("Ada", 1), ("Eve", 1)]
