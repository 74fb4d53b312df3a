# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "action", ["prepare_storage(folder, '')", "write_settings(folder, 9092, 9093, {})"]
)
def test_a_full_disk_is_an_error_with_the_folder_of_the_broker(tmp_path: Path, action: str) -> None:
    """Python does not name the file; here, a limit of sizes stands for the disk."""
    program = f"""
import resource
from pathlib import Path
from statefun.dev.kafka_storage import prepare_storage, write_settings
folder = Path({str(tmp_path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (3, 3))
{action}
"""
    ended = subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, check=False
    )

    assert ended.stderr.endswith(
        f"{tmp_path}: the files of the broker cannot be written there: File too large; make room, or give the broker "
        "another folder\n"
    )
