# SPDX-License-Identifier: Apache-2.0
"""The package of the page "Add your own", installed beside statefun and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documentation import blocks

APP = """
from statefun import BytesType, Context, IntType, Message, ValueSpec, egress_message_builder
from statefun import function, run


@function("com.example.fns/sum", [ValueSpec("total", IntType)])
def sum_up(ctx: Context, message: Message) -> None:
    ctx.storage.total = (ctx.storage.total or 0) + int(message.as_string())
    line = f"{ctx.address.id} {ctx.storage.total}".encode()
    ctx.send_egress(egress_message_builder("com.example/lines", line, BytesType))


if __name__ == "__main__":
    run()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Install the page's package, and write its module file beside a program."""
    package = tmp_path / "site" / "example_numbers"
    package.mkdir(parents=True)
    for block in blocks("docs/connectors.md", "python"):
        name = re.match(r"# example_numbers/(\w+\.py)\n", block.text)
        assert name is not None
        (package / name[1]).write_text(block.text)
    entry_points, module = (block.text for block in blocks("docs/connectors.md", "text"))
    metadata = tmp_path / "site" / "example_numbers-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: example-numbers\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        entry_points.replace(
            'project.entry-points."statefun.components"', "statefun.components"
        ).replace('"', "")
    )
    (tmp_path / "module.yaml").write_text(
        module.replace("file: /tmp/numbers", f"file: {tmp_path}/lines")
    )
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def ran(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder, with the package on the path."""
    path = os.pathsep.join([str(folder / "site"), *sys.path])
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long(minutes=0.9)
@pytest.mark.spark
def test_kinds_of_other_packages_run(folder: Path) -> None:
    """As the page says, in the runs that follow each other, too."""
    program = "import app; from statefun import run; run(available_now=True, quiet=True)"
    (folder / "twice.py").write_text(program)
    for _ in range(2):
        done = ran(folder, "twice")
        assert done.returncode == 0, done.stderr
        assert "statefun: " not in done.stderr

    lines = (folder / "lines").read_text().splitlines()
    numbers = {key: range(key, 1000, 10) for key in range(10)}
    assert len(lines) == 1000
    for key, mine in numbers.items():
        totals = [int(line.split()[1]) for line in lines if line.startswith(f"{key} ")]
        assert totals == [sum(mine[: n + 1]) for n in range(len(mine))]


@pytest.mark.long(minutes=0.6)
@pytest.mark.spark
def test_metrics_of_theirs_that_fail_end_nothing(folder: Path) -> None:
    """It is told once."""
    reading = folder / "site" / "example_numbers" / "reading.py"
    reading.write_text(reading.read_text() + "\nNumbers.metrics = lambda self: {'left': 'many'}\n")
    (folder / "once.py").write_text(
        "import app; from statefun import run; run(available_now=True, quiet=True)"
    )

    done = ran(folder, "once")

    assert done.returncode == 0, done.stderr
    assert (
        done.stderr.count(
            "ingress com.example/numbers: its metrics are missing in Spark's progress reports: Value"
        )
        == 1
    )
    assert len((folder / "lines").read_text().splitlines()) == 1000


def test_mistakes_in_them_are_said(folder: Path) -> None:
    """As those of other kinds are: with their places and what is known."""
    file = folder / "module.yaml"
    file.write_text(
        file.read_text().replace("limit: 1000", "limit: none").replace("lines.v1", "line.v1")
    )

    done = ran(folder, "statefun.cli", "validate", "app.py")

    assert done.returncode == 1
    assert "module.yaml:4:10: spec.limit: 'none' is not a whole number from 1" in done.stdout
    assert "did you mean 'com.example.lines.v1/egress'?" in done.stdout


def test_their_checkers_are_asked(folder: Path) -> None:
    """By ``--connect`` alone."""
    file = folder / "module.yaml"
    file.write_text(file.read_text().replace(f"{folder}/lines", f"{folder}/nowhere/lines"))

    assert ran(folder, "statefun.cli", "validate", "app.py").returncode == 0
    done = ran(folder, "statefun.cli", "validate", "--connect", "app.py")

    assert done.returncode == 1
    assert (
        f"module.yaml:10:1: egress com.example/lines: folder {folder}/nowhere cannot be written to"
    ) in done.stdout


def test_a_package_that_is_broken_is_told_of(folder: Path) -> None:
    """Programs without its kinds can run."""
    (folder / "site" / "example_numbers" / "kinds.py").write_text("import nowhere\n")

    done = ran(folder, "statefun.cli", "validate", "app.py")

    assert done.returncode == 1
    assert "unknown kind 'com.example.numbers.v1/ingress'" in done.stdout
    assert (
        "the kinds of components of package example-numbers cannot be loaded, so no module file can use "
        "them: ModuleNotFoundError: No module named 'nowhere'"
    ) in done.stderr
