# SPDX-License-Identifier: Apache-2.0
"""The lanes of a connector that keeps no markers itself, through crashes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.components import ConnectorEgress
from statefun.components.running import EgressRecord, Marker, UncertainError, Writing
from statefun.engine.effects import EffectRows
from statefun.module.location import Location
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.connector_folder import connector_folder
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import write_framed
from statefun.runtime.checkpoint.outbox import Outbox, Staged, effect_stream
from statefun.runtime.checkpoint.skips import write_skips
from statefun.runtime.egress.connector_lanes import ConnectorLaneFactory
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, arrow_stream
from statefun.sdk.address import TypeName
from statefun.sdk.errors import CheckpointError, ConnectorError


class CrashError(Exception):
    """The client of the connector has failed; the lane gets a ConnectorError instead."""


@attrs.define
class Memory:
    """The records that a connector has written through all of its connections."""

    every: int
    """How many records are between two notes of progress."""
    values: list[int] = attrs.field(factory=list)
    left: int | None = None
    """How many records it writes until it fails; None: all."""
    error: type[Exception] = CrashError
    unnoted: int = 0
    """How many records are written since the last note."""
    repeatable: int = 0
    """How many were, at all failures."""


MEMORIES: list[Memory] = []
"""The one of the present test is the last."""


class Connection:
    """A connection of the connector."""

    def __init__(self, writing: Writing) -> None:
        self._has_written = writing.has_written
        self._memory = MEMORIES[-1]

    def open(self) -> None:
        """Keep no markers."""

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write one record after the other."""
        del marker
        memory = self._memory
        for count, record in enumerate(records):
            if count % memory.every == 0:
                self._has_written(count)
                memory.unnoted = 0
            if memory.left == 0:
                memory.repeatable += memory.unnoted
                raise memory.error
            memory.left = None if memory.left is None else memory.left - 1
            memory.values.append(int(record.value or b""))
            memory.unnoted += 1
        memory.unnoted = 0

    def close(self) -> None:
        """Do nothing: the connection has no resources."""


class Turn:
    """A turn that never ends."""

    def should_stop(self, stalled: timedelta) -> bool:
        """Go on."""
        del stalled
        return False

    def is_over(self) -> bool:
        """Go on."""
        return False

    def pause(self, time: timedelta) -> bool:
        """Go on; the connector does not fail again."""
        del time
        MEMORIES[-1].left = None
        return False


def egress(writer: str, chunk: int = 10) -> ConnectorEgress:
    """Return an egress of the connector."""
    return ConnectorEgress(
        id=TypeName("t", "out"),
        kind="memory",
        location=Location("module.yaml", 1, 1),
        writer=f"{__name__}:{writer}",
        address="memory",
        convert=lambda _: None,
        chunk_records=chunk,
    )


def staged(
    folder: Folder, batch: int, values: Sequence[int], skipped: frozenset[int], lanes: int = 1
) -> Staged:
    """Stage and commit a batch, with the same records in all lanes."""
    rows = EffectRows()
    for value in values:
        rows.append(EgressRecord("topic", b"key", b"%d" % value, None))
    stream = effect_stream(arrow_stream(rows.take(), EGRESS_SCHEMA), len(values))
    segments = [Segment(partition=lane, egress={"t/out": stream}) for lane in range(lanes)]
    outbox = Outbox(folder)
    outbox.stage(Manifest(batch=batch, query_id="query", segments=segments, lanes=lanes))
    write_skips(folder, batch, {"t/out": skipped})
    folder.child("commits").write(str(batch), b"v1")
    found = outbox.staged(batch)
    assert found is not None
    return found


def counts(
    folder: Folder, batches: Sequence[Staged], made: ConnectorEgress, run: str
) -> Iterator[int]:
    """Publish batches as a new run does; yield how many records of each batch count as written."""
    lanes = ConnectorLaneFactory(made, folder, run).driver_lanes(Turn())
    try:
        lanes.connect()
        for published in lanes.publish(batches):
            yield published.written
    finally:
        lanes.close()


