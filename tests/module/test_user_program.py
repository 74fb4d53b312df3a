# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from small_checkpoint import small_checkpoint

PROGRAM = """
import os
import statefun

print("loading the model ...")
os.system("echo from another process")

@statefun.function("com.example/f")
def f(ctx: statefun.Context, text: str) -> None: ...
"""
MODULE = """
kind: io.statefun.kafka.v1/ingress
spec:
  id: t/in
  address: localhost:1
  consumerGroupId: g
  topics:
    - {topic: users, valueFormat: {type: text}, targets: [com.example/f]}
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "app.py"],
        ["send", "com.example/f/a", "hi", "--program", "app.py", "--checkpoint", "checkpoint"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_a_program_prints_is_no_part_of_the_json(tmp_path: Path, arguments: list[str]) -> None:
    """Standard output has one document and nothing else: what is printed while a program is loaded is an aside."""
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "module.yaml").write_text(MODULE)
    small_checkpoint(tmp_path / "checkpoint")

    ended = subprocess.run(
        [sys.executable, "-m", "statefun.cli", *arguments, "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)
    assert {"loading the model ...", "from another process"} <= {*ended.stderr.splitlines()}


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_program_is_loaded_if_a_stream_is_closed(tmp_path: Path, closed: str) -> None:
    """What it prints is lost then."""
    (tmp_path / "app.py").write_text(PROGRAM)
    load = "from pathlib import Path; from statefun.module.user_program import load_program; load_program(Path('app.py'))"

    command = [sys.executable, "-c", load]
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        cwd=tmp_path,
        check=False,
    )

    assert ended.returncode == 0


def test_programs_that_are_loaded_at_once_leave_standard_output_as_it_is(tmp_path: Path) -> None:
    """Threads load them one after the other."""
    for name, seconds in (("first", 0.2), ("second", 0.4)):
        (tmp_path / f"{name}.py").write_text(
            f"import time\nprint('loads', flush=True)\ntime.sleep({seconds})\nprint('is loaded')\n"
        )
    (tmp_path / "both.py").write_text(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from pathlib import Path\n"
        "from statefun.module.user_program import load_program\n"
        "with ThreadPoolExecutor() as threads:\n"
        "    list(threads.map(load_program, [Path('first.py'), Path('second.py')]))\n"
        "print('result')\n"
    )

    ended = subprocess.run(
        [sys.executable, "both.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert ended.stdout == "result\n"
    assert ended.stderr.splitlines() == ["loads", "is loaded"] * 2
