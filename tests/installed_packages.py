# SPDX-License-Identifier: Apache-2.0
"""Small installed packages, in place of real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest


def install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    files: Mapping[str, str],
    requires: Sequence[str] = (),
    *,
    is_listed: bool = True,
) -> None:
    """Install a package in a folder, which becomes the first one in Python's path.

    Args:
        folder: the folder, which may have other packages.
        monkeypatch: takes the folder out of the path after the test.
        name: the name of the package, which has no hyphens.
        files: the texts of its files, by their paths.
        requires: its requirements.
        is_listed: whether it has the list of its files.
    """
    described = f"{name}-1.0.dist-info"
    metadata = [
        *("Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"),
        *(f"Requires-Dist: {each}" for each in requires),
    ]
    texts = {**files, f"{described}/METADATA": "\n".join(metadata) + "\n"}
    if is_listed:
        texts[f"{described}/RECORD"] = "".join(f"{path},,\n" for path in texts)
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    monkeypatch.syspath_prepend(str(folder))
