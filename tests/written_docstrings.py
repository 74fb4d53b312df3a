# SPDX-License-Identifier: Apache-2.0
"""The docstrings in a module's source: compiled functions and classes have none."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import statefun


def written_docstrings(module: str) -> dict[str, str]:
    """Return the docstrings of a module of statefun, by the qualified names of classes and functions."""
    path = Path(statefun.__file__).parent.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return dict(_below(ast.parse(file.read_text("utf-8")), ""))


def _below(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, str]]:
    for each in node.body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{each.name}"
            yield name, ast.get_docstring(each) or ""
            if isinstance(each, ast.ClassDef):
                yield from _below(each, f"{name}.")
