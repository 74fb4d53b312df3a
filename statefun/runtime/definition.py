# SPDX-License-Identifier: Apache-2.0
"""The definition of an application: its functions and modules, and how they are to run."""

from __future__ import annotations

import attrs

from statefun.engine.clock import Clock
from statefun.module.model import Module
from statefun.runtime.settings import Settings
from statefun.runtime.terminal.status_line import StatusLine
from statefun.sdk.functions import StatefulFunctions


@attrs.frozen
class Definition:
    """The functions and modules of an application, and how they are to run."""

    module: Module
    functions: StatefulFunctions
    """All functions, with the functions of the module's endpoints."""
    settings: Settings
    clock: Clock
    """Decides which timers are due."""
    line: StatusLine | None = None
    """The line on a terminal that shows the progress; if it is None, the log shows it."""
