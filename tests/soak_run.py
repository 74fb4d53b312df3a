# SPDX-License-Identifier: Apache-2.0
"""An application that is soaked: its topics and checkpoint, its starts, and its end."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import attrs
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from local_servers import free_port
from soak_elsewhere import Elsewhere
from soak_functions import FUNCTIONS, LEDGERS, ORDERED, SEMANTICS, SLOW, WINDOWS
from soak_page import Page
from soak_processes import PATIENCE, Driver
from soak_verdict import PARTITIONS, Ends, Output, entries_in, handled_of, verdict

from statefun.dev import EmbeddedKafka
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed
from statefun.runtime.ingress.holding import WAITING
from statefun.runtime.spark.connector import spark_kafka_connector

HERE = Path(__file__).resolve().parent
PER_SLOW_ENTRY = 300
"""For so many messages between functions, each address with slow calls gets an entry."""
PER_WINDOW_ENTRY = 20
"""For so many messages between functions, each address with windows gets an entry."""
_ROUNDS = 20
"""After so many audits with the same answers, nothing more is handled."""
_DISORDER = 3000
"""By how much the event time of an entry for windows is earlier than the present, in milliseconds, at most: some are late."""
HOPS = 10
"""So many functions handle a message, one after the other."""
CORES = 2
_ENTRY = "x" * 10_000
"""The text of an entry of a ledger, after its number."""
_AT_ADDRESSES = len(LEDGERS) * 80_000
"""More bytes than wait in the states of ledgers: 64 KiB and an entry each. The rest waits in chunks."""


@attrs.define
class Soak:
    """One application on one checkpoint, with its input and the troubles that it met."""

    kafka: EmbeddedKafka
    address: str
    """Of the broker or of a proxy before it."""
    folder: Path
    random: random.Random
    prefix: str
    lanes: int = 1
    java_options: str = ""
    sent: int = 0
    entries: int = 0
    """How many entries each ledger was sent."""
    slow_entries: int = 0
    """How many entries each address with slow calls was sent."""
    window_entries: int = 0
    """How many entries each address with windows was sent."""
    done: Counter[str] = attrs.Factory(Counter)
    drivers: list[Driver] = attrs.Factory(list)
    restores: dict[str, list[Ends]] = attrs.Factory(lambda: {name: [] for name in SEMANTICS})
    """By the egresses' semantics, the ends of their topics each time when a snapshot replaced the checkpoint."""
    elsewhere: Elsewhere = attrs.field(init=False)
    """The server of the ledgers, which does not run yet."""
    page: Page = attrs.field(factory=Page, init=False)
    """Looks at the live page as long as a driver runs."""
    program: Path = HERE / "soak_app.py"
    is_closed: bool = attrs.field(default=False, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    expected: ClassVar[Sequence[str]] = ("in use by Spark's JVM", "has committed batch")
    """Texts of errors of checkpoints with which drivers may end: about the remains of another driver."""
    pause: ClassVar[float] = 0.02
    """The seconds between two looks at the checkpoint."""

    @property
    def checkpoint(self) -> Folder:
        """The checkpoint."""
        return Folder.at(self.folder / "checkpoint")

    @property
    def location(self) -> str:
        """Where the application finds the checkpoint."""
        return self.checkpoint.location

    def environment(self) -> dict[str, str]:
        """Return the environment variables with which Spark starts."""
        # Tasks that publish mostly wait, and the micro-batch is not to wait for them.
        cores = CORES if self.lanes == 1 else CORES + self.lanes * len(SEMANTICS)
        return {
            "PYSPARK_SUBMIT_ARGS": f"--master local[{cores},8] --driver-memory 1g "
            "--conf spark.ui.enabled=false pyspark-shell",
            "SPARK_SUBMIT_OPTS": self.java_options,
            # Behind Spark's own jars: from there, Java can archive them as well.
            "SPARK_DIST_CLASSPATH": ":".join(map(str, spark_kafka_connector())),
        }

    def workers(self, driver: Driver) -> list[int]:
        """Return the Python workers of a driver's application."""
        return driver.workers()

    def __attrs_post_init__(self) -> None:
        self.elsewhere = Elsewhere(self.prefix, self.folder / "elsewhere.log")

    def create_topics(self) -> None:
        """Create the topics and files of the application."""
        for name in ("in", "audits", *SEMANTICS):
            self.kafka.create_topic(self.prefix + name, partitions=PARTITIONS)

    def send(self, messages: int) -> None:
        """Send records that make so many messages between functions, and some entries for slow calls and for windows."""
        records = messages // HOPS
        targets = [f"f{self.random.randrange(FUNCTIONS)}" for _ in range(records)]
        self._produce([(target, str(HOPS)) for target in targets])
        self.sent += records * HOPS
        first = self.slow_entries + 1
        self.slow_entries += 1 + messages // PER_SLOW_ENTRY
        numbers = range(first, self.slow_entries + 1)
        self._produce([(name, str(number)) for number in numbers for name in SLOW])
        self.sent += len(numbers) * len(SLOW)
        entries = 1 + messages // PER_WINDOW_ENTRY
        self.window_entries += entries
        self._produce([(name, "entry") for _ in range(entries) for name in WINDOWS], _DISORDER)

    def write(self, entries: int) -> int:
        """Send each ledger so many entries, which it has to receive in this order.

        Returns:
            How many bytes wait, at least, while none of them is received.
        """
        numbers = range(self.entries + 1, self.entries + entries + 1)
        self._produce([(ledger, f"{n} {_ENTRY}") for n in numbers for ledger in LEDGERS])
        self.entries += entries
        self.sent += entries * len(LEDGERS)
        return entries * len(LEDGERS) * len(_ENTRY)

    def waiting(self) -> int:
        """Return how many bytes of entries wait for the server of the ledgers."""
        try:
            content = read_framed(self.checkpoint, WAITING)
        except FileNotFoundError:
            return 0
        return sum(json.loads(content)["after"].values())

    def has_chunks(self) -> bool:
        """Return whether so many entries wait that some of them are in chunks."""
        return self.waiting() > _AT_ADDRESSES

    def start(self, *, point: str = "", number: int = 1, records: int = 300) -> Driver:
        """Start the application.

        Args:
            point: where its driver dies; nowhere if empty.
            number: how often it comes there first.
            records: how many of them a micro-batch takes at most.

        Raises:
            InterruptedError: if the application is closed.
        """
        admin = free_port()
        options = {
            "folder": str(self.folder),
            "checkpoint": self.location,
            "address": self.address,
            "prefix": self.prefix,
            "port": self.elsewhere.port,
            "admin": admin,
            "lanes": self.lanes,
            "point": point,
            "number": number,
            "records_per_batch": records,
        }
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **self.environment(),
        }
        self.folder.mkdir(exist_ok=True)
        log_file = self.folder / f"driver-{len(self.drivers)}.log"
        with self._lock:
            if self.is_closed:
                raise InterruptedError("the application starts no more")
            with log_file.open("wb") as log:
                program = subprocess.Popen(
                    [sys.executable, str(self.program), json.dumps(options)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            driver = Driver(program, log_file, admin)
            self.drivers.append(driver)
        self.page.watch(driver)
        return driver

    def snapshot(self, name: str) -> None:
        """Copy the checkpoint, whatever the application does meanwhile; a further time, copy what is new."""
        self._statefun("snapshot", self.location, self.folder / name)

    def lose_checkpoint(self, snapshot: str) -> None:
        """Go on with a snapshot in the place of the checkpoint; the application does not run."""
        shutil.rmtree(self.location)
        self._statefun("restore", self.folder / snapshot, self.location, "--records-may-repeat")
        for semantic, restores in self.restores.items():
            restores.append(self._ends(f"{self.prefix}{semantic}"))

    def crash_at(self, point: str) -> None:
        """Let the driver die at a named point."""
        driver = self.start(point=point, number=self.random.randrange(1, 4))
        self.wait_for(driver, lambda: False)
        if driver.program.returncode != -signal.SIGKILL:
            raise AssertionError(f"not killed at {point!r}: {driver.log()}")
        driver.kill()
        self.check_group_offsets()
        self.done[point] += 1

    def finish(self, driver: Driver | None = None) -> str:
        """Let the application finish its work, and compare its output with its state.

        Args:
            driver: the one that runs; if None, one is started.

        Returns:
            A text for each difference; empty if all is well.
        """
        driver = driver or self.start(records=10_000)
        self.elsewhere.start()
        topic = f"{self.prefix}exactly-once"
        exact = Output(self.address, topic, self.restores["exactly-once"])
        try:
            self.wait_for(driver, lambda: self._is_complete(exact))
        except AssertionError as error:
            raise AssertionError(f"{exact.read()} of {self.sent} records came; {error}") from None
        counted = self._audited(driver, exact)
        driver.program.terminate()
        driver.program.wait()
        if driver.program.returncode != 0:
            return f"ended with {driver.program.returncode}: {driver.log()}"
        driver.wait_for_all()
        self.check_group_offsets()
        if self.page.problems:
            return self.page.problems[0]
        if self.waiting():
            return f"{self.waiting()} bytes are counted as waiting, and all entries are received"
        return verdict(
            self.address,
            self.prefix,
            counted,
            self.sent,
            window_entries=self.window_entries,
            restores=self.restores,
        )

    def _audited(self, driver: Driver, exact: Output) -> dict[str, tuple[int, str]]:
        """Ask all functions what they have handled, until it is all, or no more for some time.

        After a restore, the topic has records of messages that are yet to be handled once more.
        """
        names = [*(f"f{number}" for number in range(FUNCTIONS)), *ORDERED, *WINDOWS]
        audits = Output(self.address, f"{self.prefix}audits")
        handled: list[int] = []
        while True:
            self._produce([(name, "audit") for name in names])
            expected = (len(handled) + 1) * len(names)
            self.wait_for(driver, lambda: audits.read() >= expected)  # noqa: B023 - waits at once
            counted = {name: audits.chains.get(name, [(0, "")])[-1] for name in names}
            exact.read()
            handled.append(sum(count for count, _ in counted.values()))
            is_all = handled_of(counted) == self.sent and all(
                entries_in(exact.known(name, counted[name][0])) == self.window_entries
                for name in WINDOWS
            )
            is_stuck = len(handled) > _ROUNDS and handled[-_ROUNDS] == handled[-1]
            if is_all or is_stuck or not driver.is_running:
                return counted
            time.sleep(1)

    def _is_complete(self, exact: Output) -> bool:
        """Return whether all messages are handled, and all entries for windows are in closed ones or late."""
        records = exact.read()
        windows = [exact.chains.get(name, []) for name in WINDOWS]
        return records - sum(map(len, windows)) >= self.sent and all(
            entries_in(chain) >= self.window_entries for chain in windows
        )

    def close(self) -> None:
        """End all processes of the application, from whatever thread, and let none start any more."""
        with self._lock:
            self.is_closed = True
        for driver in self.drivers:
            driver.kill()
        self.elsewhere.kill()

    def wait_for(self, driver: Driver, ready: Callable[[], bool]) -> None:
        """Wait until it is ready or the program has ended.

        Raises:
            AssertionError: if no micro-batch was committed for a long time.
        """
        commits, since = self.commits(), time.monotonic()
        while driver.is_running and not ready():
            if self.commits() > commits:
                commits, since = self.commits(), time.monotonic()
            if time.monotonic() - since > PATIENCE.total_seconds():
                raise AssertionError(f"nothing happened for {PATIENCE}: {driver.log()}")
            time.sleep(self.pause)

    def commits(self) -> int:
        """Return the newest batch that is committed; -1 if none is."""
        return CommitLog(self.checkpoint).newest()

    def check_group_offsets(self) -> None:
        """Check that the consumer group is nowhere ahead of the last committed batch."""
        if ahead := self.group_ahead():
            raise AssertionError(ahead)

    def group_ahead(self) -> str:
        """Describe where the consumer group is ahead of the last committed batch; empty if nowhere."""
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": f"{self.prefix}soak"},
        )
        topic = f"{self.prefix}in"
        asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        # In this order: the remains of a driver may still commit batches.
        committed = _answer(partial(consumer.committed, asked))
        log = CommitLog(self.checkpoint)
        batch = log.newest()
        ends = (log.end_offsets(batch)[0] if batch >= 0 else None) or {}
        read = ends.get(topic, {})
        consumer.close()
        for found in committed:
            if found.offset > read.get(str(found.partition), 0):
                return f"{found} is ahead of batch {batch}, which has read {read}"
        return ""

    def _statefun(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "statefun.cli", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stderr}")

    def _ends(self, topic: str) -> Ends:
        """Return the ends of a topic when nothing comes any more: a broker may have got more than it has taken."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "ends"})
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        before, ends = None, None
        while before is None or before != ends:
            before = ends
            ends = {each.partition: consumer.get_watermark_offsets(each)[1] for each in partitions}
            time.sleep(1)
        consumer.close()
        return ends or {}

    def _produce(self, records: list[tuple[str, str]], disorder: int = 0) -> None:
        """Write records, whose times are earlier than the present by up to ``disorder`` milliseconds."""
        producer = Producer({"bootstrap.servers": self.address, "enable.idempotence": True})
        for key, value in records:
            time_ = round(time.time() * 1000) - self.random.randint(0, disorder)
            producer.produce(f"{self.prefix}in", value, key, timestamp=time_)
        if producer.flush(60):
            raise AssertionError("the input cannot be written")


def _answer(ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """Ask the broker, which may have been started a moment ago, until it has an answer."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
