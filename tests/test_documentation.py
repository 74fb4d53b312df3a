# SPDX-License-Identifier: Apache-2.0
"""All things that pages name exist: files, other pages, commands, settings."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml
from documentation import PAGES, ROOT, blocks

PATH = re.compile(
    r"`((?:\.ci|\.github|benchmarks|docs|examples|proto|scripts|statefun|tests)/[\w./-]*)`"
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def _prose(page: str) -> str:
    """Return a page's text without its blocks of code."""
    return re.sub(
        r"^```.*?^```$", "", PAGES[page].read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def _anchors(page: Path) -> set[str]:
    """Return the valid anchors of a page: its headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _missing_paths(prose: str) -> list[str]:
    return [path for path in PATH.findall(prose) if not (ROOT / path).exists()]


def _dead_links(page: Path, prose: str) -> list[str]:
    dead = []
    for link in LINK.findall(prose):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not link.startswith("https://") and not (
            target.exists() and (not anchor or anchor in _anchors(target))
        ):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_pages_name_exist(page: str) -> None:
    """Files that are named in backticks exist."""
    assert _missing_paths(_prose(page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    """Files and headings alike."""
    assert _dead_links(PAGES[page], _prose(page)) == []


def test_missing_files_and_dead_links_are_found() -> None:
    """The rules above can fail."""
    page = ROOT / "docs" / "architecture.md"

    assert _missing_paths("`statefun/sdk/` and `statefun/sdk/nothing.py`") == [
        "statefun/sdk/nothing.py"
    ]
    assert _dead_links(page, "[a](module-yaml.md) [b](nothing.md) [c](#the-contract) [d](#no)") == [
        "nothing.md",
        "#no",
    ]


def test_the_architecture_names_files() -> None:
    """The pattern of paths fits how pages write them."""
    assert len(PATH.findall(_prose("docs/architecture.md"))) > 30


def test_the_modules_of_the_diagram_exist() -> None:
    """Code blocks are no prose: the diagram of a micro-batch names modules below the package."""
    [diagram] = [each.text for each in blocks("docs/architecture.md", "text") if ".py" in each.text]
    modules = re.findall(r"[\w/]+\.py", diagram)

    assert len(modules) > 10
    assert [name for name in modules if not (ROOT / "statefun" / name).exists()] == []


def test_the_modules_of_the_diagram_are_linked() -> None:
    """A block of code has no links: the table after the diagram has one for each module."""
    [diagram] = [each.text for each in blocks("docs/architecture.md", "text") if ".py" in each.text]
    links = re.findall(r"\[`([^`]+)`\]\(\.\./statefun/([^)]+)\)", _prose("docs/architecture.md"))

    assert {name for name, _ in links} == {*re.findall(r"[\w/]+\.py", diagram)}
    assert [link for link in links if link[0] != link[1]] == []


def test_fragments_of_the_changelog_are_found() -> None:
    """A file with another name would be left out of the changelog without a word."""
    name = re.compile(r"(\d+|\+[\w-]+)\.(added|changed|fixed|removed)\.md")
    fragments = {path.name for path in (ROOT / "changelog.d").iterdir()} - {"README.md"}

    assert sorted(each for each in fragments if not name.fullmatch(each)) == []


def test_the_hooks_run_what_setup_installs() -> None:
    """Each entry of the pre-commit configuration names a program of ``.venv``."""
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    programs = [
        hook["entry"].split()[0] for repo in configuration["repos"] for hook in repo["hooks"]
    ]

    assert len(programs) > 1
    for program in programs:
        assert program.startswith(".venv/bin/")
        assert (Path(sys.executable).parent / Path(program).name).exists()
