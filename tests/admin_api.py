# SPDX-License-Identifier: Apache-2.0
"""The admin API of an application whose query does not run."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import attrs
from local_servers import free_port
from patience import SECONDS

from statefun import Context, StatefulFunctions
from statefun.engine.clock import SystemClock
from statefun.module.loader import parse_module
from statefun.module.model import Module
from statefun.runtime.admin.admin_server import serving_admin
from statefun.runtime.control import Control
from statefun.runtime.definition import Definition
from statefun.runtime.reporting.figures import Figures
from statefun.runtime.settings import Settings

TOKEN = "a-token-of-some-length"  # noqa: S105 - it guards nothing
MODULE = """
kind: io.statefun.kafka.v1/ingress
spec:
  id: test/in
  address: localhost:1
  consumerGroupId: tests
  topics:
    - topic: users
      valueFormat: {type: text}
      targets: [test/greeter]
---
kind: io.statefun.kafka.v1/egress
spec:
  id: test/out
  address: localhost:1
"""


def functions(former: str | None = None) -> StatefulFunctions:
    """Return functions that are never called; ``former`` is the name that the greeter had before."""
    registry = StatefulFunctions()

    @registry.bind("test/greeter", renamed_from=former)
    def greet(ctx: Context, name: str) -> None:
        pass

    return registry


@attrs.frozen
class Served:
    """An admin API."""

    port: int
    control: Control
    figures: Figures
    settings: Settings

    def ask(
        self, method: str, path: str, body: bytes | None = None, /, **headers: str
    ) -> tuple[int, Any]:
        """Send a request; return the status and the content of the answer."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            client.request(method, path, body, named)
            answer = client.getresponse()
            text = answer.read().decode()
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, json.loads(text) if is_json and text else text

    def raw(self, content: bytes) -> bytes:
        """Send bytes; return all bytes that the server answers before it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as client:
            client.sendall(content)
            found = b""
            while received := client.recv(65536):
                found += received
            return found


@contextmanager
def served(
    folder: Path, former: str | None = None, *, declared: str | Module = MODULE, **settings: Any
) -> Iterator[Served]:
    """Serve the API of an application whose query does not run.

    Args:
        folder: gets the checkpoint.
        former: the name that the greeter had before.
        declared: the module.
        settings: the settings of the run.
    """
    port = free_port()
    named = {"admin": port, **settings}
    module = parse_module(declared) if isinstance(declared, str) else declared
    resolved = Settings.resolve({}, None, checkpoint=folder / "checkpoint", **named)
    definition = Definition(module, functions(former), resolved, SystemClock())
    control, figures = Control(), Figures()
    with control.obeying(resolved.checkpoint), serving_admin(definition, control, figures):
        yield Served(port, control, figures, resolved)