def publish(folder: Folder, batches: Sequence[Staged], made: ConnectorEgress, run: str) -> None:
    """Publish batches as a new run does."""
    assert len(list(counts(folder, batches, made, run))) == len(batches)


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    chunks=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    every=st.integers(1, 4),
    error=st.sampled_from([CrashError, UncertainError]),
    data=st.data(),
)
def test_a_failure_repeats_only_records_that_were_not_reported_as_safe(
    sizes: list[int],
    chunks: list[int],
    every: int,
    error: type[Exception],
    data: st.DataObject,
) -> None:
    """No record of another batch is repeated, none is lost or counted twice, and no skipped record is written."""
    memory = Memory(every, error=error)
    MEMORIES.append(memory)
    with tempfile.TemporaryDirectory() as root:
        folder, wanted, batches = Folder.at(root), list[int](), list[Staged]()
        counted = 0
        skips = [data.draw(st.frozensets(st.integers(0, size - 1))) for size in sizes]
        for number, (size, skipped) in enumerate(zip(sizes, skips, strict=True)):
            values = range(100 * number, 100 * number + size)
            batches.append(staged(folder, number, values, skipped))
            wanted += [value for at, value in enumerate(values) if at not in skipped]
        for run, chunk in enumerate(chunks):
            memory.left = data.draw(st.integers(0, 12))
            with suppress(ConnectorError):
                for count in counts(folder, batches, egress("Connection", chunk), f"run {run}"):
                    counted += count
        memory.left = None
        counted += sum(counts(folder, batches, egress("Connection"), "last run"))

    assert list(dict.fromkeys(memory.values)) == wanted
    assert counted == len(wanted)
    # The connector does not know which records of a call were left out, so it reports fewer than it could.
    most = memory.repeatable + len(chunks) * max(map(len, skips))
    assert len(memory.values) - len(wanted) <= most


def test_the_progress_of_a_whole_chunk_is_stored(tmp_path: Path) -> None:
    """Also if the connector reports none: of 10,000 records, 9,000 stay written, and 1,000 follow."""
    memory = Memory(every=100_000, left=9_000)
    MEMORIES.append(memory)
    folder, made = Folder.at(tmp_path), egress("Connection", 1000)
    batch = staged(folder, 0, range(10_000), frozenset())

    with pytest.raises(ConnectorError, match="CrashError"):
        publish(folder, [batch], made, "first")
    memory.left = None
    publish(folder, [batch], made, "second")

    assert memory.values == [*range(10_000)]


def test_a_copy_that_was_made_while_records_were_written_is_refused(tmp_path: Path) -> None:
    """Its progress is newer than its commits: the batches between them would not be published."""
    MEMORIES.append(Memory(every=100))
    folder, made = Folder.at(tmp_path), egress("Connection")
    batches = [staged(folder, number, range(3), frozenset()) for number in range(3)]
    publish(folder, batches, made, "first")
    (tmp_path / "commits" / "2").unlink()

    with pytest.raises(
        CheckpointError, match=r"batch 2 is published.*copied while its application"
    ):
        publish(folder, batches[:2], made, "second")


class Sleepy(Connection):
    """A connection to a server that answers at the second attempt."""

    query_ids: ClassVar[list[str]] = []
    folders: ClassVar[list[Folder | None]] = []

    def __init__(self, writing: Writing) -> None:
        super().__init__(writing)
        self.query_ids.append(writing.query_id)
        self.folders.append(writing.folder)

    def open(self) -> None:
        """Get no answer at first."""
        if len(self.query_ids) == 1:
            raise UncertainError


@pytest.mark.parametrize("is_exactly_once", [False, True])
def test_a_server_that_does_not_answer_at_the_start_is_tried_again(
    tmp_path: Path, *, is_exactly_once: bool
) -> None:
    """The first batch connects again; exactly-once egresses are given the id of the checkpoint.

    And all are given their folder of the checkpoint.
    """
    Sleepy.query_ids.clear()
    Sleepy.folders.clear()
    memory = Memory(every=100)
    MEMORIES.append(memory)
    folder = Folder.at(tmp_path)
    made = attrs.evolve(egress("Sleepy"), is_exactly_once=is_exactly_once)

    publish(folder, [staged(folder, 0, range(3), frozenset(), lanes=2)], made, "run")

    assert memory.values == [0, 1, 2, 0, 1, 2]
    assert set(Sleepy.query_ids) == {"query" if is_exactly_once else ""}
    assert [*dict.fromkeys(Sleepy.folders)] == [connector_folder(folder, made.id)]


class Late(Connection):
    """A connection that cannot be made at first."""

    made: ClassVar[int] = 0

    def __init__(self, writing: Writing) -> None:
        Late.made += 1
        if Late.made == 1:
            raise UncertainError
        super().__init__(writing)


def test_the_end_of_former_lanes_waits_for_the_server(tmp_path: Path) -> None:
    """A connection that cannot be made is tried again, as for other lanes."""
    folder, made = Folder.at(tmp_path), attrs.evolve(egress("Late"), is_exactly_once=True)
    MEMORIES.append(Memory(every=100))
    publish(folder, [staged(folder, 0, range(3), frozenset())], made, "run")

    Late.made = 0
    ConnectorLaneFactory(made, folder, "next").end_former("query", Turn())

    assert Late.made == 2


class NoConnection:
    """An object that lacks most methods of a connection."""

    def open(self) -> str:
        """Return no marker."""
        return "yesterday"


