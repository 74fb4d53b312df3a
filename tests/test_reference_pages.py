# SPDX-License-Identifier: Apache-2.0
"""Pages that list names list exactly the existing ones."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import attrs
import pytest
import yaml
from documentation import PAGES, ROOT, SITE

import statefun
import statefun.components
import statefun.dev
import statefun.joins
import statefun.testing
import statefun.windows
from statefun.components import running
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.run import run
from statefun.runtime.settings import KEYS, SETTINGS_PREFIX, Settings, keyword_of
from statefun.sdk.errors import StatefunError
from statefun.sdk.failure import OnFailure


def _text(page: str) -> str:
    return PAGES[page].read_text("utf-8")


def _errors(class_: type[StatefunError] = StatefunError) -> Iterator[type[StatefunError]]:
    for each in class_.__subclasses__():
        if each.__module__ == StatefunError.__module__:
            yield each
            yield from _errors(each)


def _texts() -> list[str]:
    """Return the texts in the package's code, with ``…`` for inserted values."""
    found = []
    for path in (ROOT / "statefun").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(map(_part, node.values)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    value = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
    if label := re.search(r"\b(ingress|egress)\.label$", value):
        return f"{label[1]} …"
    return SETTINGS_PREFIX if value == "SETTINGS_PREFIX" else "…"


def _is_raised(message: str, texts: list[str]) -> bool:
    """Return whether the code has a text that a message on a page is, or is part of."""
    pattern = re.compile(".*?".join(map(re.escape, message.split("…"))))
    return any(pattern.search(text) for text in texts)


def test_every_setting_is_listed() -> None:
    """With its key and its keyword; ``run`` takes the same ones."""
    rows = re.findall(r"^\| `([a-z.-]+)` \| `(\w+)` \|", _text("docs/settings.md"), re.MULTILINE)
    keywords = set(inspect.signature(run).parameters) - {"functions", "components"}

    assert sorted(key for key, _ in rows) == sorted(KEYS)
    assert {keyword for _, keyword in rows} == keywords
    assert all(keyword == re.sub("[-.]", "_", key) for key, keyword in rows)


@pytest.mark.parametrize("field", attrs.fields(Settings), ids=lambda field: field.name)
def test_the_defaults_of_settings_are_told(field: attrs.Attribute[Any]) -> None:
    """By the table, and by ``run``: in words where the default is found out at the start."""
    key = field.metadata["key"] or field.name.replace("_", "-")
    parse, default = field.metadata["parse"], field.metadata["default"]
    [cell] = re.findall(
        rf"^\| `{re.escape(key)}` \| `\w+` \| ([^|]+) \|", _text("docs/settings.md"), re.MULTILINE
    )
    [meaning] = re.findall(
        rf"^    {keyword_of(key)}: (.*(?:\n {{8}}.*)*)", inspect.getdoc(run) or "", re.MULTILINE
    )

    assert (parse(cell.strip("`")) == default) if default is not None else " " in cell
    assert _default_in_words(default) in " ".join(meaning.split())


def _default_in_words(default: object) -> str:
    """Say how ``run`` tells of a default; empty if it does so in words of its own."""
    match default:
        case bool() | None:
            return ""
        case int():
            return f"default {default:,}"
        case timedelta():
            return f"default {default.total_seconds():g} seconds" if default else ""
        case OnFailure():
            return f"``{default.value}`` (default)"
        case _:
            return f"``{default}`` (default)"


def test_every_metric_is_listed() -> None:
    """The page lists the numbers of a run; another test checks the ingresses' numbers."""
    rows = re.findall(r"^\| `([\w.<>]+)` \| [a-z]", _text("docs/operations.md"), re.MULTILINE)
    numbers = {
        field.name
        for field in attrs.fields(Summary)
        if field.name not in {"next_timer", "oldest_call"}
    }

    assert {row for row in rows if not row.startswith("ingress.")} == numbers
    assert {row.rpartition(".")[2] for row in rows if row.startswith("ingress.")} == {
        *("currentOffset", "committedOffset", "lag", "commitsSucceeded", "commitsFailed"),
        *("records", "millisBehindLatest", "eventTime"),
    }


def test_every_error_is_listed() -> None:
    """Each error has its code, its class, and its own section."""
    page = _text("docs/errors.md")
    rows = re.findall(r"^\| \[(SF\d+)\]\(#(sf\d+)\) \| `(\w+)` \|", page, re.MULTILINE)
    sections = re.findall(r"^## (SF\d+)$", page, re.MULTILINE)
    classes: list[type[StatefunError]] = [StatefunError, *_errors()]
    errors = sorted({(error.code, error.code.lower(), error.__name__) for error in classes})

    assert len(errors) > 10
    assert sorted(rows) == errors
    assert sections == [code for code, _, _ in errors]


def test_the_messages_of_errors_are_those_of_the_code() -> None:
    """A message that was reworded is reworded on the page, too."""
    messages = re.findall(r"^\| `([^`]+)` \| ", _text("docs/errors.md"), re.MULTILINE)
    texts = _texts()

    assert len(messages) > 20
    assert [message for message in messages if not _is_raised(message, texts)] == []
    assert not _is_raised("no … says this", texts)


def test_every_public_name_is_in_the_reference() -> None:
    """Once, and no other."""
    listed = re.findall(r"^::: (\S+)$", _text("docs/api.md"), re.MULTILINE)
    aliases = {"SdkAddress"}  # two entries of one object would have one anchor
    names = [
        f"statefun.{name}" for name in {*statefun.__all__, "bootstrap", "run", "state"} - aliases
    ]
    for package in (
        statefun.components,
        running,
        statefun.dev,
        statefun.testing,
        statefun.windows,
        statefun.joins,
    ):
        names += [f"{package.__name__}.{name}" for name in package.__all__]

    assert sorted(listed) == sorted(names)


def test_the_site_has_every_page() -> None:
    """Each one can be reached by the navigation."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    nav = re.findall(r"^ .*: (\S+\.md)$", text, re.MULTILINE)

    assert sorted(nav) == sorted(str(page.relative_to(ROOT / "docs")) for page in SITE)
    assert yaml.safe_load(text)["strict"]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_pages_have_one_title(page: str) -> None:
    """And no heading skips a level."""
    prose = re.sub(r"^```.*?^```$", "", _text(page), flags=re.MULTILINE | re.DOTALL)
    levels = [len(found) for found in re.findall(r"^(#+) ", prose, re.MULTILINE)]

    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
