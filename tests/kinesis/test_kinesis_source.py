# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from harness import wait
from kinesis_counting import module_text
from kinesis_proxy import KinesisProxy
from kinesis_server import KinesisHarness, aggregated
from patience import PATIENCE

from statefun.components.running import Folder, Offset
from statefun.kinesis.aggregation import parts
from statefun.kinesis.checking import check_egress, check_ingress
from statefun.kinesis.connection import IngressSettings, OnDataLoss
from statefun.kinesis.reading import KinesisSource
from statefun.kinesis.shard_pages import shard_pages
from statefun.kinesis.shard_position import ShardPosition
from statefun.kinesis.shard_reader import ShardReader
from statefun.kinesis.shard_tasks import SEQUENCE_NUMBER, read_task
from statefun.module.loader import parse_module
from statefun.sdk.errors import ConfigurationError, ConnectorError


class Sources:
    """The sources of several starts of an application with one checkpoint."""

    def __init__(
        self, kinesis: KinesisHarness, folder: Path, start: str, url: str | None = None
    ) -> None:
        [ingress] = parse_module(module_text(url or kinesis.url, start)).connector_ingresses
        self._settings: IngressSettings = ingress.settings
        self.folder = folder
        self._made: list[KinesisSource] = []

    def start(self, most: int = 1000, on_data_loss: OnDataLoss = OnDataLoss.FAIL) -> KinesisSource:
        """Return a new source; stop the source before."""
        self.stop()
        settings = attrs.evolve(self._settings, on_data_loss=on_data_loss)
        folder, is_fresh = Folder.at(self.folder), not self._made
        source = KinesisSource(settings, ["users"], folder, most, is_fresh=is_fresh)
        source.check(PATIENCE)
        self._made.append(source)
        return source

    def stop(self) -> None:
        """Stop all sources."""
        for source in self._made:
            source.stop()


@pytest.fixture
def sources(kinesis: KinesisHarness, tmp_path: Path) -> Iterator[Sources]:
    """Return sources that begin with the earliest record."""
    found = Sources(kinesis, tmp_path, "{type: earliest}")
    yield found
    found.stop()


