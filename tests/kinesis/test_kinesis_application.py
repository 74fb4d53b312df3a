# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import pytest
from harness import metrics, run, wait
from kinesis_counting import application, functions, module_text
from kinesis_proxy import KinesisProxy
from kinesis_server import KinesisHarness
from local_servers import free_port
from pyspark.sql import SparkSession

from statefun import ConnectorError
from statefun.runtime.terminal.status_line import StatusLine

pytestmark = [pytest.mark.spark, pytest.mark.takes(minutes=1.5)]

NAMES = [f"name {number}" for number in range(20)]
PROGRAM = Path(__file__).parents[1] / "kinesis_counting.py"


def numbered(names: Iterable[str], numbers: Iterable[int]) -> list[tuple[str, bytes]]:
    """Return a record of each number for each name."""
    keys = list(names)
    return [(name, b"%d" % number) for number in numbers for name in keys]


def by_name(records: Iterable[tuple[str, bytes]]) -> dict[str, list[str]]:
    """Return the values by their keys."""
    found = defaultdict(list)
    for key, value in records:
        found[key].append(value.decode())
    return found


def counted(numbers: Sequence[int]) -> list[str]:
    """Return the values that are published for records with these numbers."""
    return [f"{place} {number}" for place, number in enumerate(numbers, 1)]


@contextmanager
def running(url: str, checkpoint: Path, screen: io.StringIO) -> Iterator[None]:
    """Run the application in a thread, with its status on a screen."""
    app = application(url, str(checkpoint), line=StatusLine(screen))
    ended: list[BaseException] = []

    def target() -> None:
        try:
            app.run()
        except KeyboardInterrupt as interrupt:
            ended.append(interrupt)

    thread = threading.Thread(target=target)
    thread.start()
    try:
        yield
    finally:
        app.stop()
        thread.join()
    assert len(ended) == 1


def test_from_stream_to_stream(kinesis: KinesisHarness, tmp_path: Path) -> None:
    """A bounded run reads all records, each key in its order; the next run continues."""
    kinesis.create("users", 3)
    kinesis.create("counts", 2)
    kinesis.put("users", numbered(NAMES, range(100)))

    first = run(module_text(kinesis.url), functions, tmp_path)
    found = by_name(kinesis.read("counts"))
    kinesis.split("users")
    kinesis.merge("users", 1)
    kinesis.put("users", numbered(NAMES, range(100, 150)))
    second = run(module_text(kinesis.url), functions, tmp_path)
    third = run(module_text(kinesis.url), functions, tmp_path)

    assert found == {name: counted(range(100)) for name in NAMES}
    assert by_name(kinesis.read("counts")) == {name: counted(range(150)) for name in NAMES}
    assert (first.invocations, second.invocations, third.invocations) == (2000, 1000, 0)


@pytest.mark.long(minutes=0.8)
def test_shards_are_split_and_merged_while_it_runs(kinesis: KinesisHarness, tmp_path: Path) -> None:
    """Each key keeps its order, and no record is lost or repeated."""
    kinesis.create("users", 2)
    kinesis.create("counts", 1)
    total, screen = 300, io.StringIO()

    with running(kinesis.url, tmp_path, screen):
        for start in range(0, total, 20):
            kinesis.put("users", numbered(NAMES, range(start, start + 20)))
            (kinesis.split if start % 60 < 40 else kinesis.merge)("users", 0)
        kinesis.wait_for("counts", lambda found: len(found) >= total * len(NAMES))

        records = "ingress.test/in.records"
        expected = {
            records: total * len(NAMES),
            "ingress.test/in.stream.users.millisBehindLatest": 0,
        }
        wait(lambda: expected.items() <= metrics(SparkSession.active()).items())

    assert by_name(kinesis.read("counts")) == {name: counted(range(total)) for name in NAMES}
    rates = re.findall(r"in ([\d,]+)/s \| out ([\d,]+)/s \| batch \d+, ", screen.getvalue())
    assert max(int(each.replace(",", "")) for each, _ in rates) > 0


