# SPDX-License-Identifier: Apache-2.0
"""Which files of a project have changed."""

from __future__ import annotations

import os
from pathlib import Path

from statefun.dev.changed_files import ChangedFiles


def test_each_change_is_found_once(tmp_path: Path) -> None:
    """New, written and deleted files, also in folders; not those of packages and of checkpoints."""
    (tmp_path / "app.py").write_text("1")
    (tmp_path / "old.py").write_text("1")
    changes = ChangedFiles(tmp_path)
    assert changes.take() == []

    (tmp_path / "app.py").write_text("12")
    (tmp_path / "old.py").unlink()
    for name in (
        "shop/cart.py",
        "module.yaml",
        "out.json",
        "notes.txt",
        ".statefun/a.yaml",
        "venv/lib/b.py",
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")

    changed = [path.relative_to(tmp_path).as_posix() for path in changes.take()]
    assert changed == ["app.py", "module.yaml", "old.py", "shop/cart.py"]
    assert changes.take() == []


def test_a_file_of_the_same_size_has_changed_by_its_time(tmp_path: Path) -> None:
    """Editors replace files by others of the same size."""
    file = tmp_path / "app.py"
    file.write_text("1")
    changes = ChangedFiles(tmp_path)

    os.utime(file, ns=(1, 1))

    assert changes.take() == [file]
