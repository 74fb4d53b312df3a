# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier, Event
from typing import Any

import pytest
from harness import wait
from kinesis_counting import module_text
from kinesis_proxy import KinesisProxy
from kinesis_server import KinesisHarness
from patience import PATIENCE

from statefun.components.running import EgressRecord, Marker, UndeliveredError, Writing
from statefun.kinesis.writing import KinesisCluster, write_kinesis
from statefun.module.loader import parse_module
from statefun.sdk.errors import ConnectorError

MARKER = Marker(0, 0, b"", "run", "run")
NAMES = [f"name {number}" for number in range(7)]


class Log:
    """What a writer has reported, and whether it is to stop."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.noted: list[int] = []
        self.should_stop: Callable[[timedelta], bool] = lambda _: False

    def connect(self, url: str) -> KinesisCluster:
        """Return a connection."""
        [egress] = parse_module(module_text(url)).connector_egresses
        return write_kinesis(
            Writing(
                egress,
                "query",
                0,
                self.should_stop,
                self.reasons.append,
                lambda: None,
                self.noted.append,
            )
        )


def records(count: int, stream: str = "counts") -> list[EgressRecord]:
    """Return records: those of a name follow each other, as functions send them."""
    each = -(-count // len(NAMES))
    return [
        EgressRecord(stream, NAMES[number // each].encode(), b"%d" % number, None)
        for number in range(count)
    ]


def values(kinesis: KinesisHarness) -> list[int]:
    """Return the numbers that were written, name by name."""
    found = kinesis.read("counts")
    return [int(value) for name in NAMES for key, value in found if key == name]


def test_records_of_a_key_keep_their_order(kinesis: KinesisHarness) -> None:
    """Also if requests are throttled or written in part; records of other keys do not wait."""
    kinesis.create("counts", 2)
    log = Log()
    with KinesisProxy(int(kinesis.url.rpartition(":")[2])) as proxy:
        proxy.throttled["PutRecords"] = 2
        proxy.refused_share = 0.2
        cluster = log.connect(proxy.url)
        cluster.write(records(700), MARKER)
        cluster.close()
        requests = [request for request in proxy.put if request]

    assert values(kinesis) == [*range(700)]
    assert all(len(set(request)) == len(request) for request in requests)
    assert len(requests) < 600  # with one name after the other there would be 700 and more
    assert "ProvisionedThroughputExceededException: Rate exceeded" in log.reasons


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", b"<html>Please log in</html>"),
        ("application/json", b"{}"),
        ("application/json", b'{"FailedRecordCount": 0, "Records": []}'),
        ("application/json", b'{"FailedRecordCount": 0, "Records": [{}, {}, {}]}'),
        (
            "application/json",
            json.dumps(
                {
                    "FailedRecordCount": 3,
                    "Records": [{"SequenceNumber": "1", "ShardId": "shardId-1"}] * 3,
                }
            ).encode(),
        ),
    ],
)
def test_an_answer_that_confirms_nothing_loses_nothing(
    kinesis: KinesisHarness, kind: str, body: bytes
) -> None:
    """The log has the answer as the reason why records wait; they are written when Kinesis answers."""
    kinesis.create("counts", 1)
    log = Log()
    with (
        KinesisProxy(int(kinesis.url.rpartition(":")[2])) as proxy,
        ThreadPoolExecutor(1) as thread,
    ):
        proxy.refused_share = 1.0  # so that the records do not get there meanwhile
        proxy.instead["PutRecords"] = (200, kind, body)
        cluster = log.connect(proxy.url)
        writing = thread.submit(cluster.write, records(3), MARKER)
        wait(lambda: len(log.reasons) > 1)
        assert not writing.done()
        proxy.refused_share = 0.0
        proxy.instead.clear()
        writing.result(PATIENCE.total_seconds())
        cluster.close()

    assert values(kinesis) == [0, 1, 2]
    assert any(
        "the answer to PutRecords does not" in each or "with 3 records" in each
        for each in log.reasons
    )


def test_reported_records_are_written(kinesis: KinesisHarness) -> None:
    """The writer reports written records during a call and when it stops, so that the next run knows them."""
    kinesis.create("counts", 1)
    log = Log()
    log.should_stop = lambda _: len(kinesis.read("counts")) >= 3000
    spread = [
        EgressRecord(
            "counts", b"name %d" % (number % 7 if number < 7 else number), b"%d" % number, None
        )
        for number in range(6000)
    ]
    cluster = log.connect(kinesis.url)

    with pytest.raises(UndeliveredError):
        cluster.write(spread, MARKER)
    cluster.close()

    there = {int(value) for _, value in kinesis.read("counts")}
    assert 3000 <= len(there) < 6000
    assert len(log.noted) > 1
    assert log.noted == sorted(log.noted)
    assert log.noted[-1] == min(set(range(6000)) - there)


def test_a_missing_stream_ends_the_run(kinesis: KinesisHarness) -> None:
    """The records that were written before are reported."""
    kinesis.create("counts", 1)
    log = Log()
    cluster = log.connect(kinesis.url)

    with pytest.raises(ConnectorError, match=r"stream gone .*the stream does not exist; create it"):
        cluster.write([*records(3), *records(3, "gone")], MARKER)
    cluster.close()

    assert log.noted[-1] <= len(kinesis.read("counts"))


class Unwell:
    """A client that raises an unexpected error for some streams."""

    def put_records(self, StreamName: str, Records: list[Any]) -> dict[str, Any]:  # noqa: N803 - boto3's
        """Confirm the records of one stream."""
        return {"Records": [{}] * len(Records)} if StreamName == "counts" else {}

    def close(self) -> None:
        """Do nothing: the client has no connections."""


def test_confirmed_records_are_reported_whatever_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Confirmed records are reported even if several requests fail unexpectedly."""
    monkeypatch.setattr("statefun.kinesis.writing.connect", lambda _: Unwell())
    log = Log()
    cluster = log.connect("http://localhost:1")

    with pytest.raises(KeyError):
        cluster.write([*records(3), *records(1, "gone"), *records(1, "lost")], MARKER)
    cluster.close()

    assert log.noted[-1] == 3


