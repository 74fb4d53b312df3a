# SPDX-License-Identifier: Apache-2.0
"""The greeter as users launch it: with spark-submit, in separate processes."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
from class_archive import SHORT_LIVED
from greeter import flights
from harness import KafkaHarness
from submitting import submit

from statefun.dev import EmbeddedKafka

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def greetings(kafka: KafkaHarness) -> list[tuple[str, str]]:
    """Return key and text of every greeting so far."""
    return [(record.key or "", record.value) for record in kafka.receive("greetings")]


def commits(folder: Path) -> int:
    """Return how many micro-batches the application has committed."""
    return len(list(folder.glob("checkpoint/commits/[0-9]*")))


@pytest.fixture
def bare_class_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let statefun itself add the Kafka connector, as it does for users."""
    monkeypatch.delenv("SPARK_DIST_CLASSPATH")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", SHORT_LIVED)


def assert_quiet(log: Path) -> None:
    """No stack trace, be it Python's or the JVM's."""
    assert "Traceback" not in log.read_text()
    assert "\tat " not in log.read_text()


@pytest.mark.long(minutes=2.9)
def test_flights_survive_sigterm_and_sigkill(own_broker: EmbeddedKafka, tmp_path: Path) -> None:
    """Stopped twice in the middle, the greeter ends with pandas' count for every aircraft."""
    kafka = KafkaHarness(own_broker, "")
    for topic in ("users", "greetings"):
        own_broker.create_topic(topic, partitions=2)
    tail_numbers, without = flights.greeted_flights(5_000)
    kafka.send("users", flights.records(tail_numbers))
    options = (
        *("--conf", "spark.statefun.available-now=true"),
        *("--conf", "spark.statefun.records-per-batch=400"),
    )

    log = tmp_path / "log"
    for number in (signal.SIGTERM, signal.SIGKILL):
        before = commits(tmp_path)
        process = submit(own_broker, "greeter", tmp_path, *options)
        while commits(tmp_path) < before + 2 or not greetings(kafka):
            assert process.poll() is None, log.read_text()
            time.sleep(0.3)
        process.send_signal(number)
        process.wait()
        assert 0 < len(greetings(kafka)) < len(tail_numbers)
        if number == signal.SIGKILL:  # texts of Spark's orphaned processes are not ours
            log = log.rename(tmp_path / "log-of-orphans")
        else:
            assert_quiet(log)
    log = tmp_path / "log"
    last = submit(own_broker, "greeter", tmp_path, *options).wait()

    assert last == 0, log.read_text()
    assert_quiet(log)
    assert without > 0
    assert flights.verify(tail_numbers, greetings(kafka)) == []


@pytest.mark.long(minutes=1.9)
@pytest.mark.usefixtures("bare_class_path")
def test_separate_executors(own_broker: EmbeddedKafka, tmp_path: Path) -> None:
    """Nothing assumes that driver and executors share a process, memory or working directory."""
    kafka = KafkaHarness(own_broker, "")
    for topic in {"users", "greetings"} - kafka.broker_topics():
        own_broker.create_topic(topic, partitions=2)
    process = submit(
        own_broker,
        "greeter",
        tmp_path,
        *("--master", "local-cluster[1,2,1024]"),
        *("--conf", "spark.statefun.available-now=true"),
        *("--conf", "spark.executorEnv.KAFKA_ADDRESS="),
    )
    before = len(greetings(kafka))
    kafka.send("users", [("Ada", b'{"name": "Ada"}')])

    assert process.wait() == 0, (tmp_path / "log").read_text()
    assert greetings(kafka)[before:]


@pytest.mark.long(minutes=1.1)
def test_workers_without_statefun_are_one_sentence(
    own_broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """Where functions run; where the reading of a source is planned, it is there."""
    python = tmp_path / "python"
    python.write_text(  # without site-packages
        "#!/bin/sh\n"
        'case "$*" in *" pyspark.worker"*) lacking=-S;; esac\n'
        f'exec "{sys.executable}" $lacking "$@"\n'
    )
    python.chmod(0o700)
    kafka = KafkaHarness(own_broker, "")
    for topic in {"users", "greetings"} - kafka.broker_topics():
        own_broker.create_topic(topic)
    kafka.send("users", [("Ada", b'{"name": "Ada"}')])

    process = submit(
        own_broker,
        "greeter",
        tmp_path,
        *("--master", "local-cluster[1,1,1024]"),
        *("--conf", "spark.statefun.available-now=true"),
        *("--conf", f"spark.pyspark.driver.python={sys.executable}"),
        *("--conf", f"spark.pyspark.python={python}"),
    )

    assert process.wait() == 1
    log = tmp_path / "log"
    assert_quiet(log)
    last = log.read_text().splitlines()[-1]
    assert last.startswith(
        "statefun: [SF700] the Python workers cannot import statefun, with which"
    )


def test_a_typo_in_the_settings_is_one_line(own_broker: EmbeddedKafka, tmp_path: Path) -> None:
    """The user reads the mistake and the valid names, and no stack trace."""
    process = submit(own_broker, "greeter", tmp_path, "--conf", "spark.statefun.avialable-now=true")

    assert process.wait() == 78
    log = tmp_path / "log"
    assert (
        "[SF100] spark.statefun.avialable-now is not a setting; the settings are: "
        in log.read_text()
    )
    assert_quiet(log)
