# SPDX-License-Identifier: Apache-2.0
"""A Maven repository on this machine that has each artifact in each version, without dependencies."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def _pom(group: str, artifact: str, version: str) -> bytes:
    return (
        f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId>"
        f"<artifactId>{artifact}</artifactId><version>{version}</version></project>"
    ).encode()


def _jar() -> bytes:
    content = io.BytesIO()
    zipfile.ZipFile(content, "w").close()
    return content.getvalue()


class _Repository(BaseHTTPRequestHandler):
    """Answers requests for descriptions and jars; sums and lists of versions are not found."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        *groups, artifact, version, file = self.path.strip("/").split("/")
        content = b""
        match file.removeprefix(f"{artifact}-{version}"):
            case ".pom":
                content = _pom(".".join(groups), artifact, version)
            case ".jar":
                content = _jar()
        self.send_response(200 if content else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write no log."""


@contextmanager
def maven_repository(settings: Path) -> Iterator[None]:
    """Run the repository, and write the settings to a file with which Ivy uses it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Repository)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers><ibiblio name="here" m2compatible="true" '
        f'root="http://127.0.0.1:{server.server_port}/"/></resolvers></ivysettings>'
    )
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
