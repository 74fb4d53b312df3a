# SPDX-License-Identifier: Apache-2.0
"""Whoever looks at a soaked application's live page, and gives it orders through its admin API."""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import closing

import attrs
from soak_functions import SEMANTICS
from soak_processes import Driver

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.pauses import Pausable, change_paused

PARTS = (
    (Pausable.APPLICATION, ""),
    (Pausable.INGRESS, "soak/in"),
    *((Pausable.EGRESS, f"soak/{name}") for name in ("audits", *SEMANTICS)),
)
"""What may be paused."""
_PATHS = (
    "/page/",
    "/status",
    "/topology?limit=300",
    "/batches",
    "/ingresses",
    "/failures",
    "/timers",
    "/functions",
    "/metrics",
)
"""What the page asks for, and what Prometheus does."""
_BETWEEN = 1.0
"""The seconds between two looks."""
_PATIENCE = 20.0
"""Seconds; a driver may be frozen."""


def resume(checkpoint: Folder) -> None:
    """Let all parts of an application go on, whether it runs or not."""
    for part, name in PARTS:
        change_paused(checkpoint, part, name, is_paused=False)


@attrs.define
class Page:
    """The live pages of all drivers of an application."""

    looks: int = 0
    """How many answers have come."""
    problems: list[str] = attrs.Factory(list)
    """Answers that say no more than that something is wrong with the server."""

    def watch(self, driver: Driver) -> None:
        """Look at the page of a driver in a thread, until the driver ends."""
        threading.Thread(target=self._watch, args=(driver,), daemon=True).start()

    def order(self, driver: Driver, method: str, path: str) -> bool:
        """Send a request that changes the application; return False if the driver does not answer any more."""
        status, content = self._ask(driver, method, path)
        if status and status not in {http.HTTPStatus.OK, http.HTTPStatus.ACCEPTED}:
            raise AssertionError(f"{method} {path} is answered with {status}: {content}")
        return status != 0

    def _watch(self, driver: Driver) -> None:
        while driver.is_running:
            for path in _PATHS:
                status, content = self._ask(driver, "GET", path)
                self.looks += status == http.HTTPStatus.OK
                if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR and "[SF" not in content:
                    self.problems.append(f"GET {path} is answered with {status}: {content}")
            time.sleep(_BETWEEN)

    def _ask(self, driver: Driver, method: str, path: str) -> tuple[int, str]:
        """Return the status of an answer and its content; 0 if there is none."""
        try:
            with closing(
                http.client.HTTPConnection("127.0.0.1", driver.admin, timeout=_PATIENCE)
            ) as client:
                client.request(method, path)
                answer = client.getresponse()
                return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
