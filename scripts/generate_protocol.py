# SPDX-License-Identifier: Apache-2.0
"""Generate ``statefun/protocol`` from ``proto/``: ``python scripts/generate_protocol.py [OUT]``."""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent


def generate(out: Path) -> None:
    """Write the Python modules and their type stubs below ``out``."""
    sources = sorted((ROOT / "proto").rglob("*.proto"))
    arguments = [
        "protoc",
        f"-I{ROOT / 'proto'}",
        f"--python_out={out}",
        f"--mypy_out=quiet:{out}",
        *map(str, sources),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
