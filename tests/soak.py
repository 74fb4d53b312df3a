# SPDX-License-Identifier: Apache-2.0
"""Killing an application again and again, and then checking every record.

Each seed is an application on a checkpoint of its own, with egresses of all three semantics.
``make soak`` kills its drivers and Python workers at random instants, freezes and restarts its
broker, and lets drivers die at named points, which the seeds take in turns. ``--seed 7`` repeats
a seed's choices, though not its timing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import attrs
from class_archive import archived
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from soak_app import FUNCTIONS, INSIDE, POINTS, SEMANTICS, chained

from statefun.dev import EmbeddedKafka
from statefun.dev.progress import Progress
from statefun.runtime.commit_log import CommitLog
from statefun.runtime.connector import spark_kafka_connector
from statefun.runtime.filesystem import Folder

HERE = Path(__file__).resolve().parent
HOPS = 10
"""So many functions handle a message, one after the other."""
PARTITIONS = 2
SUBMIT = "--master local[2,8] --driver-memory 1g --conf spark.ui.enabled=false pyspark-shell"
PATIENCE = timedelta(minutes=5)
"""Nothing takes that long, unless it never comes."""
Chains = dict[str, list[tuple[int, str]]]
"""Counts and tokens, in order, by the function that has sent them."""


@attrs.define
class Soak:
    """One application on one checkpoint, its input, and what was done to it."""

    kafka: EmbeddedKafka
    folder: Path
    random: random.Random
    prefix: str
    lanes: int = 1
    java_options: str = ""
    sent: int = 0
    done: Counter[str] = attrs.Factory(Counter)

    def create_topics(self) -> None:
        """Create what the application needs."""
        for name in ("in", "audits", *SEMANTICS):
            self.kafka.create_topic(self.prefix + name, partitions=PARTITIONS)

    def send(self, messages: int) -> None:
        """Send records that make so many messages between functions."""
        records = messages // HOPS
        targets = [f"f{self.random.randrange(FUNCTIONS)}" for _ in range(records)]
        self._produce([(target, str(HOPS)) for target in targets])
        self.sent += records * HOPS

    def start(
        self, *, point: str = "", number: int = 1, records: int = 300
    ) -> subprocess.Popen[bytes]:
        """Start the application."""
        options = {
            "address": self.kafka.bootstrap_servers,
            "checkpoint": str(self.folder / "checkpoint"),
            "prefix": self.prefix,
            "lanes": self.lanes,
            "point": point,
            "number": number,
            "records_per_batch": records,
        }
        environment = {
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": SUBMIT,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": self.java_options,
            # Behind Spark's own jars: from there, Java can archive them as well.
            "SPARK_DIST_CLASSPATH": ":".join(map(str, spark_kafka_connector())),
        }
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(HERE / "soak_app.py"), json.dumps(options)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def harass(self, kills: int, messages: int) -> None:
        """Kill drivers and workers at random instants, and freeze the broker now and then."""
        generator = self.random
        while self.done["drivers killed"] < kills:
            self.send(messages // kills)
            before = self._commits()
            process = self.start()
            self._wait_for(process, partial(self._has_committed, before))
            deadline = time.monotonic() + generator.uniform(0, 5)
            while time.monotonic() < deadline and process.poll() is None:
                time.sleep(generator.uniform(0, 1.5))
                self._trouble(process.pid)
            if process.poll() is None:
                process.kill()
                self.done["drivers killed"] += 1
                # Sometimes the orphans have a moment to go on.
                time.sleep(generator.choice([0, generator.uniform(0, 2)]))
            else:
                self.done["drivers that ended"] += 1
            self._end(process)

    def crash_at(self, point: str) -> None:
        """Let the driver die at a named point."""
        process = self.start(point=point, number=self.random.randrange(1, 4))
        self._wait_for(process, lambda: False)
        if process.returncode != -signal.SIGKILL:
            raise AssertionError(f"not killed at {point!r}, but {process.returncode}: {self.log()}")
        self._end(process)
        self.done[point] += 1

    def finish(self) -> str:
        """Let the application do what is left, and compare what it has put out with its state.

        Returns:
            What is wrong; empty if all is well.
        """
        process = self.start(records=10_000)
        exact = Output(self, "exactly-once")
        self._wait_for(process, lambda: exact.read() >= self.sent)
        self._produce([(f"f{number}", "audit") for number in range(FUNCTIONS)])
        audits = Output(self, "audits")
        self._wait_for(process, lambda: audits.read() >= len(exact.chains))
        process.terminate()
        process.wait()
        if process.returncode != 0:
            return f"ended with {process.returncode}: {self.log()}"
        with contextlib.suppress(ProcessLookupError):
            for _ in range(600):  # Java ends a moment later
                os.killpg(process.pid, 0)
                time.sleep(0.1)
        self._end(process)
        seen = {name: chain[0] for name, chain in audits.chains.items()}
        handled = sum(count for count, _ in seen.values())
        if handled != self.sent:
            return f"{self.sent} messages were sent, and {handled} were handled"
        return next(filter(None, (self._verdict(semantic, seen) for semantic in SEMANTICS)), "")

    def _verdict(self, semantic: str, seen: dict[str, tuple[int, str]]) -> str:
        """Compare what a topic holds with the counts and digests of all functions."""
        output = Output(self, semantic)
        while not output.has_ended():
            output.read()
        for name, (count, digest) in sorted(seen.items()):
            problem = found_wrong(semantic, output.chains.get(name, []), count, digest)
            if problem:
                return f"{semantic}, {name}: {problem}"
        return ""

    def log(self) -> str:
        """Return the end of the application's log."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _trouble(self, driver: int) -> None:
        generator = self.random
        what = generator.random()
        if what < 0.5:
            workers = _workers(driver)
            if workers:
                os.kill(generator.choice(workers), signal.SIGKILL)
                self.done["workers killed"] += 1
        elif what < 0.6:
            self.kafka.pause()
            time.sleep(generator.uniform(0, 5))
            self.kafka.resume()
            self.done["broker frozen"] += 1
        elif what < 0.63:
            self.kafka.kill()
            self.kafka.start()
            self.done["broker killed"] += 1

    def _wait_for(self, process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        """Wait until it is ready or the process has ended.

        Raises:
            AssertionError: if no micro-batch was committed for a long time.
        """
        commits, since = self._commits(), time.monotonic()
        while process.poll() is None and not ready():
            if self._commits() > commits:
                commits, since = self._commits(), time.monotonic()
            if time.monotonic() - since > PATIENCE.total_seconds():
                process.kill()
                raise AssertionError(f"nothing happened for {PATIENCE}: {self.log()}")
            time.sleep(0.02)

    def _has_committed(self, before: int) -> bool:
        return self._commits() > before

    def _commits(self) -> int:
        numbers = [path.name for path in (self.folder / "checkpoint" / "commits").glob("[0-9]*")]
        return max((int(number) for number in numbers if number.isdecimal()), default=-1)

    def _produce(self, records: list[tuple[str, str]]) -> None:
        producer = Producer(
            {"bootstrap.servers": self.kafka.bootstrap_servers, "enable.idempotence": True}
        )
        for key, value in records:
            producer.produce(f"{self.prefix}in", value, key)
        if producer.flush(60):
            raise AssertionError("the input cannot be written")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Make sure that nothing of a killed application goes on: that is another test."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._check_group_offsets()

    def _check_group_offsets(self) -> None:
        """Check that the consumer group is nowhere ahead of the last committed batch."""
        log = CommitLog(Folder.at(str(self.folder / "checkpoint")))
        batch = log.newest()
        ends = (log.end_offsets(batch)[0] if batch >= 0 else None) or {}
        read = ends.get(f"{self.prefix}in", {})
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": f"{self.prefix}soak",
            }
        )
        asked = [TopicPartition(f"{self.prefix}in", number) for number in range(PARTITIONS)]
        for found in self._answer(partial(consumer.committed, asked)):
            if found.offset > read.get(str(found.partition), 0):
                raise AssertionError(f"{found} is ahead of batch {batch}, which has read {read}")
        consumer.close()

    def _answer(self, ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
        """Ask the broker, which may have been started a moment ago, until it has an answer."""
        deadline = time.monotonic() + PATIENCE.total_seconds()
        while True:
            try:
                return ask()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


class Output:
    """What a topic of a soak holds, as far as it is read."""

    def __init__(self, soak: Soak, topic: str) -> None:
        self.chains: Chains = {}
        self._records = 0
        self._ended: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": soak.kafka.bootstrap_servers,
                "group.id": "verdict",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        self._consumer.assign(
            [TopicPartition(soak.prefix + topic, number, 0) for number in range(PARTITIONS)]
        )

    def read(self) -> int:
        """Read on; return how many records there were so far."""
        for message in self._consumer.consume(10_000, timeout=0.5):
            partition = message.partition() or 0
            if message.error() is not None:
                self._ended.add(partition)
                continue
            self._ended.discard(partition)
            name, count, text = json.loads(message.value() or b"")
            self.chains.setdefault(name, []).append((count, text))
            self._records += 1
        return self._records

    def has_ended(self) -> bool:
        """Tell whether there was nothing more when it was last read."""
        return len(self._ended) == PARTITIONS


def found_wrong(semantic: str, chain: list[tuple[int, str]], count: int, digest: str) -> str:
    """Say what is wrong with what a function has put out, given what it has counted."""
    distinct = list(dict.fromkeys(chain))
    if semantic == "none":
        return "" if len({n for n, _ in distinct}) == len(distinct) else "two tokens of one"
    if semantic == "exactly-once" and len(distinct) != len(chain):
        return f"{len(chain) - len(distinct)} records came twice"
    if [n for n, _ in distinct] != list(range(1, count + 1)):
        return f"counted {count}, but the topic has {[n for n, _ in distinct]}"
    end = ""
    for _, token in distinct:
        end = chained(end, token)
    return "" if end == digest else "the topic holds what the state denies"


def _workers(driver: int) -> list[int]:
    """Return the Python workers of a driver, without their daemons."""
    daemons, parents = set(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        parents[int(folder.name)] = parent
        if b"statefun.runtime.dispatch.daemon" in command:
            daemons.add(int(folder.name))

    def is_ours(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == driver:
                return True
        return False

    return [pid for pid in daemons if parents[pid] in daemons and is_ours(pid)]


def _points(seed: int, of: int, hits: int) -> list[str]:
    """Return the seed's share of all named points, each of which comes up so many times.

    Two lanes publish in Python workers, where no driver can be told to die.
    """
    sharing = [number for number in range(of) if _lanes(number) == 1]
    if seed % of not in sharing:
        return []
    return ([*POINTS, INSIDE] * hits)[sharing.index(seed % of) :: len(sharing)]


def _lanes(seed: int) -> int:
    return 1 if seed % 3 else 2


def quick_start(kafka: EmbeddedKafka, folder: Path) -> str:
    """Return options with which the JVMs of soaks start in less than half the time."""

    def run(options: str) -> None:
        soak = Soak(kafka, folder, random.Random(0), "classes-", java_options=options)
        soak.create_topics()
        soak.send(1000)
        problem = soak.finish()
        if problem:
            raise AssertionError(problem)

    return archived("soak", run)


def _soak(kafka: EmbeddedKafka, folder: Path, seed: int, arguments: argparse.Namespace) -> Soak:
    """Do to an application what the command line asks for."""
    java = quick_start(kafka, folder / "first")
    soak = Soak(
        kafka, folder, random.Random(seed), f"seed-{seed}-", _lanes(seed % arguments.of), java
    )
    soak.create_topics()
    points = _points(seed, arguments.of, arguments.hits)
    share = arguments.messages // (arguments.kills + len(points))
    soak.harass(arguments.kills, share * arguments.kills)
    for point in points:
        soak.send(share)
        soak.crash_at(point)
    return soak


def main() -> int:
    """Soak as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, prog="make soak")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--messages", type=int, default=100_000, help="for each seed")
    parser.add_argument("--kills", type=int, default=10, help="of drivers, for each seed")
    parser.add_argument("--hits", type=int, default=10, help="of each named point by all seeds")
    parser.add_argument("--of", type=int, default=20, help="so many seeds share the named points")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    with EmbeddedKafka() as kafka:
        for seed in range(arguments.seed, arguments.seed + arguments.seeds):
            # Whatever goes wrong, what there is to look at stays.
            folder = Path(tempfile.mkdtemp(prefix=f"statefun-soak-{seed}-"))
            with Progress(f"seed {seed}, in {folder}"):
                soak = _soak(kafka, folder, seed, arguments)
                wrong = soak.finish()
            done = Counter(seeds=1, messages=soak.sent) + soak.done
            total += done
            print(", ".join(f"{count} {what}" for what, count in done.items()), flush=True)  # noqa: T201 - a program
            if wrong:
                print(f"seed {seed}: {wrong}", file=sys.stderr)  # noqa: T201 - as above
                return 1
            shutil.rmtree(folder)
    print("\n".join(f"{count:>10,} {what}" for what, count in total.items()))  # noqa: T201 - as above
    return 0


if __name__ == "__main__":
    sys.exit(main())