class Forgetful(NoConnection):
    """A connection whose methods return wrong values."""

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> bool:
        """Return a flag instead of None."""
        del records, marker
        return False

    def close(self) -> None:
        """Do nothing: the connection has no resources."""


class Careless(Forgetful):
    """A connection with one mistake."""

    def open(self) -> None:  # type: ignore[override]
        """Keep no markers."""


class Gathering(Careless):
    """A connection that keeps records for a while."""

    tended: ClassVar[list[bool]] = []

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:  # type: ignore[override]
        """Keep records."""

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Show the records if no batch follows."""
        self.tended.append(is_last)
        return None if is_last else timedelta(minutes=1)


class Untending(Gathering):
    """A connection that does not return a time."""

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Return seconds."""
        del is_last
        return 60  # type: ignore[return-value]


class Unthinking(Careless):
    """A connection that reports the progress in ``counts``."""

    counts: ClassVar[list[Any]] = []
    has_written: ClassVar[Callable[[int], None]]

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:  # type: ignore[override]
        """Write all records but the last one, and end."""
        del marker
        for count in self.counts:
            type(self).has_written(count)
        MEMORIES[-1].values += [int(record.value or b"") for record in records[:-1]]
        raise CrashError


class Unreachable(Careless):
    """A connection that fails with an exception of another library."""

    def open(self) -> None:  # type: ignore[override]
        """Fail."""
        raise KeyError("address")


class Unclosable(Gathering):
    """A connection whose end fails with an exception of another library."""

    def close(self) -> None:
        """Fail."""
        raise KeyError("session")


class Unwritable(Gathering):
    """A connection whose client fails with an exception of its own."""

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:  # type: ignore[override]
        """Fail."""
        raise KeyError("column")


class Unshowable(Gathering):
    """A connection whose client fails when gathered records are to be shown."""

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Fail."""
        raise KeyError("column")


OWNER = r"egress t/out \(memory, module.yaml:1:1\): .*:write_wrongly.*"
RETURNED: dict[str, Callable[[], object]] = {
    "NoConnection": NoConnection,
    "Forgetful": Forgetful,
    "Careless": Careless,
    "Gathering": Gathering,
    "Untending": Untending,
    "Unwritable": Unwritable,
    "Unshowable": Unshowable,
    "Unthinking": Unthinking,
    "Unreachable": Unreachable,
    "Unclosable": Unclosable,
    "None": lambda: None,
}


def write_wrongly(writing: Writing) -> object:
    """Return the connection that the egress's settings name."""
    Unthinking.has_written = writing.has_written
    return RETURNED[writing.egress.settings]()


@pytest.mark.parametrize("is_exactly_once", [False, True])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("None", "must return a connection with a method open, but has returned None"),
        ("NoConnection", "must return a connection with a method write"),
        (
            "Forgetful",
            "the method open must return None, or a Marker that was passed to `write`, but has returned 'yesterday'",
        ),
        (
            "Careless",
            "the method write has returned False; it must return None when all records are stored safely, and raise an error otherwise",
        ),
        ("Unreachable", "KeyError: 'address'"),
    ],
)
def test_the_return_values_of_a_connector_are_checked(
    tmp_path: Path, name: str, problem: str, *, is_exactly_once: bool
) -> None:
    """A mistake is an error that names the connector, and no record is lost."""
    folder = Folder.at(tmp_path)
    batch = staged(folder, 0, range(3), frozenset())
    made = attrs.evolve(egress("write_wrongly"), settings=name, is_exactly_once=is_exactly_once)

    with pytest.raises(ConnectorError, match=f"{OWNER}{problem}"):
        publish(folder, [batch], made, "run")


@pytest.mark.parametrize("is_exactly_once", [False, True])
@pytest.mark.parametrize("count", [-1, 4, True, 2.0, "2", None])
def test_impossible_progress_is_refused(
    tmp_path: Path, count: object, *, is_exactly_once: bool
) -> None:
    """More than the three records of a call would leave out records of the next call: none is stored."""
    memory = Memory(every=100)
    MEMORIES.append(memory)
    folder = Folder.at(tmp_path)
    batch = staged(folder, 0, range(3), frozenset())
    made = attrs.evolve(
        egress("write_wrongly"), settings="Unthinking", is_exactly_once=is_exactly_once
    )
    Unthinking.counts = [count]

    with pytest.raises(
        ConnectorError, match=f"{OWNER}has_written must be .* was called with {count!r}"
    ):
        publish(folder, [batch], made, "first")
    publish(folder, [batch], egress("Connection"), "second")

    assert memory.values == [0, 1, 2]


