# SPDX-License-Identifier: Apache-2.0
"""``statefun watermark`` of checkpoints without a watermark; ``tests/runtime/test_watermarks_on_spark.py`` has others."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefun.cli import main
from statefun.runtime.checkpoint.ingress_order import INGRESSES


def test_a_folder_without_a_checkpoint_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is another mistake than an application without event time."""
    missing, empty, timeless = tmp_path / "missing", tmp_path / "empty", tmp_path / "timeless"
    empty.mkdir()
    timeless.mkdir()
    (timeless / INGRESSES).write_text("{}")

    for folder in (missing, empty):
        assert main(["watermark", str(folder)]) == 1
        assert f"[SF100] there is no checkpoint at {folder}" in capsys.readouterr().err
    assert main(["watermark", str(timeless)]) == 1
    assert "timeless has no event time: no ingress of its last" in capsys.readouterr().err
    assert not missing.exists()
