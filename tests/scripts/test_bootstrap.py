# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import bootstrap

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize(("version", "is_kept"), [(THIS, True), ("3.9", False)])
def test_environment_has_the_python_that_was_asked_for(
    version: str,
    is_kept: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``make test PYTHON=python3.13`` tests with 3.13, also where ``.venv`` has another Python."""
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "LOG", tmp_path / "build" / "bootstrap.log")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    installed = tmp_path / ".venv" / "lib" / f"python{version}" / "site-packages"
    installed.mkdir(parents=True)

    bootstrap.ensure_venv()

    assert installed.exists() is is_kept
    asked = "import sys; print(*sys.version_info[:2], sep='.')"
    python = tmp_path / ".venv" / "bin" / "python"
    assert subprocess.check_output([python, "-c", asked], text=True).strip() == THIS
