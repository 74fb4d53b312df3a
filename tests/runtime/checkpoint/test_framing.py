# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun import (
    CheckpointError,
)
from statefun.engine.wheel import PendingBuckets
from statefun.module.location import Location
from statefun.module.model import KafkaIngress
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.call_log import CallLog
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.checkpoint.ingress_changes import in_order
from statefun.runtime.checkpoint.ingress_order import INGRESSES, IngressOrder, source_name
from statefun.runtime.checkpoint.known_functions import FUNCTIONS_FILE, known_functions
from statefun.runtime.checkpoint.known_runs import Runs
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.runtime.ingress import identities
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.ingress.stopping import stops_of_last_run
from statefun.runtime.preflight.recovery import check_logs
from statefun.sdk.address import TypeName

INGRESS = KafkaIngress(TypeName("t", "in"), "kafka:9092", (), Location("module.yaml", 1, 1))
STREAM = effect_stream(b"in a file", 3, "1-2.arrow")


@attrs.frozen
class Kind:
    """A kind of file in a checkpoint."""

    path: str
    write: Callable[[Folder], object]
    read: Callable[[Folder], object]
    """Raises CheckpointError if the file is damaged."""


def _pending(buckets: set[int]) -> PendingBuckets:
    pending = PendingBuckets()
    pending.add(buckets)
    return pending


def _write_snapshot(checkpoint: Folder) -> None:
    log = TimerLog(checkpoint)
    for batch in range(100):
        log.add(batch, {batch}, _pending({17, 400}))


def _forget_runs(checkpoint: Folder) -> None:
    Runs(checkpoint, "b", ["t/out"]).forget_all_but(set())
    if checkpoint.child("runs").has("a"):
        raise CheckpointError("a damaged note of a run is kept")


def _manifest() -> Manifest:
    segment = Segment(partition=1, egress={"a/b": effect_stream(b"content", 3)}, buckets=[1, 2])
    return Manifest(batch=7, query_id="query", run_id="run", lanes=2, segments=[segment])


def _read_ingresses(checkpoint: Folder) -> None:
    _spark_files(checkpoint)  # until there are some, the file is written anew
    in_order(checkpoint, [INGRESS])


OURS = [
    Kind(
        "outbox/7/manifest",
        lambda folder: Outbox(folder).stage(_manifest()),
        lambda folder: Outbox(folder).staged(7),
    ),
    Kind(
        "outbox/7/1-2.arrow",
        lambda folder: Outbox(folder).batch_folder(7).write("1-2.arrow", b"in a file"),
        lambda folder: Outbox(folder).open(7, STREAM),
    ),
    Kind(
        "timers/7",
        lambda folder: TimerLog(folder).add(7, {17}, _pending({17})),
        lambda folder: TimerLog(folder).load(),
    ),
    Kind("timers/99.all", _write_snapshot, lambda folder: TimerLog(folder).load()),
    Kind(
        "calls/7",
        lambda folder: CallLog(folder).add(7, {"call": b"Ada\0t/f"}, {"call": b"Ada\0t/f"}),
        lambda folder: CallLog(folder).recover(),
    ),
    Kind("runs/a", lambda folder: Runs(folder, "a", ["t/out"]).add(), _forget_runs),
    Kind(
        INGRESSES,
        lambda folder: IngressOrder([source_name(INGRESS)]).write(folder),
        _read_ingresses,
    ),
    Kind(
        identities.CLUSTERS_FILE,
        lambda folder: write_framed(
            folder, identities.CLUSTERS_FILE, b'{"t/in": {"cluster": "c"}}'
        ),
        lambda folder: identities.check_identities(folder, [], [], [], timedelta(0)),
    ),
    Kind(
        FUNCTIONS_FILE,
        lambda folder: write_framed(folder, FUNCTIONS_FILE, b'{"registered": ["t/f"], "left": {}}'),
        known_functions,
    ),
    Kind(
        "stops.json",
        lambda folder: write_framed(folder, "stops.json", b'{"t/in": {"users": {"0": 9}}}'),
        stops_of_last_run,
    ),
]


def _spark_files(checkpoint: Folder) -> None:
    checkpoint.write("metadata", b'{"id":"3f1b"}')
    offsets = ["v1", '{"batchWatermarkMs":0}', '{"users":{"0":5}}', '{"batch": 6, "tick": -1}']
    checkpoint.child("offsets").write("7", "\n".join(offsets).encode())
    checkpoint.child("commits").write("7", b'v1\n{"nextBatchWatermarkMs":0}')


def _check_spark_files(checkpoint: Folder) -> None:
    check_logs(checkpoint)
    CommitLog(checkpoint).check_sources(2)


def _read_older(checkpoint: Folder) -> None:
    assert feedback_offset(CommitLog(checkpoint), 7).batch == 6


SPARKS = [Kind(path, _spark_files, _check_spark_files) for path in ("offsets/7", "commits/7")]
SPARKS.append(Kind("offsets/7", _spark_files, _read_older))


def prefixes(content: bytes) -> Iterator[bytes]:
    """Return contents that a torn write may leave."""
    return (content[:length] for length in range(len(content)))


def flipped(content: bytes) -> Iterator[bytes]:
    """Return the content with each of its bits flipped."""
    for index, byte in enumerate(content):
        for bit in range(8):
            yield content[:index] + bytes([byte ^ 1 << bit]) + content[index + 1 :]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.path)
def test_no_damaged_file_is_read(tmp_path: Path, kind: Kind) -> None:
    """Every prefix and every flipped bit of every file of the runtime is detected."""
    folder, file = Folder.at(tmp_path), tmp_path / kind.path
    kind.write(folder)
    content = file.read_bytes()
    with_rest = content + b"\n"

    for damaged in (*prefixes(content), *flipped(content), with_rest):
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            kind.read(folder)

    file.write_bytes(content)
    if kind.path != "runs/a":
        kind.read(folder)


@pytest.mark.parametrize("kind", SPARKS, ids=lambda kind: kind.path)
def test_no_torn_file_of_spark_is_read(tmp_path: Path, kind: Kind) -> None:
    """Spark's files have no checksums, but each prefix of one lacks something."""
    kind.write(Folder.at(tmp_path))
    kind.read(Folder.at(tmp_path))
    content = (tmp_path / kind.path).read_bytes()

    for torn in prefixes(content):
        (tmp_path / kind.path).write_bytes(torn)
        with pytest.raises(CheckpointError, match=kind.path):
            kind.read(Folder.at(tmp_path))


@given(content=st.binary(), path=st.sampled_from(["a", "b/c", "outbox/7/manifest"]))
def test_written_content_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, path: str
) -> None:
    """Any content at any path can be read again."""
    folder = Folder.at(tmp_path_factory.getbasetemp() / "framed")

    write_framed(folder, path, content)

    assert read_framed(folder, path) == content


def test_a_file_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    """The file is complete, but belongs to another batch; the error names it."""
    folder = Folder.at(tmp_path)
    Outbox(folder).stage(Manifest(batch=7))
    (tmp_path / "outbox" / "7").rename(tmp_path / "outbox" / "8")

    with pytest.raises(CheckpointError) as caught:
        Outbox(folder).manifest(8)

    assert caught.value.message == (
        f"{tmp_path}/outbox/8/manifest is damaged (its content does not match the checksum in its first line); restore the "
        "checkpoint from a copy"
    )
