# SPDX-License-Identifier: Apache-2.0
"""Kafka Connect's own transforms, in a Java process that answers line by line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, final

from patience import SECONDS

from statefun.runtime.spark.jars import MavenArtifact, java_command, resolve

_SOURCE = Path(__file__).parent / "transforms" / "connect" / "ConnectTransforms.java"
_VERSION = "4.2.0"
_ARTIFACTS = tuple(
    MavenArtifact.parse(f"org.apache.kafka:connect-{name}:{_VERSION}")
    for name in ("transforms", "json")
)


@final
class ConnectProcess:
    """Applies transforms; a context manager."""

    def __init__(self) -> None:
        path = os.pathsep.join(map(str, resolve(_ARTIFACTS)))
        # Times of Connect's texts are in the machine's own zone; ours are in UTC.
        options = ("-Xmx128m", "-XX:+UseSerialGC", "-Duser.timezone=UTC", "-Duser.language=en")
        self._process = subprocess.Popen(
            [java_command(), *options, "-cp", path, str(_SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def apply(
        self, transforms: Sequence[tuple[str, Mapping[str, str]]], record: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the record that comes out, or the ``error``.

        Args:
            transforms: their classes, with their options.
            record: topic, partition, offset and timestamp; key and value with their schemas.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = [{"type": type_, "options": options} for type_, options in transforms]
        self._process.stdin.write(json.dumps({"transforms": asked, "record": record}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def __enter__(self) -> ConnectProcess:
        """Return the process."""
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the process."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(timeout=SECONDS)
