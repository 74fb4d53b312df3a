# SPDX-License-Identifier: Apache-2.0
"""The lanes of connectors in a checkpoint that was restored from a snapshot."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from file_writer import LATER, egress_of, files, hidden, names
from file_writer import rows as records_of

from statefun.components import ConnectorEgress
from statefun.components.running import EgressRecord, Marker, UncertainError, Writing
from statefun.engine.effects import EffectRows
from statefun.files.file_writing import write_files
from statefun.inspect.snapshots import restore_snapshot, take_snapshot
from statefun.module.loader import parse_module
from statefun.module.location import Location
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.former_queries import former_queries
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.runtime.checkpoint.known_runs import Runs
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.checkpoint.playground_store import OPEN, PlaygroundStore
from statefun.runtime.egress.connector_lanes import ConnectorLaneFactory
from statefun.runtime.egress.lane_set import DriverLanes, UntilStopped
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.release.retention import Retention
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, arrow_stream
from statefun.runtime.settings import Settings
from statefun.sdk.address import TypeName

WRITTEN: list[bytes | None] = []
"""What the connector without markers has written in the present test."""


class Connection:
    """A connection of a connector that keeps no markers."""

    def __init__(self, _: Writing) -> None:
        pass

    def open(self) -> None:
        """Keep no markers."""

    def write(self, records: Sequence[EgressRecord], _: Marker) -> None:
        """Write all records."""
        WRITTEN.extend(record.value for record in records)

    def close(self) -> None:
        """Do nothing: the connection has no resources."""


MEMORY = ConnectorEgress(
    id=TypeName("t", "out"),
    kind="memory",
    location=Location("module.yaml", 1, 1),
    writer=f"{__name__}:Connection",
    address="memory",
    convert=lambda _: None,
)
PLAYGROUND = (
    "kind: io.statefun.playground.v1/egress\nspec: {port: 7999, topics: [topic], id: t/out}\n"
)


@pytest.fixture
def folder(checkpoint: Path) -> Folder:
    """Return a checkpoint without micro-batches."""
    folder = Folder.at(checkpoint)
    IngressOrder([]).write(folder)
    folder.write("metadata", b'{"id":"query"}')
    WRITTEN.clear()
    return folder


def commit(
    folder: Folder, batch: int, records: Sequence[EgressRecord], egress: str, lanes: int = 1
) -> None:
    """Stage and commit a batch with the same records in all lanes of an egress."""
    rows = EffectRows()
    for record in records:
        rows.append(record)
    stream = effect_stream(arrow_stream(rows.take(), EGRESS_SCHEMA), len(records))
    segments = [Segment(partition=lane, egress={egress: stream}) for lane in range(lanes)]
    Outbox(folder).stage(Manifest(batch=batch, query_id="query", segments=segments, lanes=lanes))
    folder.child("offsets").write(str(batch), b'v1\n{}\n{"batch":-1,"tick":-1}')
    folder.child("commits").write(str(batch), b"v1\n{}")


def begin(folder: Folder, made: ConnectorEgress, run: str) -> DriverLanes:
    """Return the lanes of a run that does not end as it should: nobody closes them."""
    lanes = ConnectorLaneFactory(made, folder, run).driver_lanes(UntilStopped(threading.Event()))
    lanes.open(CommitLog(folder).query_id(), 1, [])
    lanes.claim()
    Runs(folder, run, [str(made.id)]).add()
    return lanes


def publish(folder: Folder, lanes: DriverLanes, batch: int, *, remove: bool = True) -> None:
    """Publish a batch, and delete it unless another egress is behind."""
    staged = Outbox(folder).staged(batch)
    assert staged is not None
    assert len(list(lanes.publish([staged]))) == 1
    if remove:
        Outbox(folder).remove(batch)


def start(folder: Folder, made: ConnectorEgress) -> None:
    """Publish as the start of an application does, until all committed batches are published; then stop."""
    settings, log = Settings.resolve({}, None, checkpoint=Path(folder.location)), CommitLog(folder)
    late = threading.Event()
    with closing(GroupOffsets([], [], log)) as group_offsets:
        factories = [ConnectorLaneFactory(made, folder, "second")]
        publisher = Publisher("second", factories, settings, group_offsets, Retention(folder))
        try:
            publisher.start(Outbox(folder).recover(log.newest()))
            publisher.drain(log.newest(), late)
        finally:
            publisher.stop()


def restored(snapshot: Folder, target: Path, *, may_repeat: bool) -> Folder:
    """Return a checkpoint that is restored from a snapshot."""
    copy = Folder.at(target)
    restore_snapshot(snapshot, copy, may_repeat=may_repeat)
    return copy


def taken(folder: Folder, target: Path) -> Folder:
    """Return a snapshot of a checkpoint."""
    snapshot = Folder.at(target)
    take_snapshot(folder, snapshot)
    return snapshot


@pytest.mark.parametrize("may_repeat", [False, True])
def test_a_connector_without_markers_goes_on(
    folder: Folder, tmp_path: Path, *, may_repeat: bool
) -> None:
    """Its progress is in the checkpoint, also in a batch that waits for another egress."""
    commit(
        folder, 0, [EgressRecord("topic", b"key", value, None) for value in (b"a", b"b")], "t/out"
    )
    publish(folder, begin(folder, MEMORY, "first"), 0, remove=False)
    copy = restored(taken(folder, tmp_path / "snapshot"), tmp_path / "copy", may_repeat=may_repeat)

    start(copy, MEMORY)

    assert WRITTEN == [b"a", b"b"]
    assert Outbox(copy).batches() == []


@pytest.mark.parametrize("may_repeat", [False, True])
@pytest.mark.parametrize("remove", [False, True])
def test_a_playground_goes_on(
    folder: Folder, tmp_path: Path, *, may_repeat: bool, remove: bool
) -> None:
    """Its markers are in the checkpoint, and so agree with it: no record comes twice."""
    [made] = parse_module(PLAYGROUND, str(tmp_path / "m.yaml")).connector_egresses
    commit(folder, 0, [EgressRecord("topic", b"key", b"a", None)], "t/out")
    with playground(folder, made):
        publish(folder, begin(folder, made, "first"), 0, remove=remove)
        snapshot = taken(folder, tmp_path / "snapshot")
    copy = restored(snapshot, tmp_path / "copy", may_repeat=may_repeat)

    with playground(copy, made) as store:
        start(copy, made)
        record = store.take("topic", 0)
        assert record is not None
        assert (record.payload, store.take("topic", 0)) == (b"a", None)


@contextmanager
def playground(folder: Folder, made: ConnectorEgress) -> Iterator[PlaygroundStore]:
    """Open the database of a playground during the block."""
    door = made.settings
    OPEN[door.host, door.port] = store = PlaygroundStore(folder)
    try:
        yield store
    finally:
        OPEN.pop((door.host, door.port)).close()


@pytest.mark.parametrize("may_repeat", [False, True])
def test_gathered_records_become_files(folder: Folder, tmp_path: Path, *, may_repeat: bool) -> None:
    """The lost run had gathered them before the snapshot, so that their batch is deleted."""
    made = egress_of(tmp_path, LATER)
    commit(folder, 0, records_of("Ada"), "a/b")
    publish(folder, begin(folder, made, "first"), 0)
    assert files(tmp_path) == []
    copy = restored(taken(folder, tmp_path / "snapshot"), tmp_path / "copy", may_repeat=may_repeat)

    start(copy, made)

    assert [names(file) for file in files(tmp_path)] == [["Ada"]]
    assert former_queries(copy) == []


def test_records_that_were_gathered_after_the_snapshot_become_files(
    folder: Folder, tmp_path: Path
) -> None:
    """The lost run had published more than the restored checkpoint knows; it publishes nothing more."""
    made = egress_of(tmp_path, LATER)
    commit(folder, 0, records_of("Ada"), "a/b")
    lost = begin(folder, made, "first")
    publish(folder, lost, 0)
    snapshot = taken(folder, tmp_path / "snapshot")
    commit(folder, 1, records_of("Alan"), "a/b")
    publish(folder, lost, 1)
    copy = restored(snapshot, tmp_path / "copy", may_repeat=True)
    commit(copy, 1, records_of("Alan", "Grace"), "a/b")

    start(copy, made)

    written = [names(file) for file in files(tmp_path)]
    assert sorted(written) == [["Ada", "Alan"], ["Alan", "Grace"]]
    assert [name for name in hidden(tmp_path) if name != "marker"] == []
    commit(folder, 2, records_of("late"), "a/b")
    with pytest.raises(Exception, match="another run has taken over"):
        publish(folder, lost, 2)


def test_a_start_that_is_killed_is_repeated(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records become files once, although the next start ends the lanes of the lost run again."""
    made = egress_of(tmp_path, LATER)
    commit(folder, 0, records_of("Ada"), "a/b")
    publish(folder, begin(folder, made, "first"), 0)
    copy = restored(taken(folder, tmp_path / "snapshot"), tmp_path / "copy", may_repeat=True)

    with monkeypatch.context() as patch:
        patch.setattr(
            "statefun.runtime.release.publisher.forget_former_queries", lambda _: killed()
        )
        with pytest.raises(KilledError):
            start(copy, made)
    start(copy, made)

    assert [names(file) for file in files(tmp_path)] == [["Ada"]]


