# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "statefun.cli", "run"]
SUBMITTED = """\
import json, os, sys

print(json.dumps([sys.argv[1:], sys.executable, os.environ["PYSPARK_PYTHON"]]))
sys.exit(7)
"""


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``statefun run`` in a folder, without this environment's programs on the path."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": "/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.spark
def test_a_program_runs_as_with_spark_submit(tmp_path: Path) -> None:
    """It gets its arguments and this Python, and its exit code is that of the command."""
    (tmp_path / "app.py").write_text(SUBMITTED)

    done = run(tmp_path, "--conf", "spark.app.name=x", "app.py", "--conf", "of-the-program")

    arguments, python, workers = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 7, done.stderr
    assert arguments == ["--conf", "of-the-program"]
    assert [python, workers] == [sys.executable] * 2


def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    """The default one is named, and how to make one."""
    done = run(tmp_path)

    assert done.returncode == 1
    assert done.stderr.endswith(
        "there is no program app.py; name one, or make an application with 'statefun new'\n"
    )


@pytest.mark.parametrize(
    ("variable", "error"),
    [
        ("SPARK_HOME", "there is no spark-submit in /nowhere/bin, where SPARK_HOME points"),
        ("JAVA_HOME", "no java in /nowhere/bin, where JAVA_HOME points"),
    ],
)
def test_a_missing_spark_or_java_is_reported(tmp_path: Path, variable: str, error: str) -> None:
    """The sentence names where it was sought."""
    (tmp_path / "app.py").touch()

    done = run(tmp_path, **{variable: "/nowhere"})

    assert done.returncode == 1
    assert error in done.stderr
    assert done.stderr.count("\n") == 1
