# SPDX-License-Identifier: Apache-2.0
"""Show on the site the source files to which pages link, each on a page of its own.

In the repository, a page links to a file of code by its path, such as ``../statefun/cli.py``. The site has only
what is in ``docs/``; so this hook of MkDocs adds a page for each of these files, and the links lead there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(\.\./((?:statefun|tests|examples|benchmarks|scripts)/[\w./-]+\.py)\)")
"""A link from a page to a Python file."""
_FENCE = "~" * 8


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file of code to which a page links."""
    pages = [file.content_string for file in files.documentation_pages()]
    for path in sorted(linked(pages)):
        source = (ROOT / path).read_text("utf-8")
        text = (
            f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n{_FENCE} python\n{source}{_FENCE}\n"
        )
        name = f"source/{path}.md"
        files.append(
            File.generated(config, name, content=text, inclusion=InclusionLevel.NOT_IN_NAV)
        )
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Replace links to files of code by links to their pages."""
    return markdown if page.file.src_uri.startswith("source/") else rewritten(markdown)


def linked(pages: Iterable[str]) -> set[str]:
    """Return the paths of the files to which pages link, from the root of the repository.

    >>> linked(["[a](../statefun/cli.py), [b](kafka.md), [c](../statefun/nothing.py)"])
    {'statefun/cli.py'}
    """
    return {path for page in pages for path in LINK.findall(page) if (ROOT / path).is_file()}


def rewritten(markdown: str) -> str:
    """Return a page with links to the pages of files; a link to a file that is missing stays as it is.

    >>> rewritten("[a](../statefun/cli.py), [b](../statefun/nothing.py)")
    '[a](source/statefun/cli.py.md), [b](../statefun/nothing.py)'
    """
    present = linked([markdown])
    return LINK.sub(
        lambda link: f"](source/{link[1]}.md)" if link[1] in present else link[0], markdown
    )
