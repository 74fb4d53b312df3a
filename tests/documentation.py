# SPDX-License-Identifier: Apache-2.0
"""The pages for readers, and the code blocks in them."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[1]
SITE = sorted((ROOT / "docs").rglob("*.md"))
PAGES = {str(page.relative_to(ROOT)): page for page in (*sorted(ROOT.glob("*.md")), *SITE)}
"""All pages, by their paths from the root of the project."""


@attrs.frozen
class Block:
    """One fenced block of code."""

    page: str
    language: str
    text: str


def blocks(page: str, language: str | None = None) -> list[Block]:
    """Return the code blocks of a page, in order: all of them, or those of one language."""
    text = PAGES[page].read_text("utf-8")
    found = re.findall(r"^```(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        Block(page, kind, content)
        for kind, content in found
        if language is None or kind == language
    ]


def block(page: str, language: str, containing: str) -> str:
    """Return the only code block of a page that contains some text."""
    [found] = [block.text for block in blocks(page, language) if containing in block.text]
    return found