def further(source: KinesisSource, start: Offset) -> Offset:
    """Return the next offset, once there is one."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while (end := source.latest_offset(start)) == start:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return end


def rows(source: KinesisSource, start: Offset, end: Offset) -> list[dict[str, Any]]:
    """Return the records between two offsets."""
    return [
        row
        for task in source.tasks(start, end)
        for batch in read_task(task)
        for row in batch.to_pylist()
    ]


def test_records_have_all_that_kafka_records_have(
    kinesis: KinesisHarness, sources: Sources
) -> None:
    """They also have headers with their sequence numbers in Kinesis."""
    kinesis.create("users", 1)
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    kinesis.put("users", [("Ada", b"1"), ("Bob", b""), ("Ada", aggregated([("Eve", b"2")] * 2))])
    source = sources.start()

    start = source.initial_offset()
    found = rows(source, start, further(source, start))

    assert [(row["key"], row["value"], row["offset"]) for row in found] == [
        *((b"Ada", b"1", 0), (b"Bob", b"", 1), (b"Eve", b"2", 2), (b"Eve", b"2", 3))
    ]
    assert {(row["topic"], row["partition"]) for row in found} == {("users", 0)}
    assert all(before <= row["timestamp"] <= datetime.now(timezone.utc) for row in found)
    assert [[header["key"] for header in row["headers"]] for row in found] == [
        [SEQUENCE_NUMBER]
    ] * 4


@pytest.mark.parametrize("seed", range(3))
def test_a_micro_batch_is_the_same_after_a_crash(
    kinesis: KinesisHarness, sources: Sources, seed: int
) -> None:
    """Whatever records have come since, and whichever shards were split or merged."""
    chosen = random.Random(seed)
    kinesis.create("users", 2)
    source = sources.start(most=40)
    offset = source.initial_offset()
    written, read = 0, list[tuple[bytes, bytes]]()
    while written < 600 or len(read) < written:
        if written < 600:
            number = chosen.randint(1, 40)
            names = [f"name {chosen.randint(0, 9)}" for _ in range(number)]
            kinesis.put("users", [(name, b"%d" % (written + n)) for n, name in enumerate(names)])
            written += number
        if chosen.random() < 0.2:
            kinesis.split("users", chosen.randrange(len(kinesis.open_shards("users"))))
        elif chosen.random() < 0.1:
            kinesis.merge("users", chosen.randrange(len(kinesis.open_shards("users")) - 1))
        end = further(source, offset)
        first = rows(source, offset, end)
        if chosen.random() < 0.3:
            source = sources.start(most=40)
            assert rows(source, offset, end) == first
        read += [(row["key"], row["value"]) for row in first]
        assert len(first) <= 40 + 40
        offset = end
    assert offset["records"] == len(read) == written
    assert sorted(int(value) for _, value in read) == list(range(written))
    for name in {key for key, _ in read}:
        mine = [int(value) for key, value in read if key == name]
        assert mine == sorted(mine)


def test_the_beginning_stays_until_something_is_read(
    kinesis: KinesisHarness, tmp_path: Path
) -> None:
    """The latest position is that of the first start: records before the second start are read."""
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"before")])
    time.sleep(1.1)  # Kinesis tells its time in seconds
    sources = Sources(kinesis, tmp_path, "{type: latest}")
    start = sources.start().initial_offset()
    kinesis.put("users", [("Ada", b"between")])
    source = sources.start()

    assert source.initial_offset() == start
    assert [row["value"] for row in rows(source, start, further(source, start))] == [b"between"]
    sources.stop()


def test_ended_shards_are_forgotten_with_their_records(
    kinesis: KinesisHarness, sources: Sources
) -> None:
    """The offset does not grow for ever: a shard leaves it when Kinesis does not list the shard any more."""
    kinesis.create("users", 1)
    source = sources.start()
    kinesis.put("users", [("Ada", b"1")])
    offset = further(source, source.initial_offset())
    kinesis.split("users")
    while len(offset["streams"]["users"]["shards"]) < 3:
        offset = further(source, offset)
    del source._shards.of("users")["shardId-000000000000"]  # noqa: SLF001 - a day later
    kinesis.put("users", [("Ada", b"2")])

    assert set(further(source, offset)["streams"]["users"]["shards"]) == {
        *("shardId-000000000001", "shardId-000000000002")
    }


def test_a_stream_that_was_created_anew_is_noticed(
    kinesis: KinesisHarness, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shards have the ids of old ones that were read to their ends: the run ends, or reads them from the beginning."""
    monkeypatch.setattr("statefun.kinesis.reading._BELIEVED_AFTER", timedelta(0))
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1")])
    kinesis.split("users")
    source = sources.start()
    offset = further(source, source.initial_offset())
    while len(offset["streams"]["users"]["shards"]) < 3:
        offset = further(source, offset)
    sources.stop()
    kinesis.delete("users")
    kinesis.create("users", 3)
    kinesis.put("users", [(f"name {number}", b"%d" % number) for number in range(20)])

    found: list[bytes] = []

    def read_all(source: KinesisSource) -> None:
        nonlocal offset
        while len(found) < 20:
            end = further(source, offset)
            found.extend(row["value"] for row in rows(source, offset, end))
            offset = end

    failed = (
        r"stream users was deleted and created anew: shard shardId-0+, which .* onDataLoss: go-on"
    )
    with pytest.raises(ConnectorError, match=failed):
        read_all(sources.start())
    assert len(found) < 20
    read_all(sources.start(on_data_loss=OnDataLoss.GO_ON))

    assert sorted(map(int, found)) == list(range(20))


