# SPDX-License-Identifier: Apache-2.0
"""``statefun watermark`` of checkpoints without a watermark; ``tests/runtime/test_watermarks_on_spark.py`` has others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_checkpoint import small_checkpoint

from statefun.cli import main
from statefun.engine.watermark import EventProgress, Holder
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


def test_an_id_with_control_characters_is_shown_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message that holds the watermark may be to any id; a terminal must not obey it, and a line stays one."""
    folder = small_checkpoint(tmp_path)
    holder = Holder("message", "t.fns/a/Ada\x1b[2J\nwatermark: 2099", 0)
    event = EventProgress(watermark=1000, holder=holder).encode()
    offset = json.dumps({"batch": -1, "tick": -1, "event": event})
    folder.child("offsets").write("0", f'v1\n{{}}\n{{"users":{{"0":7}}}}\n{offset}'.encode())

    assert main(["watermark", str(tmp_path)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("watermark:")] == [
        "watermark: 1970-01-01T00:00:01.000+00:00"
    ]
    assert all(line.isprintable() for line in lines)
