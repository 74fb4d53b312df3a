# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from kinesis_counting import module_text
from kinesis_server import KinesisHarness
from local_servers import free_port

from statefun.inspect.connector_checks import connector_findings
from statefun.module.loader import parse_module

PATIENCE = timedelta(seconds=10)
SHORT = timedelta(milliseconds=200)
_NOBODY = 65534
FILES = """
kind: io.statefun.file.v1/ingress
spec:
  id: test/in
  files:
    - {path: here, format: {type: lines}, valueType: test/A, targets: [test/f]}
    - {path: nowhere, format: {type: lines}, valueType: test/A, targets: [test/f]}
    - {path: "later/*.csv", format: {type: csv, idField: id}, valueType: test/A, targets: [test/f]}
---
kind: io.statefun.file.v1/egress
spec: {id: test/out, folder: OUT}
"""


def found(text: str, file: str = "module.yaml", timeout: timedelta = PATIENCE) -> list[str]:
    """Return the findings about the connectors of a module file."""
    return [str(each) for each in connector_findings(parse_module(text, file), timeout)]


def files(folder: Path, out: str) -> list[str]:
    """Return the findings about files, without the path of the folder."""
    texts = found(FILES.replace("OUT", out), str(folder / "module.yaml"))
    return [text.replace(f"{folder}/", "") for text in texts]


def test_folders_that_are_not_there_are_findings(tmp_path: Path) -> None:
    """All at once, with their component; the folder of an egress is made when it is needed."""
    (tmp_path / "here").mkdir()

    nowhere, later = files(tmp_path, "out/of/all")

    assert nowhere.startswith("error: module.yaml:2:1: ")
    assert nowhere.endswith(
        "ingress test/in: path nowhere does not exist; create the folder or file, or correct the path"
    )
    assert later.endswith(
        "ingress test/in: path later/*.csv does not exist; create the folder or file, or correct the path"
    )
    assert not (tmp_path / "out").exists()

    (tmp_path / "later").mkdir()
    (tmp_path / "nowhere").touch()

    assert files(tmp_path, "out") == []


def test_a_file_is_no_folder_for_an_egress(tmp_path: Path) -> None:
    """Nor is anything below it."""
    for name in ("here", "nowhere", "later"):
        (tmp_path / name).mkdir()
    (tmp_path / "out").touch()

    assert files(tmp_path, "out/below") == [
        "error: module.yaml:10:1: egress test/out: out must be a folder, but is a file"
    ]


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Return a folder that other users may enter; be somebody else than root in it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        if os.getuid() != 0:
            yield folder
            return
        os.setreuid(_NOBODY, 0)  # rights are checked for the real user
        yield folder
        os.setreuid(0, 0)


def test_folders_without_rights_are_findings(public_folder: Path) -> None:
    """For reading and for writing."""
    for name in ("here", "nowhere", "later", "out"):
        (public_folder / name).mkdir(mode=0o755)
    (public_folder / "here").chmod(0o300)
    (public_folder / "out").chmod(0o500)

    assert [text.partition("test/")[2] for text in files(public_folder, "out")] == [
        "in: no permission to read folder here",
        "out: no permission to write to folder out",
    ]


def test_streams_that_are_not_there_are_findings(kinesis: KinesisHarness) -> None:
    """Of the ingress alone: messages name the streams of an egress."""
    [text] = found(module_text(kinesis.url))

    assert text.startswith("error: module.yaml:")
    assert "ingress test/in: its streams cannot be listed at http://" in text
    assert text.endswith("there is no stream users; create it, or correct its name")

    kinesis.create("users", 1)

    assert found(module_text(kinesis.url)) == []


def test_a_server_that_is_not_there_is_a_finding_of_each() -> None:
    """After the time that it may take for an answer."""
    ingress, egress = found(module_text(f"http://127.0.0.1:{free_port()}"), timeout=SHORT)

    assert "ingress test/in: its streams cannot be listed at http://127.0.0.1:" in ingress
    assert "egress test/out: it cannot be reached at http://127.0.0.1:" in egress


def test_a_date_to_come_is_a_finding(kinesis: KinesisHarness) -> None:
    """Kinesis refuses to read from there."""
    kinesis.create("users", 1)
    start = '{type: date, date: "2999-01-01 00:00:00.000 +0000"}'

    [text] = found(module_text(kinesis.url, start))

    assert text.endswith("ingress test/in: the date of startupPosition must not be in the future")


@pytest.mark.parametrize(
    ("checker", "expected"),
    [
        ("nowhere:check", "ModuleNotFoundError: No module named 'nowhere'"),
        ("test_connector_checks:fails", "ValueError: oh"),
    ],
)
def test_a_checker_that_fails_is_a_finding(tmp_path: Path, checker: str, expected: str) -> None:
    """Nothing is known then, which is not a reason to end the command."""
    text = FILES.partition("---")[2].replace("OUT", "out")
    module = parse_module(text, str(tmp_path / "module.yaml"))
    [egress] = module.connector_egresses
    others = attrs.evolve(
        module,
        connector_egresses=(
            attrs.evolve(egress, checker=checker),
            attrs.evolve(egress, checker=None),
        ),
    )

    [finding] = connector_findings(others, PATIENCE)

    assert str(finding).endswith(
        f"io.statefun.file.v1/egress test/out cannot be checked: {expected}"
    )


def fails(component: object, timeout: timedelta) -> None:
    """Be a checker of another package, with a fault."""
    raise ValueError("oh")