def test_progress_is_reported_only_during_a_call_of_write(tmp_path: Path) -> None:
    """Progress does not go back, in whatever order threads report it; later calls are errors."""
    memory = Memory(every=100)
    MEMORIES.append(memory)
    folder = Folder.at(tmp_path)
    batch = staged(folder, 0, range(3), frozenset())
    Unthinking.counts = [0, 2, 1]

    with pytest.raises(ConnectorError, match="CrashError"):
        publish(folder, [batch], attrs.evolve(egress("write_wrongly"), settings="Unthinking"), "1")
    with pytest.raises(ConnectorError, match=f"{OWNER}has_written must be called only by"):
        Unthinking.has_written(3)
    publish(folder, [batch], egress("Connection"), "2")

    assert memory.values == [0, 1, 2]


class Persistent(Connection):
    """A connection that reports its progress once more if the first report fails."""

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write all records, and fail."""
        super().write(records, marker)
        for _ in range(2):
            with suppress(OSError):
                self._has_written(len(records))
        raise CrashError


def test_a_report_that_could_not_be_stored_is_stored_when_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk or a store that does not answer may be fine a moment later."""
    memory = Memory(every=100)
    MEMORIES.append(memory)
    folder = Folder.at(tmp_path)
    batch = staged(folder, 0, range(3), frozenset())
    writes = iter([OSError("No space left on device")])

    def write(folder: Folder, name: str, content: bytes) -> None:
        if error := next(writes, None):
            raise error
        write_framed(folder, name, content)

    monkeypatch.setattr("statefun.runtime.egress.connector_cluster.write_framed", write)
    with pytest.raises(ConnectorError, match="CrashError"):
        publish(folder, [batch], egress("Persistent"), "first")
    publish(folder, [batch], egress("Connection"), "second")

    assert memory.values == [0, 1, 2]


@pytest.mark.parametrize("is_exactly_once", [False, True])
def test_a_connector_that_keeps_records_is_asked_to_show_them(
    tmp_path: Path, *, is_exactly_once: bool
) -> None:
    """It answers when to ask again; the last question says that no batch follows."""
    folder = Folder.at(tmp_path)
    made = attrs.evolve(
        egress("write_wrongly"), settings="Gathering", is_exactly_once=is_exactly_once
    )
    lanes = ConnectorLaneFactory(made, folder, "run").driver_lanes(Turn())
    Gathering.tended.clear()

    lanes.connect()
    list(lanes.publish([staged(folder, 0, range(3), frozenset())]))
    waits = [lanes.tend(), lanes.tend(is_last=True)]
    lanes.close()

    assert waits == [timedelta(minutes=1), None]
    assert Gathering.tended == [False, True]


def test_the_time_until_a_connector_is_asked_again_is_checked(tmp_path: Path) -> None:
    """A number of seconds is an error with the connector's name."""
    folder = Folder.at(tmp_path)
    made = attrs.evolve(egress("write_wrongly"), settings="Untending")
    lanes = ConnectorLaneFactory(made, folder, "run").driver_lanes(Turn())
    lanes.connect()
    list(lanes.publish([staged(folder, 0, range(3), frozenset())]))

    with pytest.raises(
        ConnectorError, match=r"write_wrongly.*tend must return a timedelta, .* returned 60"
    ):
        lanes.tend()
    lanes.close()


def test_a_connection_that_cannot_be_closed_is_an_error_with_the_name_of_its_egress(
    tmp_path: Path,
) -> None:
    """The text has the exception of the other library."""
    made = attrs.evolve(egress("write_wrongly"), settings="Unclosable")
    lanes = ConnectorLaneFactory(made, Folder.at(tmp_path), "run").driver_lanes(Turn())
    lanes.connect()
    list(lanes.publish([staged(Folder.at(tmp_path), 0, range(3), frozenset())]))

    with pytest.raises(ConnectorError, match=f"{OWNER}KeyError: 'session'"):
        lanes.close()


@pytest.mark.parametrize("is_exactly_once", [False, True])
def test_a_failure_of_another_library_names_the_egress(
    tmp_path: Path, *, is_exactly_once: bool
) -> None:
    """While records are written, and when gathered records are to be shown."""
    folder = Folder.at(tmp_path)
    batch = staged(folder, 0, range(3), frozenset())
    for name in ("Unwritable", "Unshowable"):
        made = attrs.evolve(egress("write_wrongly"), settings=name, is_exactly_once=is_exactly_once)
        lanes = ConnectorLaneFactory(made, folder, name).driver_lanes(Turn())
        lanes.connect()
        if name == "Unshowable":
            list(lanes.publish([batch]))
        with pytest.raises(ConnectorError, match=f"{OWNER}KeyError: 'column'"):
            _ = lanes.tend() if name == "Unshowable" else list(lanes.publish([batch]))
        lanes.close()