class Paired:
    """A client that answers a request when a second one is under way."""

    def __init__(self) -> None:
        self._both = Barrier(2)

    def put_records(self, StreamName: str, Records: list[Any]) -> dict[str, Any]:  # noqa: N803 - boto3's
        """Wait for the other request; confirm all records."""
        del StreamName
        self._both.wait(PATIENCE.total_seconds())
        return {"Records": [{}] * len(Records)}

    def close(self) -> None:
        """Do nothing: the client has no connections."""


def test_several_requests_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of other keys do not wait for the answer to a request."""
    monkeypatch.setattr("statefun.kinesis.writing.connect", lambda _: Paired())
    log = Log()
    log.should_stop = lambda stalled: stalled > PATIENCE
    cluster = log.connect("http://localhost:1")

    cluster.write(
        [EgressRecord("counts", b"name %d" % number, b"", None) for number in range(1000)], MARKER
    )
    cluster.close()

    assert log.noted == [1000]


class Silent:
    """A client that does not answer requests for one stream until :attr:`goes_on` is set."""

    def __init__(self) -> None:
        self.is_asked, self.goes_on = Event(), Event()

    def put_records(self, StreamName: str, Records: list[Any]) -> dict[str, Any]:  # noqa: N803 - boto3's
        """Confirm all records."""
        if StreamName == "silent":
            self.is_asked.set()
            self.goes_on.wait(PATIENCE.total_seconds())
        return {"Records": [{}] * len(Records)}

    def close(self) -> None:
        """Do nothing: the client has no connections."""


def test_confirmed_records_are_reported_before_all_requests_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that is to stop may be killed while it waits for the last answer."""
    client, log = Silent(), Log()
    monkeypatch.setattr("statefun.kinesis.writing.connect", lambda _: client)
    log.should_stop = lambda _: client.is_asked.is_set()
    cluster = log.connect("http://localhost:1")

    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(cluster.write, [*records(3), *records(1, "silent")], MARKER)
        try:
            wait(lambda: 3 in log.noted)
        finally:
            client.goes_on.set()
        with pytest.raises(UndeliveredError):
            writing.result(PATIENCE.total_seconds())
    cluster.close()

    assert log.noted[-1] == 4