@pytest.mark.long(minutes=1.8)
def test_a_driver_that_is_killed_loses_nothing(kinesis: KinesisHarness, tmp_path: Path) -> None:
    """State counts each record once; records may be written twice, but never differ."""
    kinesis.create("users", 2)
    kinesis.create("counts", 1)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    written = 0

    for seconds in (0.0, 1.5, None):
        with (tmp_path / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, PROGRAM, kinesis.url, tmp_path / "checkpoint"],
                env=environment,
                stdout=log,
                stderr=log,
            )
        try:
            kinesis.put("users", numbered(NAMES, range(written, written + 50)))
            written += 50
            has_begun = len(kinesis.read("counts"))
            kinesis.wait_for("counts", lambda found, n=has_begun: len(found) > n)  # type: ignore[misc]
            end = time.monotonic() + (seconds or 0)
            while time.monotonic() < end:
                kinesis.put("users", numbered(NAMES, [written]))
                written += 1
            kinesis.split("users", 0)
            kinesis.put("users", numbered(NAMES, [written]))
            written += 1
            if seconds is None:
                total = written * len(NAMES)
                kinesis.wait_for("counts", lambda found, n=total: len(set(found)) == n)  # type: ignore[misc]
        finally:
            process.kill()
            process.wait()

    for name, values in by_name(kinesis.read("counts")).items():
        first_seen = list(dict.fromkeys(values))
        assert first_seen == counted(range(written)), name


def test_throttling_does_not_end_the_run(kinesis: KinesisHarness, tmp_path: Path) -> None:
    """Reading and writing wait; only the refused records are sent again, and keys keep their order."""
    kinesis.create("users", 2)
    kinesis.create("counts", 2)
    kinesis.put("users", numbered(NAMES, range(30)))

    with KinesisProxy(int(kinesis.url.rpartition(":")[2])) as proxy:
        proxy.throttled.update(
            {"ListShards": 2, "GetShardIterator": 3, "GetRecords": 4, "PutRecords": 2}
        )
        proxy.refused_share = 0.3
        run(module_text(proxy.url), functions, tmp_path)

        assert by_name(kinesis.read("counts")) == {name: counted(range(30)) for name in NAMES}
        assert not +proxy.throttled
        assert proxy.refused > 50
        assert sum(map(len, proxy.put)) == 600 + proxy.refused
        assert all(len(set(request)) == len(request) for request in proxy.put)


def test_latest_begins_after_the_present_records(kinesis: KinesisHarness, tmp_path: Path) -> None:
    """Records before the first start are left out; records before the first micro-batch are not lost."""
    kinesis.create("users", 2)
    kinesis.create("counts", 1)
    kinesis.put("users", numbered(NAMES, [1]))
    kinesis.split("users")
    time.sleep(1.1)  # Kinesis tells its time in seconds

    assert run(module_text(kinesis.url, "{type: latest}"), functions, tmp_path).invocations == 0
    kinesis.put("users", numbered(NAMES, [2]))
    run(module_text(kinesis.url, "{type: latest}"), functions, tmp_path)

    assert by_name(kinesis.read("counts")) == {name: ["1 2"] for name in NAMES}


def test_a_date_is_a_startup_position(kinesis: KinesisHarness, tmp_path: Path) -> None:
    """Records are read that have arrived since then, also of shards that are closed."""
    kinesis.create("users", 1)
    kinesis.create("counts", 1)
    kinesis.put("users", numbered(NAMES, [1]))
    time.sleep(0.1)
    date = datetime.now(timezone.utc).isoformat(" ", "milliseconds").replace("+00:00", " +0000")
    time.sleep(0.1)
    kinesis.put("users", numbered(NAMES, [2]))
    kinesis.split("users")
    kinesis.put("users", numbered(NAMES, [3]))
    time.sleep(1.1)  # the first record of a new shard has come in the next second, says the server

    run(module_text(kinesis.url, f"{{type: date, date: {date}}}"), functions, tmp_path)

    assert by_name(kinesis.read("counts")) == {name: ["1 2", "2 3"] for name in NAMES}


def test_a_missing_stream_is_named(kinesis: KinesisHarness, tmp_path: Path) -> None:
    """An ingress fails before any record is read, an egress with the first record for the stream."""
    with pytest.raises(ConnectorError, match="there is no stream users; create it, or correct"):
        run(module_text(kinesis.url), functions, tmp_path)
    kinesis.create("users")
    kinesis.put("users", [("Ada", b"1")])
    with pytest.raises(ConnectorError, match="the stream does not exist; create it"):
        run(module_text(kinesis.url), functions, tmp_path)
    kinesis.create("counts")
    run(module_text(kinesis.url), functions, tmp_path)

    assert kinesis.read("counts") == [("Ada", b"1 1")]


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """The start fails after the time that it may take."""
    url = f"http://127.0.0.1:{free_port()}"

    with pytest.raises(ConnectorError, match=f"its streams cannot be listed at {url}: .*connect"):
        run(module_text(url), functions, tmp_path)
