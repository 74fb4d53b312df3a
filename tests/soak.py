# SPDX-License-Identifier: Apache-2.0
"""Killing an application again and again, and then checking every record.

``make soak`` kills drivers and Python workers at random instants, freezes and restarts the
broker, and lets drivers die at each of the named points. ``--seed 7`` repeats one seed's choices,
though not its timing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import attrs
from confluent_kafka import Consumer, Producer, TopicPartition
from soak_app import FUNCTIONS, INSIDE, POINTS, chained

from statefun.dev import EmbeddedKafka
from statefun.dev.progress import Progress

HERE = Path(__file__).resolve().parent
HOPS = 10
"""So many functions handle a message, one after the other."""
SUBMIT = (
    "--master local[2,8] --driver-memory 1g --conf spark.ui.enabled=false "
    "--driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell"
)
PATIENCE = timedelta(minutes=10)


@attrs.define
class Soak:
    """One application on one checkpoint, its input, and what was done to it."""

    kafka: EmbeddedKafka
    folder: Path
    semantic: str
    random: random.Random
    prefix: str
    lanes: int = 1
    sent: int = 0
    done: Counter[str] = attrs.Factory(Counter)

    def create_topics(self) -> None:
        """Create what the application needs."""
        for name in ("in", "out", "audits"):
            self.kafka.create_topic(self.prefix + name, partitions=2)

    def send(self, messages: int) -> None:
        """Send records that make so many messages between functions."""
        records = messages // HOPS
        targets = [f"f{self.random.randrange(FUNCTIONS)}" for _ in range(records)]
        self._produce([(target, str(HOPS)) for target in targets])
        self.sent += records * HOPS

    def start(
        self, *, drain: bool, point: str = "", number: int = 1, records: int = 300
    ) -> subprocess.Popen[bytes]:
        """Start the application."""
        options = {
            "address": self.kafka.bootstrap_servers,
            "checkpoint": str(self.folder / "checkpoint"),
            "semantic": self.semantic,
            "prefix": self.prefix,
            "lanes": self.lanes,
            "drain": drain,
            "point": point,
            "number": number,
            "records_per_batch": records,
        }
        environment = {
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": SUBMIT,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
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
            process = self.start(drain=False)
            self._wait_for(process, partial(self._has_committed, before))
            deadline = time.monotonic() + generator.uniform(0, 6)
            while time.monotonic() < deadline and process.poll() is None:
                time.sleep(generator.uniform(0, 2))
                self._trouble(process.pid)
            if process.poll() is None:
                process.kill()
                self.done["drivers killed"] += 1
                # Sometimes the orphans have a moment to go on.
                time.sleep(generator.choice([0, generator.uniform(0, 3)]))
            else:
                self.done["drivers that ended"] += 1
            _end(process)

    def crash_at(self, point: str) -> None:
        """Let the driver die at a named point."""
        process = self.start(drain=False, point=point, number=self.random.randrange(1, 4))
        self._wait_for(process, lambda: False)
        if process.returncode != -signal.SIGKILL:
            raise AssertionError(f"not killed at {point!r}, but {process.returncode}: {self.log()}")
        _end(process)
        self.done[point] += 1

    def finish(self) -> None:
        """Let the application do what is left, and say what its functions have seen."""
        for _ in range(3):  # what is delayed is due within a second
            self._drain()
            time.sleep(1.5)
        self._produce([(f"f{number}", "audit") for number in range(FUNCTIONS)])
        self._drain()

    def verdict(self) -> str:
        """Compare what the topic holds with what the functions have seen; empty if all is well."""
        audits = {name: (count, digest) for name, count, digest in self._read("audits")}
        seen = sum(count for count, _ in audits.values())
        if seen != self.sent:
            return f"{self.sent} messages were sent, and {seen} were handled"
        chains: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for name, count, token in self._read("out"):
            chains[name].append((count, token))
        for name, (count, digest) in sorted(audits.items()):
            problem = self._problem(chains[name], count, digest)
            if problem:
                return f"{name}: {problem}"
        return ""

    def _problem(self, chain: list[tuple[int, str]], count: int, digest: str) -> str:
        distinct = list(dict.fromkeys(chain))
        if self.semantic == "none":
            return "" if len({n for n, _ in distinct}) == len(distinct) else "two tokens of one"
        if self.semantic == "exactly-once" and len(distinct) != len(chain):
            return f"{len(chain) - len(distinct)} records came twice"
        if [n for n, _ in distinct] != list(range(1, count + 1)):
            return f"counted {count}, but the topic has {[n for n, _ in distinct]}"
        end = ""
        for _, token in distinct:
            end = chained(end, token)
        return "" if end == digest else "the topic holds what the state denies"

    def log(self) -> str:
        """Return the end of the application's log."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _drain(self) -> None:
        process = self.start(drain=True, records=100_000)
        self._wait_for(process, lambda: False)
        if process.returncode != 0:
            raise AssertionError(f"ended with {process.returncode}: {self.log()}")

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
        deadline = time.monotonic() + PATIENCE.total_seconds()
        while process.poll() is None and not ready():
            if time.monotonic() > deadline:
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

    def _read(self, topic: str) -> list[tuple[str, int, str]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": "verdict",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(self.prefix + topic, number, 0) for number in range(2)])
        found: list[tuple[str, int, str]] = []
        ended = 0
        while ended < 2:
            for message in consumer.consume(10_000, timeout=1):
                if message.error() is None:
                    name, count, text = json.loads(message.value() or b"")
                    found.append((name, count, text))
                else:
                    ended += 1
        consumer.close()
        return found


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


def _end(process: subprocess.Popen[bytes]) -> None:
    """Make sure that nothing of a killed application goes on: that is another test."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _soaks(arguments: argparse.Namespace, kafka: EmbeddedKafka) -> Iterator[Soak]:
    """Yield applications that have been through what the command line asks for."""

    def soak(seed: int, semantic: str, prefix: str, lanes: int) -> Soak:
        made = Soak(kafka, folder, semantic, random.Random(seed), prefix, lanes)
        made.create_topics()
        return made

    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        with tempfile.TemporaryDirectory(prefix="statefun-soak-") as name:
            folder = Path(name)
            semantic = "exactly-once" if seed % 4 else "at-least-once"
            harassed = soak(seed, semantic, f"seed-{seed}-", 1 if seed % 3 else 2)
            harassed.harass(arguments.kills, arguments.messages)
            yield harassed
    for semantic in ("exactly-once", "at-least-once", "none") if arguments.hits else ():
        with tempfile.TemporaryDirectory(prefix="statefun-soak-") as name:
            folder = Path(name)
            crashed = soak(1, semantic, f"{semantic}-", 1)
            for _ in range(arguments.hits):
                for point in (*POINTS, INSIDE):
                    crashed.send(3000)
                    crashed.crash_at(point)
            yield crashed


def main() -> int:
    """Soak as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, prog="make soak")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--messages", type=int, default=100_000, help="for each seed")
    parser.add_argument("--kills", type=int, default=10, help="of drivers, for each seed")
    parser.add_argument("--hits", type=int, default=10, help="of each named point and semantic")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    with EmbeddedKafka() as kafka, Progress("soaking") as progress:
        for soak in _soaks(arguments, kafka):
            soak.finish()
            wrong = soak.verdict()
            total += soak.done
            total["messages"] += soak.sent
            if wrong:
                print(f"{soak.prefix} {soak.semantic}: {wrong}", file=sys.stderr)  # noqa: T201 - a program
                return 1
            progress.update(", ".join(f"{count} {what}" for what, count in total.items()))
    print("\n".join(f"{count:>10,} {what}" for what, count in total.items()))  # noqa: T201 - a program
    return 0


if __name__ == "__main__":
    sys.exit(main())
