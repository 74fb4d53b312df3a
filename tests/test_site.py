# SPDX-License-Identifier: Apache-2.0
"""The documentation site. ``make docs-build`` installs its tools; ``.ci/run`` does so first."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documentation import ROOT, SITE

import statefun
import statefun.components
import statefun.dev
from statefun.components import running

pytest.importorskip("mkdocs", reason="make docs-build installs it")
griffe: Any = pytest.importorskip("griffe")

SERVED = r"(?:src|href)=\"((?:https?:)?//[^\"]+)\"|url\(\"?((?:https?:)?//[^)]+)\)"


def _build(configuration: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as ``make docs-build`` does: with ``--quiet``, warnings would not count."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "mkdocs", "build", "--strict"),
            *("--config-file", str(configuration), "--site-dir", str(folder)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once, strictly."""
    folder = tmp_path_factory.mktemp("site")

    done = _build(ROOT / "mkdocs.yml", folder)

    assert done.returncode == 0, done.stderr
    return folder


def _undocumented(name: str, member: Any) -> Iterator[str]:
    """Find what has no docstring: a name, or the methods and properties of a class.

    Attributes may do without, where the docstring of their class says all there is to say.
    """
    target = member.final_target if member.is_alias else member
    if not target.has_docstring:
        yield name
    if target.is_class:
        for inner, each in target.members.items():
            if not inner.startswith("_") and (each.is_function or "property" in each.labels):
                yield from _undocumented(f"{name}.{inner}", each)


def test_every_page_is_built(site: Path) -> None:
    """As a page of its own."""
    for page in SITE:
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists()


def test_links_to_code_lead_to_pages_with_the_code(site: Path) -> None:
    """The site has them, since it has no other files of the repository."""
    page = (site / "architecture.html").read_text("utf-8")
    links = set(re.findall(r'href="(source/[^"]+)"', page))

    assert "source/statefun/engine/dispatcher.py.html" in links
    assert [link for link in links if not (site / link).exists()] == []
    assert "class Dispatcher" in _text(site / "source/statefun/engine/dispatcher.py.html")


def _text(page: Path) -> str:
    """Return the text of a page, without tags."""
    return re.sub(r"<[^>]*>", "", page.read_text("utf-8"))


@pytest.mark.parametrize("link", ["nothing.md", "#nothing", "../statefun/nothing.py"])
def test_dead_links_stop_the_build(tmp_path: Path, link: str) -> None:
    """With the site's own settings."""
    configuration = tmp_path / "mkdocs.yml"
    configuration.write_text(
        f"INHERIT: {ROOT}/mkdocs.yml\ndocs_dir: docs\nnav: []\nplugins: []\nhooks: []\n"
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Page\n\n[link]({link})\n")

    done = _build(configuration, tmp_path / "site")

    assert done.returncode != 0
    assert "nothing" in done.stderr


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """The site can be read without a network: no font, no script, no style of others."""
    files = [*site.rglob("*.html"), *site.rglob("*.css")]

    found = [
        f"{file.name}: {match[0]}"
        for file in files
        for match in re.finditer(SERVED, file.read_text("utf-8"))
    ]

    assert len(files) > len(SITE)
    assert found == []


def test_the_reference_has_signatures_and_examples(site: Path) -> None:
    """The page has the docstrings' texts, with examples as code."""
    text = (site / "api.html").read_text("utf-8")

    for name in {*statefun.__all__, "run", "state"} - {"SdkAddress"}:  # which is another name
        assert f'id="statefun.{name}"' in text, name
    assert '<span class="gp">&gt;&gt;&gt; </span>' in text
    assert ":class:" not in text


def test_public_names_have_docstrings() -> None:
    """Also methods and properties."""
    package = griffe.load("statefun", search_paths=[str(ROOT)], resolve_aliases=True)
    public = [*statefun.__all__, "run", "state"]
    public += [f"dev.{each}" for each in statefun.dev.__all__]
    public += [f"components.{each}" for each in statefun.components.__all__]
    public += [f"components.running.{each}" for each in running.__all__]

    undocumented = [name for each in public for name in _undocumented(each, package[each])]

    assert undocumented == []


@pytest.mark.parametrize(("script", "examples"), [("docstrings", 1), ("site_sources", 2)])
def test_examples_of_the_sites_scripts_hold(
    monkeypatch: pytest.MonkeyPatch, script: str, examples: int
) -> None:
    """Docstrings become Markdown, and links to code lead to pages of the site."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))

    outcome = doctest.testmod(importlib.import_module(script))

    assert outcome.attempted == examples
    assert outcome.failed == 0
