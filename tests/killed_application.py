# SPDX-License-Identifier: Apache-2.0
"""An application in processes of its own, which are killed in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROGRAM = """
import statefun
from statefun import Context, KafkaEgressMessage, State, function


class Count(State):
    count: int = 0


@function("test/number")
def number(ctx: Context, text: str, state: Count) -> None:
    state.count += 1
    record = KafkaEgressMessage.for_egress("test/out").with_topic("TOPIC")
    ctx.send(record.with_key(ctx.address.id).with_value(f"{text} {state.count}").build())


if __name__ == "__main__":
    statefun.run(**SETTINGS)
"""


def counting_program(topic: str, **settings: object) -> str:
    """Return a program that publishes each text with the number of texts that its address has got.

    Args:
        topic: the topic of the published records.
        settings: the arguments of ``run()``.
    """
    return _PROGRAM.replace("TOPIC", topic).replace("SETTINGS", repr(settings))


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the application in processes of its own, and kill them at the end of the block."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "app.py"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,  # with its JVM and workers
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
