# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTOCOL = Path("statefun", "protocol")


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    """What is in the repository is what the generator makes of proto/, byte for byte."""
    environment = {
        **os.environ,
        # protoc looks for its plugin for type stubs there
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }

    subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate_protocol.py", tmp_path],
        check=True,
        env=environment,
    )

    generated = {path.name: path.read_bytes() for path in (tmp_path / PROTOCOL).iterdir()}
    committed = {path.name: path.read_bytes() for path in (ROOT / PROTOCOL).glob("*_pb2.py*")}
    sources = [path.stem for path in (ROOT / "proto" / PROTOCOL).glob("*.proto")]
    assert generated == committed, "run `make protocol`"
    assert sorted(generated) == sorted(
        f"{source}_pb2.{suffix}" for source in sources for suffix in ("py", "pyi")
    )