def test_an_old_list_after_a_failed_request_shows_no_new_stream(
    kinesis: KinesisHarness, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that was just read to its end is open in such a list; the children of the shard come with the next one."""
    monkeypatch.setattr("statefun.kinesis.reading._LIST_AGAIN", timedelta(0))
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1")])
    source = sources.start()
    source._shards.listed_at -= 3600  # noqa: SLF001 - the run goes on for an hour without a new list
    old = list(shard_pages(source._client, "users"))  # noqa: SLF001 - the client of the readers, too
    answers: list[list[Mapping[str, Any]]] = [[], old, old]

    def pages(client: Any, stream: str) -> Iterable[Mapping[str, Any]]:
        answer = answers.pop(0) if answers else shard_pages(client, stream)
        if not answer:
            raise ConnectionError
        return answer

    monkeypatch.setattr("statefun.kinesis.shard_list.shard_pages", pages)
    offset = source.initial_offset()
    kinesis.split("users")
    while len(offset["streams"]["users"]["shards"]) < 3:
        offset = further(source, offset)

    assert answers == []


def test_a_bounded_run_ends_though_more_comes(kinesis: KinesisHarness, sources: Sources) -> None:
    """It reads the records before its bound, also those of shards that replace closed ones."""
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1")])
    kinesis.split("users")
    kinesis.put("users", [("Ada", b"2")])
    time.sleep(1.1)  # the first record of a new shard has come in the next second, says the server
    source = sources.start()
    source.bound()
    time.sleep(1.1)  # Kinesis tells its time in seconds
    offset = source.initial_offset()
    found: list[bytes] = []
    while (end := source.latest_offset(offset)) != offset:
        kinesis.put("users", [("Ada", b"3"), ("Bob", b"3")])
        found += [row["value"] for row in rows(source, offset, end)]
        offset = end

    assert found == [b"1", b"2"]
    later = sources.start()
    end = further(later, offset)
    assert {row["value"] for row in rows(later, offset, end)} == {b"3"}


def test_a_bounded_run_repeats_what_was_planned(kinesis: KinesisHarness, sources: Sources) -> None:
    """It reads planned records even if they arrived after the bound, and no further record."""
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1"), ("Ada", b"2")])
    source = sources.start()
    start = source.initial_offset()
    end = further(source, start)
    kinesis.put("users", [("Ada", b"3")])
    again = sources.start()
    again._shards.latest = 0.0  # noqa: SLF001 - by a clock that is behind
    again.bound()

    assert [row["value"] for row in rows(again, start, end)] == [b"1", b"2"]
    assert again.latest_offset(end) == end


def test_a_micro_batch_that_an_earlier_version_has_planned_is_read_as_planned(
    kinesis: KinesisHarness, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions left out aggregated parts with hash keys of no shard; such a record now counts as one."""
    kinesis.create("users", 1)
    of_no_shard = aggregated([("Eve", b"x")] * 3, hash_key=2**128)
    kinesis.put("users", [("Ada", b"1"), ("Ada", of_no_shard), ("Ada", b"2")])
    with monkeypatch.context() as earlier:
        formerly = partial(parts, as_formerly=True)
        earlier.setattr("statefun.kinesis.shard_reader.parts", formerly)
        source = sources.start()
        start = source.initial_offset()
        end = further(source, start)
        assert end["records"] == 2
    kinesis.put("users", [("Ada", of_no_shard), ("Ada", b"3")])
    again = sources.start()

    assert [row["value"] for row in rows(again, start, end)] == [b"1", b"2"]
    found = rows(again, end, further(again, end))
    assert [(row["value"], row["offset"]) for row in found] == [(of_no_shard, 2), (b"3", 3)]


def test_callers_get_the_error_of_a_reader(
    kinesis: KinesisHarness, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers that wait for the reader get its error, whatever the reason."""
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1")])
    source = sources.start()
    start = source.initial_offset()
    end = further(source, start)
    monkeypatch.setattr(ShardReader, "_add", None)
    failing = sources.start()

    with pytest.raises(
        ConnectorError, match=r"shardId-000000000000 .* cannot be read at .*TypeErr"
    ):
        failing.tasks(start, end)
    with pytest.raises(
        ConnectorError, match=r"shardId-000000000000 .* cannot be read at .*TypeErr"
    ):
        failing.latest_offset(start)


PAGE = (200, "text/html", b"<html>Please log in</html>")
NO_PLACE = (200, "application/json", b'{"Records": [], "NextShardIterator": "AAAA"}')


@pytest.mark.parametrize(
    ("operation", "page"),
    [("GetShardIterator", PAGE), ("GetRecords", PAGE), ("GetRecords", NO_PLACE)],
)
def test_a_page_of_a_proxy_is_no_answer(  # noqa: PLR0917 - four are fixtures
    kinesis: KinesisHarness,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    page: tuple[int, str, bytes],
) -> None:
    """The request is repeated, and the log has the page; a bounded run does not end without records."""
    monkeypatch.setattr("statefun.kinesis.shard_reader._PATIENCE", timedelta(0))
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1")])
    with KinesisProxy(int(kinesis.url.rpartition(":")[2])) as proxy:
        proxy.instead[operation] = page
        made = Sources(kinesis, tmp_path, "{type: earliest}", proxy.url)
        source = made.start()
        source.bound()
        with ThreadPoolExecutor() as threads:
            planned = threads.submit(source.latest_offset, source.initial_offset())
            wait(lambda: f"the answer to {operation} does not come from Kinesis" in caplog.text)
            assert not planned.done()
            proxy.instead.clear()
            assert planned.result(PATIENCE.total_seconds())["records"] == 1
        made.stop()
    assert page[2].decode()[:10] in caplog.text


def test_an_open_shard_does_not_end(
    kinesis: KinesisHarness,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong answer without a next iterator is logged, and the request repeated; no run ends by it."""
    monkeypatch.setattr("statefun.kinesis.shard_reader._PATIENCE", timedelta(0))
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1")])
    with KinesisProxy(int(kinesis.url.rpartition(":")[2])) as proxy:
        proxy.unfollowed = 2
        made = Sources(kinesis, tmp_path, "{type: earliest}", proxy.url)
        source = made.start()
        offset, found = source.initial_offset(), list[bytes]()
        for value in (b"2", b"3"):
            end = further(source, offset)
            found += [row["value"] for row in rows(source, offset, end)]
            offset = end
            kinesis.put("users", [("Ada", value)])
        made.stop()
    assert found == [b"1", b"2"]
    assert "has no NextShardIterator, although the shard is open); trying again" in caplog.text


def test_a_page_of_a_proxy_is_no_list(kinesis: KinesisHarness, tmp_path: Path) -> None:
    """The error of the start shows the page."""
    with KinesisProxy(int(kinesis.url.rpartition(":")[2])) as proxy:
        proxy.instead["ListShards"] = PAGE
        [ingress] = parse_module(module_text(proxy.url)).connector_ingresses
        problems = list(check_ingress(ingress, timedelta(0)))
        proxy.instead["ListStreams"] = PAGE
        [egress] = parse_module(module_text(proxy.url)).connector_egresses
        problems += check_egress(egress, timedelta(0))

    assert [re.findall("List[a-zA-Z]+|<html>.*</html>", problem) for problem in problems] == [
        *(
            ["ListShards", "<html>Please log in</html>"],
            ["ListStreams", "<html>Please log in</html>"],
        )
    ]


def test_an_answer_that_is_full_is_not_the_last(kinesis: KinesisHarness, sources: Sources) -> None:
    """An answer of Kinesis has at most 10,000 records; a bounded run reads further ones."""
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"")] * 10_500)
    source = sources.start(most=100_000)
    source.bound()
    offset = source.initial_offset()
    while (end := source.latest_offset(offset)) != offset:
        offset = end

    assert offset["records"] == 10_500


