# SPDX-License-Identifier: Apache-2.0
"""Docstrings for the documentation site: examples as code, and Sphinx's roles as plain code.

An extension of griffe, which reads the code for mkdocstrings; ``mkdocs.yml`` names it.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*\n(?:.*\S.*(?:\n|\Z))*", re.MULTILINE)
_ROLE = re.compile(r":(?:class|func|meth|mod):`(?:~[\w.]*\.)?([^`]*)`")


class Docstrings(griffe.Extension):  # type: ignore[misc] # griffe is read without its types
    """Rewrites every docstring in Markdown."""

    def on_object(self, *, obj: Any, **_: object) -> None:
        """Rewrite the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    r"""Return a docstring with its examples fenced, and names in backticks.

    >>> markdown("Adds to a :class:`~statefun.Context`.\n\n>>> 1 + 1\n2")
    'Adds to a `Context`.\n\n```pycon\n>>> 1 + 1\n2\n```\n'
    """
    fenced = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    return _ROLE.sub(r"`\1`", fenced)
