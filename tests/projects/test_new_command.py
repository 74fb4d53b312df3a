# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import SECONDS

from statefun.cli import main
from statefun.inspect.validation import program_and_modules, validate

FILES = [
    *(".gitignore", "Dockerfile", "Makefile", "README.md", "app.py", "demo.py", "module.yaml"),
    *("pyproject.toml", "test_app.py"),
]


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """Make a project as a newcomer does, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my-shop"]) == 0
    return tmp_path / "my-shop"


def make(
    project: Path, target: str, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Run a target of the project's Makefile."""
    return subprocess.run(
        ["make", "--no-print-directory", target, f"PYTHON={python}"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def test_a_new_project_is_complete(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the files and the next step; no placeholder is left in a file."""
    made, after = capsys.readouterr().out.splitlines()

    assert made == f"my-shop has {', '.join(FILES[:-1])} and {FILES[-1]}"
    assert after == "next: cd my-shop && make demo"
    assert sorted(path.name for path in project.iterdir()) == FILES
    assert not [path for path in project.iterdir() if "{{" in path.read_text("utf-8")]


def test_the_next_command_is_one_for_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder may be below one whose name has blanks or other characters that mean something to a shell."""
    folder = tmp_path / "My $Apps" / "my-shop"

    assert main(["new", str(folder)]) == 0

    command = capsys.readouterr().out.splitlines()[-1].removeprefix("next: ")
    assert command == f"cd {shlex.quote(str(folder))} && make demo"


def test_a_new_project_is_valid_and_passes_its_tests(project: Path) -> None:
    """The tests use the kit, without Spark."""
    assert validate(*program_and_modules([project / "app.py"])).is_valid

    tested = make(project, "test")

    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr


def test_the_makefile_asks_for_the_environment(project: Path) -> None:
    """A Python without statefun is named in one sentence."""
    done = make(project, "test", "python-without-statefun")

    assert "python-without-statefun has no statefun: activate the environment" in done.stdout
    assert done.returncode == 2


@pytest.mark.long(minutes=0.7)
@pytest.mark.spark
@pytest.mark.broker
def test_the_demo_of_a_new_project_greets(project: Path) -> None:
    """``make demo`` starts a broker, and runs the application with ``statefun run``."""
    done = make(project, "demo")

    greetings = done.stdout.splitlines()[-4:]
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(greetings) == [
        "Hello Ada, visit 1",
        "Hello Ada, visit 2",
        "Hello Alan, visit 1",
        "Hello Grace, visit 1",
    ]


@pytest.mark.broker
def test_a_demo_that_is_interrupted_ends_with_a_sentence(project: Path) -> None:
    """Ctrl-C reaches all of its processes; the demo itself prints no traceback."""
    process = subprocess.Popen(
        [sys.executable, "demo.py"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line.startswith("Sent"):
                break
        os.killpg(process.pid, signal.SIGINT)
        errors = process.stderr.read()

    assert "The demo is stopped, before its end." in errors
    assert 'demo.py", line' not in errors
    assert process.returncode == 1


@pytest.mark.parametrize(
    "name", ["Shop", "1shop", "my shop", "my_shop", "shop-", "a--b", "..", "shöp", "a" * 61]
)
def test_names_that_are_not_valid_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    assert main(["new", name]) == 1

    assert "is no name for an application" in capsys.readouterr().err
    assert list(tmp_path.rglob("*")) == [tmp_path / "here"]


def test_a_folder_with_files_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No file is overwritten; an empty folder is taken."""
    (project / "app.py").write_text("mine")
    (project.parent / "empty").mkdir()
    capsys.readouterr()

    assert main(["new", "my-shop"]) == 1
    assert "my-shop exists already, and is not an empty folder" in capsys.readouterr().err
    assert (project / "app.py").read_text() == "mine"
    assert main(["new", "--json", "empty"]) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": "empty", "files": FILES}


def test_the_last_part_of_a_path_is_the_name(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file in the way is reported in one sentence."""
    (project.parent / "file").touch()

    assert main(["new", "shops/your-shop"]) == 0
    assert "com.example.your-shop/greeter" in Path("shops/your-shop/app.py").read_text("utf-8")
    assert main(["new", "file/shop"]) == 1
    assert "file/shop cannot be written: Not a directory" in capsys.readouterr().err


def test_a_project_whose_files_could_not_be_written_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has no room for the second half of a file; what the first attempt has written is no obstacle."""
    monkeypatch.chdir(tmp_path)
    limited = 'ulimit -f 1; exec "$0" -m statefun.cli new my-shop'
    command = ["bash", "-c", limited, sys.executable]

    failed = subprocess.run(command, capture_output=True, text=True, check=False)

    assert failed.returncode == 1
    assert "my-shop cannot be written: File too large" in failed.stderr
    assert main(["new", "my-shop"]) == 0
    assert main(["new", "complete/my-shop"]) == 0
    for file in FILES:
        complete = tmp_path / "complete" / "my-shop" / file
        assert (tmp_path / "my-shop" / file).read_text("utf-8") == complete.read_text("utf-8")


@pytest.mark.parametrize(
    "name", ["statefun", "pyspark", "pandas", "numpy", "confluent-kafka", "pytest", "pluggy"]
)
def test_a_project_cannot_have_the_name_of_a_package_that_it_requires(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    """Pip would take the project for the package, and install none."""
    monkeypatch.chdir(tmp_path)

    assert main(["new", name]) == 1

    assert f"the package {name}, which it requires; choose another name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