def test_a_bounded_run_ends_without_a_stream_that_was_taken_off(
    kinesis: KinesisHarness, sources: Sources
) -> None:
    """The position of a removed stream stays in the offset."""
    kinesis.create("users", 1)
    source = sources.start()
    source.bound()
    offset = source.initial_offset()
    offset["streams"]["others"] = offset["streams"]["users"]

    assert source.latest_offset(offset) == offset


def test_callers_that_wait_are_stopped(kinesis: KinesisHarness, sources: Sources) -> None:
    """Calls that wait for a server return when the run is to end."""
    kinesis.create("users", 1)
    source = sources.start()
    start = source.initial_offset()
    end = json.loads(json.dumps(start))
    end["streams"]["users"]["shards"]["shardId-000000000000"] |= {"after": str(10**60), "count": 1}
    with KinesisProxy(int(kinesis.url.rpartition(":")[2])) as proxy:
        proxy.throttled["GetRecords"] = 1_000_000
        stuck = Sources(kinesis, sources.folder / "stuck", "{type: earliest}", proxy.url).start()
        stuck.bound()
        with ThreadPoolExecutor() as threads:
            offsets = threads.submit(stuck.latest_offset, start)
            tasks = threads.submit(stuck.tasks, start, end)
            time.sleep(0.3)
            assert not offsets.done()
            assert not tasks.done()
            stuck.stop()
            assert offsets.result(10) == start
            with pytest.raises(ConnectorError, match="the run was asked to stop"):
                tasks.result(10)