class KilledError(Exception):
    """The process has ended."""


def killed() -> None:
    """End the process."""
    raise KilledError


QUERIES: list[str] = []
"""The ids of queries with which connections were made."""
TROUBLES: list[str] = []
"""The reasons for which the next calls fail, in the order of the calls."""


class Unreliable:
    """A connection to files that fails now and then."""

    def __init__(self, writing: Writing) -> None:
        QUERIES.append(writing.query_id)
        self._files = write_files(writing)

    def open(self) -> Marker | None:
        """Open, or fail."""
        fail("open")
        return self._files.open()

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write, or fail."""
        fail("write")
        self._files.write(records, marker)

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Show records, or fail."""
        fail("tend")
        return self._files.tend(is_last=is_last)

    def close(self) -> None:
        """Close the connection."""
        self._files.close()


def fail(method: str) -> None:
    """Fail if this call is to fail."""
    if TROUBLES and TROUBLES[0] == method:
        raise UncertainError(TROUBLES.pop(0))


def test_a_lost_lane_is_ended_in_spite_of_missing_answers(folder: Folder, tmp_path: Path) -> None:
    """A new connection begins with reading the marker again."""
    made: Any = egress_of(tmp_path, LATER)
    commit(folder, 0, records_of("Ada"), "a/b")
    publish(folder, begin(folder, made, "first"), 0)
    copy = restored(taken(folder, tmp_path / "snapshot"), tmp_path / "copy", may_repeat=True)
    TROUBLES[:] = ["open", "write", "tend"]

    start(copy, attrs.evolve(made, writer=f"{__name__}:Unreliable"))

    assert TROUBLES == []
    assert [names(file) for file in files(tmp_path)] == [["Ada"]]


def test_no_lane_of_a_restored_checkpoint_has_the_former_id(folder: Folder, tmp_path: Path) -> None:
    """This holds also for lanes that only a batch in the outbox needs, which an earlier run has staged."""
    made: Any = egress_of(tmp_path, LATER)
    commit(folder, 0, records_of("Ada"), "a/b", lanes=2)
    copy = restored(taken(folder, tmp_path / "snapshot"), tmp_path / "copy", may_repeat=True)
    QUERIES.clear()

    start(copy, attrs.evolve(made, writer=f"{__name__}:Unreliable"))

    assert [CommitLog(copy).query_id()] * 2 == QUERIES
    assert [names(file) for file in files(tmp_path)] == [["Ada"], ["Ada"]]
