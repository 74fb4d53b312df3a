# SPDX-License-Identifier: Apache-2.0
"""A real schema registry: Apicurio's, which has Confluent's interface as well, in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local_servers import free_port
from patience import SECONDS

from statefun.runtime.spark.jars import cache_folder, java_command
from statefun.runtime.spark_internals.class_path import spark_jars_folder

VERSION = "2.6.13.Final"

REQUEST = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="statefun" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}"
        transitive="false" conf="default->default">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


@contextmanager
def schema_registry() -> Iterator[str]:
    """Run a registry; give the URL of the interface that Confluent's clients use."""
    folder = _program()
    port = free_port()
    command = [
        *(java_command(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1"),
        *(f"-Dquarkus.http.port={port}", "-jar"),
        str(next(folder.glob("*-runner.jar"))),
    ]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process,
    ):
        try:
            _wait(f"{url}/subjects", process)
            yield url
        finally:
            process.terminate()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - this machine's own
                return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _program() -> Path:
    """Download the registry, through the Ivy that PySpark ships, unless it is there already."""
    folder = cache_folder() / "tests" / f"apicurio-registry-{VERSION}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            work = Path(name)
            (work / "ivy.xml").write_text(REQUEST)
            ivy = os.pathsep.join(map(str, sorted(spark_jars_folder().glob("ivy-*.jar"))))
            subprocess.run(
                [
                    *(java_command(), "-cp", ivy, "org.apache.ivy.Main", "-cache", "ivy"),
                    *("-ivy", "ivy.xml", "-confs", "default"),
                ],
                cwd=work,
                check=True,
                capture_output=True,
            )
            with tarfile.open(next(work.glob("ivy/**/*.tar.gz"))) as archive:
                archive.extractall(work / "registry", filter="data")
            shutil.move(work / "registry", folder)
    return folder
