# SPDX-License-Identifier: Apache-2.0
"""The definition of an application: its functions, modules and settings."""

from __future__ import annotations

import attrs

from statefun.engine.clock import Clock
from statefun.module.model import Module
from statefun.runtime.settings import Settings
from statefun.runtime.terminal.status_line import StatusLine
from statefun.sdk.functions import StatefulFunctions


@attrs.frozen
class Definition:
    """The functions, modules and settings of an application."""

    module: Module
    functions: StatefulFunctions
    """All functions, including the functions of the module's endpoints."""
    settings: Settings
    clock: Clock
    """The clock that decides which delayed messages and expirations are due."""
    line: StatusLine | None = None
    """The terminal's status line, which shows the progress; if it is None, the log has the progress."""
