# SPDX-License-Identifier: Apache-2.0
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from patience import SECONDS

from statefun.dev import EmbeddedKafka
from statefun.dev.dev_topics import wait_for_leaders
from statefun.sdk.errors import KafkaError, PlatformError

pytestmark = pytest.mark.broker

QUIET = {"log_level": 0}

ORPHANING_PROGRAM = """\
import time
from statefun.dev import EmbeddedKafka
broker = EmbeddedKafka().start()
print(broker.pid, broker.log_file.parent, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """Return a broker that the tests of this module share; each test uses its own topics."""
    with EmbeddedKafka() as broker:
        yield broker


def _produce(broker: EmbeddedKafka, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(20) == 0


def _consume(broker: EmbeddedKafka, topic: str, count: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"readers-of-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        },
    )
    consumer.subscribe([topic])
    try:
        return [(message.value() or b"").decode() for message in consumer.consume(count, 20)]
    finally:
        consumer.close()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_records_go_in_and_come_out(broker: EmbeddedKafka) -> None:
    """A created topic can be written and read at once, also by a consumer group."""
    broker.create_topic("greetings", partitions=2, config={"retention.ms": "-1"})

    _produce(broker, "greetings", "hello", "world")

    assert sorted(_consume(broker, "greetings", 2)) == ["hello", "world"]


def test_records_of_long_ago_stay(broker: EmbeddedKafka) -> None:
    """Topics of the broker do not delete records because of their age."""
    broker.create_topic("history")
    topic = ConfigResource(ResourceType.TOPIC, "history")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})

    [described] = admin.describe_configs([topic]).values()

    assert described.result(20)["retention.ms"].value == "-1"


def test_transactions_are_those_of_a_current_cluster(broker: EmbeddedKafka) -> None:
    """Transactions work with replication factor 1, and aborted records stay hidden."""
    broker.create_topic("payments")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payer", **QUIET},
    )
    producer.init_transactions(20)

    producer.begin_transaction()
    producer.produce("payments", b"aborted")
    producer.abort_transaction(20)
    producer.begin_transaction()
    producer.produce("payments", b"committed")
    producer.commit_transaction(20)

    assert _consume(broker, "payments", 1) == ["committed"]


def test_storage_has_the_features_of_a_formatted_cluster(broker: EmbeddedKafka) -> None:
    """The broker starts from the feature levels that Kafka's own tool writes, not from old ones."""
    log = broker.log_file.read_text()

    assert "Appending 6 bootstrap record(s)" in log
    assert "binary bootstrap metadata file" in log


def test_topic_exists_already(broker: EmbeddedKafka) -> None:
    """Creating a topic twice is refused with its name."""
    broker.create_topic("once")

    with pytest.raises(KafkaError, match=r"cannot create topic 'once': .*already exists"):
        broker.create_topic("once")


