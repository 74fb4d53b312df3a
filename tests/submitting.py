# SPDX-License-Identifier: Apache-2.0
"""Launches the examples as users do: with spark-submit, in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from statefun.dev import EmbeddedKafka

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def submit(
    broker: EmbeddedKafka, example: str, folder: Path, *options: str
) -> subprocess.Popen[str]:
    """Launch an example with spark-submit; its log goes to a file in ``folder``."""
    bin_ = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "KAFKA_ADDRESS": broker.bootstrap_servers,
        # A local cluster starts its executors from there.
        "SPARK_HOME": str(Path(pyspark.__path__[0])),
    }
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            [
                *(str(bin_ / "spark-submit"), *options),
                *("--conf", f"spark.statefun.checkpoint={folder / 'checkpoint'}"),
                str(EXAMPLES / example / "app.py"),
            ],
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            text=True,
        )