def test_a_stopped_source_plans_nothing(kinesis: KinesisHarness, sources: Sources) -> None:
    """In particular, it does not plan the end of a shard whose records are fetched and not read."""
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1")])
    kinesis.split("users")
    source = sources.start()
    start = source.initial_offset()
    end = further(source, start)
    source.stop()

    assert source.latest_offset(start) == start
    position = next(iter(source._readers.values())).reachable(ShardPosition(), 10)  # noqa: SLF001 - what it holds
    assert (position.count, position.number > 0) == (1, True)
    assert end["records"] == 1


def test_a_busy_shard_gets_what_idle_ones_leave(kinesis: KinesisHarness, sources: Sources) -> None:
    """A busy shard gets the share of the micro-batch that idle shards do not use."""
    kinesis.create("users", 10)
    kinesis.put("users", [("Ada", b"x")] * 300)
    source = sources.start(most=100)
    start = source.initial_offset()

    wait(lambda: source.latest_offset(start)["records"] == 100)


@pytest.mark.parametrize("is_closed", [False, True])
def test_expired_records_do_not_block_a_planned_micro_batch(
    kinesis: KinesisHarness, sources: Sources, is_closed: bool
) -> None:
    """When records have expired, Kinesis answers with later ones: the run ends, or goes on without them."""
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1")])
    source = sources.start()
    start = source.initial_offset()
    end = further(source, start)
    end["streams"]["users"]["shards"]["shardId-000000000000"] |= {"after": str(10**60), "count": 3}
    if is_closed:
        kinesis.split("users")

    with pytest.raises(ConnectorError, match=r"2 of 3 records .* are gone .*set onDataLoss: go-on"):
        sources.start().tasks(start, end)
    going_on = sources.start(on_data_loss=OnDataLoss.GO_ON)
    assert [row["value"] for row in rows(going_on, start, end)] == [b"1"]