def test_a_broker_that_does_not_answer_is_quoted(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the last lines of the broker's log."""
    monkeypatch.setattr("statefun.dev.kafka._ADMIN_TIMEOUT", timedelta(seconds=1))
    broker.pause()

    try:
        with pytest.raises(KafkaError, match=r"(?s)'late': .*the broker last printed.* \| "):
            broker.create_topic("late")
    finally:
        broker.resume()


def test_a_connection_that_is_lost_does_not_end_the_wait_for_leaders() -> None:
    """The client does not repeat a request for metadata by itself."""
    with EmbeddedKafka() as broker:
        broker.create_topic("users", 2)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
        broker.kill()
        with pytest.raises(KafkaException):
            admin.list_topics("users", timeout=5)
        restart = threading.Thread(target=broker.restart)
        restart.start()

        try:
            wait_for_leaders(admin, "users", 2, timedelta(seconds=60))
        finally:
            restart.join()


def test_topics_are_not_created_by_accident(broker: EmbeddedKafka) -> None:
    """A misspelt topic is an error of the client, not a new topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})

    found = admin.list_topics("grettings", timeout=SECONDS).topics["grettings"]

    assert found.error is not None
    assert "Unknown topic" in str(found.error)


def test_paused_broker_does_not_answer(broker: EmbeddedKafka) -> None:
    """A paused broker keeps its port and does not answer; after ``resume`` it continues."""
    broker.create_topic("paused")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    broker.pause()

    try:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
        assert broker.running
    finally:
        broker.resume()

    _produce(broker, "paused", "after")
    assert _consume(broker, "paused", 1) == ["after"]


def test_starting_twice_changes_nothing(broker: EmbeddedKafka) -> None:
    """``start`` does nothing if the broker runs."""
    pid = broker.pid

    broker.start()

    assert broker.pid == pid


def test_terminal_interrupt_does_not_reach_it(broker: EmbeddedKafka) -> None:
    """The broker is in its own process session, which the terminal's Ctrl-C does not reach."""
    session = os.getsid(broker.pid)

    assert session != os.getsid(0)


def test_records_survive_kill_and_restart(tmp_path: Path) -> None:
    """A killed broker starts again with its data and port; ``stop`` keeps the given folder."""
    data = tmp_path / "kafka"
    broker = EmbeddedKafka(data=data)
    with broker:
        address, pid = broker.bootstrap_servers, broker.pid
        broker.create_topic("kept")
        _produce(broker, "kept", "before")

        broker.kill()

        assert not _exists(pid)
        assert not broker.running
        with pytest.raises(PlatformError, match="not running"):
            broker.pause()
        broker.restart()
        assert broker.bootstrap_servers == address
        assert _consume(broker, "kept", 1) == ["before"]
    assert data.is_dir()


def test_stop_leaves_nothing_behind() -> None:
    """``stop`` ends the process, also a paused one, and deletes the temporary folder."""
    waits: list[str] = []
    broker = EmbeddedKafka(progress=waits.append).start()
    pid, folder = broker.pid, broker.log_file.parent
    broker.pause()

    broker.stop()

    assert not _exists(pid)
    assert not folder.exists()
    assert waits[-1].startswith("starting Apache Kafka 4.3.1 on 127.0.0.1:")
    with pytest.raises(PlatformError, match="has not been started"):
        _ = broker.bootstrap_servers


def test_broker_does_not_outlive_its_owner() -> None:
    """When the owner is killed, the broker ends and its temporary folder is deleted."""
    with subprocess.Popen(
        [sys.executable, "-c", ORPHANING_PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        pid, folder = owner.stdout.readline().split() if owner.stdout else ("", "")

        owner.send_signal(signal.SIGKILL)

    assert _wait_until(lambda: not _exists(int(pid)))
    assert _wait_until(lambda: not Path(folder).exists())


def test_taken_port_is_explained(tmp_path: Path) -> None:
    """The error names a port that is in use; no process is started, and no file stays."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        with pytest.raises(PlatformError, match=f"another process uses port {port} of 127.0.0.1"):
            EmbeddedKafka(port=port, data=tmp_path).start()

    assert not (tmp_path / "server.properties").exists()


def test_failed_start_shows_the_log(tmp_path: Path) -> None:
    """A broker that ends while it starts gives an error with the reason that it printed."""
    broker = EmbeddedKafka(config={"log.retention.ms": "for ever"}, data=tmp_path)

    with pytest.raises(PlatformError) as caught:
        broker.start()

    assert "ended while it was starting" in caught.value.message
    assert "Invalid value for ever for configuration log.retention.ms" in caught.value.message
    assert not broker.running


def test_slow_start_is_given_up() -> None:
    """A broker that is not ready in time is killed, and its folder is deleted."""
    folders: list[Path] = []
    slow = EmbeddedKafka(
        start_timeout=timedelta(milliseconds=200),
        progress=lambda _: folders.append(slow.log_file.parent),
    )

    with pytest.raises(PlatformError, match=r"was not ready within 0:00:00\.2"):
        slow.start()

    assert not slow.running
    assert not folders[-1].exists()
