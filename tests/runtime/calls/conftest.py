# SPDX-License-Identifier: Apache-2.0
"""A driver's register of calls, and its server for reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statefun.runtime.calls.call_register import CallRegister
from statefun.runtime.calls.call_server import CallServer
from statefun.runtime.checkpoint.call_log import CallLog
from statefun.runtime.checkpoint.folder import Folder


@pytest.fixture
def register(tmp_path: Path) -> CallRegister:
    """Return an empty register."""
    return CallRegister(CallLog(Folder.at(tmp_path)))


@pytest.fixture
def server(register: CallRegister) -> Iterator[CallServer]:
    """Serve the register."""
    server = CallServer(register, "127.0.0.1")
    yield server
    server.close()
