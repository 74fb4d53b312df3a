# SPDX-License-Identifier: Apache-2.0
"""Every code block of every page runs, parses, or names commands that there are.

``test_documented_programs.py`` runs the pages' programs with Kafka and Spark.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from command_line import commands
from documentation import PAGES, ROOT, Block, blocks

from statefun.cli import parser
from statefun.inspect.repair_plan import requests_in
from statefun.module.loader import parse_module
from statefun.module.model import Module
from statefun.runtime.settings import KEYS, SETTINGS_PREFIX

LANGUAGES = {"python", "sh", "text", "yaml", "yml"}
"""``yaml`` is of module files, and ``yml`` of other programs."""
PROGRAMS = {".", "pip", "pre-commit", "python3", "spark-submit"}
"""Programs that shell blocks may call, beside ``make`` and ``statefun``."""
NEEDS_BROKER = {"docs/testing.md"}
INGRESS = {
    "kind": "kind: io.statefun.kafka.v1/ingress\nspec:\n",
    "id": "  id: a/b\n",
    "address": "  address: kafka:9092\n",
    "consumerGroupId": "  consumerGroupId: c\n",
    "topics": "  topics: [{topic: t, valueFormat: {type: text}, targets: [a/b]}]\n",
}
"""An ingress, by its keys, around a block that is part of one."""


def with_blocks(language: str) -> list[str]:
    """Return the pages that have blocks of a language."""
    return [page for page in PAGES if blocks(page, language)]


def parsed(text: str, folder: Path) -> Module:
    """Read a block of YAML as a module file; a part of an ingress is put into one."""
    if not re.sub(r"^#.*\n", "", text).startswith(("kind:", "version:")):
        frame = [line for key, line in INGRESS.items() if not text.startswith(f"{key}:")]
        text = "".join(frame) + textwrap.indent(text, "  ")
    return parse_module(text, str(folder / "module.yaml"))


def wrong_commands(text: str) -> list[str]:
    """Return the lines of a block for shells that no program here understands."""
    return [line for line in text.splitlines() if not _is_known(shlex.split(line, comments=True))]


def _is_known(words: list[str]) -> bool:
    program, *arguments = words
    if program == "statefun":
        try:
            parser().parse_args(arguments)
        except SystemExit:
            return False
        return True
    if program == "make":
        return arguments[0] in _targets()
    keys = [word.split("=")[0] for word in arguments if word.startswith(SETTINGS_PREFIX)]
    return program in PROGRAMS and {key.removeprefix(SETTINGS_PREFIX) for key in keys} <= KEYS


def _targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    return set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_of_languages_that_are_tested(page: str) -> None:
    """A block of another language needs a test first."""
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.broker] if page in NEEDS_BROKER else [])
        for page in with_blocks("python")
    ],
)
def test_python_runs(page: str) -> None:
    """The blocks of a page, one after the other, as one program that is imported."""
    program = "\n".join(block.text for block in blocks(page, "python"))

    done = subprocess.run(
        [sys.executable, "-c", f"__name__ = 'page'\n{program}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "block", [pytest.param(block, id=page) for page in PAGES for block in blocks(page, "yaml")]
)
def test_yaml_is_part_of_a_module_file(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every key is known, and every value fits."""
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    (tmp_path / "user.avsc").write_text('{"type": "string"}')

    module = parsed(block.text, tmp_path)

    assert module != Module()


@pytest.mark.parametrize(
    "block", [pytest.param(block, id=page) for page in PAGES for block in blocks(page, "yml")]
)
def test_yaml_of_other_programs_can_be_read(block: Block) -> None:
    """It is a mapping, as their configurations are, or a list of changes for ``statefun state apply``."""
    content = yaml.safe_load(block.text)
    assert isinstance(content, dict) or requests_in(block.text, block.page)


@pytest.mark.parametrize("page", with_blocks("sh"))
def test_commands_exist(page: str) -> None:
    """Make knows the targets, the command line its commands, and settings are there."""
    assert [line for block in blocks(page, "sh") for line in wrong_commands(block.text)] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences_exist(page: str) -> None:
    """Targets of make, and the first word behind ``statefun``."""
    text = PAGES[page].read_text("utf-8")
    subcommands = {*commands()}

    assert len(subcommands) > 3
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= _targets()
    assert set(re.findall(r"`statefun ([a-z]+)", text)) <= subcommands


def test_wrong_commands_are_found() -> None:
    """The rules above can fail."""
    text = (
        "make nothing\nstatefun dlq eat 1\ncurl example.org\nspark-submit --conf spark.statefun.x=1"
    )

    assert wrong_commands(text) == text.splitlines()
    assert wrong_commands("make test\nstatefun dlq list  # all of them") == []
