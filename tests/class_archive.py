# SPDX-License-Identifier: Apache-2.0
"""An archive of Spark's classes, with which every JVM of the tests starts with half of the work.

Java would otherwise read, check and link some 25,000 classes anew for each of the many
applications that the tests start. See "Class Data Sharing" in the JDK's documentation: Java
uses an archive only with the same Java and the same jars, and else works without it. An archive
has no classes of jars that a program adds; so the Kafka connector is in the class path of the tests.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyspark
from confluent_kafka import Producer
from submitting import submit

from statefun.dev import EmbeddedKafka
from statefun.runtime.spark.connector import spark_kafka_connector

_FOLDER = Path(__file__).parents[1] / "build"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The compiler and the collector that have the least to start; an archive fits one collector."""


def use_archive() -> None:
    """Let the JVMs that this process and its children start use the archive; make it if it is missing."""
    os.environ["SPARK_DIST_CLASSPATH"] = os.pathsep.join(map(str, spark_kafka_connector()))
    os.environ["SPARK_SUBMIT_OPTS"] = java_options()


def java_options() -> str:
    """Return the options of a driver's JVM; the first call of all makes the archive."""
    return archived("spark", _run_greeter)


def archived(name: str, run: Callable[[str], None]) -> str:
    """Return options of a JVM that let it use an archive; make the archive if it is missing.

    Args:
        name: the name of the archive.
        run: runs a program that loads the classes, in a JVM that ends by itself, with the
            options that it gets.
    """
    archive = _FOLDER / f"{name}-{pyspark.__version__}.jsa"
    if not archive.exists():
        _FOLDER.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
            made = Path(folder) / archive.name
            run(f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={made} -Xlog:disable")
            made.replace(archive)  # whole or not at all: others may be making it as well
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={archive}"


def _run_greeter(options: str) -> None:
    os.environ["SPARK_SUBMIT_OPTS"] = options
    with EmbeddedKafka() as broker, tempfile.TemporaryDirectory() as name:
        for topic in ("users", "greetings"):
            broker.create_topic(topic)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("users", '{"name": "Ada"}', "Ada")
        producer.flush()
        bounded = ("--conf", "spark.statefun.available-now=true")
        process = submit(broker, "greeter", Path(name), *bounded)
        assert process.wait() == 0, (Path(name) / "log").read_text()