def test_records_that_may_have_expired_are_logged(
    kinesis: KinesisHarness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has a warning if Kinesis no longer has the last record that was read."""
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1"), ("Ada", b"2")])
    with KinesisProxy(int(kinesis.url.rpartition(":")[2])) as proxy:
        sources = Sources(kinesis, tmp_path, "{type: earliest}", proxy.url)
        source = sources.start(most=1)
        offset = further(source, source.initial_offset())
        last = offset["streams"]["users"]["shards"]["shardId-000000000000"]["after"]
        sources.stop()
        proxy.gone.add(last)
        with caplog.at_level(logging.WARNING):
            further(sources.start(), offset)
        sources.stop()

    [record] = caplog.records
    assert f"shardId-000000000000 of stream users no longer has record {last}," in record.message


def test_a_startup_position_may_change_until_something_is_planned(
    kinesis: KinesisHarness, tmp_path: Path
) -> None:
    """Then the first one counts; and a date in the future is refused."""
    kinesis.create("users", 1)
    latest = Sources(kinesis, tmp_path, "{type: latest}").start().initial_offset()
    earliest = Sources(kinesis, tmp_path, "{type: earliest}").start().initial_offset()
    planned = Sources(kinesis, tmp_path, "{type: latest}")
    planned.start()

    assert latest["streams"]["users"]["begin"] is not None
    assert earliest["streams"]["users"]["begin"] is None
    assert planned.start().initial_offset() == earliest
    with pytest.raises(
        ConfigurationError, match="the date of startupPosition must not be in the future"
    ):
        Sources(kinesis, tmp_path, "{type: date, date: 2999-01-01 00:00:00 +0000}").start()


def test_missing_records_are_counted(kinesis: KinesisHarness, sources: Sources) -> None:
    """The error has the numbers of missing and planned records, and the shard."""
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1"), ("Ada", b"2")])
    source = sources.start()
    start = source.initial_offset()
    end = further(source, start)
    end["streams"]["users"]["shards"]["shardId-000000000000"]["count"] = 5

    with pytest.raises(
        ConnectorError,
        match="3 of 5 records of shard shardId-000000000000 of stream users are gone",
    ):
        source.tasks(start, end)


def test_streams_may_be_added_and_not_taken_away_too_early(
    kinesis: KinesisHarness, sources: Sources
) -> None:
    """A stream may be removed only after its planned micro-batches are read."""
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1")])
    source = sources.start()
    start = source.initial_offset()
    end = further(source, start)
    other = {**end, "streams": {"gone": end["streams"]["users"]}}
    before = {**start, "streams": {}}

    assert [row["value"] for row in rows(source, before, end)] == [b"1"]
    assert further(source, before)["streams"].keys() == {"users"}
    with pytest.raises(
        ConnectorError, match="reads stream gone, which the ingress no longer lists"
    ):
        source.tasks(before, other)


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        (None, "profilePath .*aws cannot be read: No such file"),
        ("[you]\naws_access_key_id = a\n", r"profile \(me\) could not be found"),
    ],
)
def test_missing_profiles_are_named(
    kinesis: KinesisHarness, tmp_path: Path, profile: str | None, problem: str
) -> None:
    """The error has the component, and the file or the profile."""
    if profile is not None:
        (tmp_path / "aws").write_text(profile)
    login = "{type: basic, accessKeyId: tests, secretAccessKey: no-secret}"
    text = module_text(kinesis.url).replace(
        login, "{type: profile, profileName: me, profilePath: aws}"
    )
    [ingress] = parse_module(text, str(tmp_path / "m.yaml")).connector_ingresses

    with pytest.raises(ConfigurationError, match=f"^.*ingress test/in: .*{problem}"):
        KinesisSource(
            ingress.settings, ["users"], Folder.at(tmp_path / "folder"), 10, is_fresh=True
        )


def test_a_metric_shows_how_far_reading_is_behind(
    kinesis: KinesisHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figure is Kinesis's for the shard that is furthest behind; it grows while there is no answer."""
    kinesis.create("users", 1)
    kinesis.put("users", [("Ada", b"1")])
    with KinesisProxy(int(kinesis.url.rpartition(":")[2])) as proxy:
        proxy.behind = 5000
        made = Sources(kinesis, tmp_path, "{type: earliest}", proxy.url)
        source = made.start()
        further(source, source.initial_offset())
        [(name, lag)] = source.metrics().items()
        made.stop()
    monkeypatch.setattr("statefun.kinesis.shard_reader._PATIENCE", timedelta(0))
    time.sleep(0.02)

    assert (name, lag) == ("stream.users.millisBehindLatest", 5000)
    assert source.metrics()[name] > lag


def test_a_profile_is_taken_from_its_file(kinesis: KinesisHarness, tmp_path: Path) -> None:
    """The file has the format of AWS's own tools."""
    kinesis.create("users", 1)
    (tmp_path / "aws").write_text("[me]\naws_access_key_id = a\naws_secret_access_key = b\n")
    login = "{type: basic, accessKeyId: tests, secretAccessKey: no-secret}"
    text = module_text(kinesis.url).replace(
        login, "{type: profile, profileName: me, profilePath: aws}"
    )
    [ingress] = parse_module(text, str(tmp_path / "m.yaml")).connector_ingresses
    source = KinesisSource(
        ingress.settings, ["users"], Folder.at(tmp_path / "folder"), 10, is_fresh=True
    )

    source.check(PATIENCE)

    assert source.initial_offset()["records"] == 0
