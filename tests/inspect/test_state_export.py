# SPDX-License-Identifier: Apache-2.0
"""All state as a Parquet file, and new checkpoints from such files, on which applications go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import KafkaHarness, run
from obedient_system import System
from programs import LIFETIME, START, Program
from stored_checkpoint import CHECKPOINTS

from statefun import KafkaEgressMessage, StatefulFunctions
from statefun.cli import main
from statefun.dev.spark_application import FileClock
from statefun.engine.address_keys import address_key
from statefun.inspect.state_export import export_state, import_state
from statefun.protocol.runtime_pb2 import AddressState, Outcome
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT, IngressOrder
from statefun.runtime.checkpoint.lock import checkpoint_lock
from statefun.runtime.checkpoint.playground_store import PlaygroundStore
from statefun.runtime.checkpoint.repair_log import Change, RepairLog
from statefun.runtime.checkpoint.sent_messages import put_message
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.runtime.stored.committed_state import with_state
from statefun.sdk.address import Address
from statefun.windows import Tumbling, Window, WindowContext, windowed

pytestmark = pytest.mark.takes(minutes=0.8)

ADA = address_key(Address("test.fns/account", "Ada"))


def all_rows(checkpoint: Path) -> dict[bytes, bytes]:
    """Return the states of all addresses, reserved ones included."""
    return with_state(Folder.at(checkpoint), None, dict)


def file_rows(file: Path) -> dict[bytes, bytes]:
    """Return the keys and states in a file."""
    table = pq.read_table(file)
    return dict(zip(table["key"].to_pylist(), table["state"].to_pylist(), strict=True))


def later(seconds: float, text: str, token: str = "") -> list[object]:
    """Return the command that makes ``b`` emit a text later."""
    return ["after", seconds, token, "b", "x", [["emit", text]]]


@pytest.fixture
def quiet(tmp_path: Path) -> Folder:
    """Return a copy of the stored checkpoint in which nothing is on its way."""
    copied = shutil.copytree(CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}", tmp_path / "quiet")
    folder = Folder.at(copied)
    folder.child("outbox").remove_all()
    IngressOrder(["test/commands"]).write(folder)  # as if Spark's own source had read it
    return folder


@pytest.mark.spark
@pytest.mark.broker
def test_an_application_goes_on_with_an_exported_state(
    kafka: KafkaHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The states are the same bytes; counts, timers, tokens, expirations and offsets are those of the former run."""
    first, second = tmp_path / "first", tmp_path / "the second"
    file, again = tmp_path / "a state.parquet", tmp_path / "again.parquet"
    system = System(
        kafka,
        kafka.topic("in", partitions=2),
        kafka.topic("out"),
        first,
        FileClock(tmp_path / "clock"),
    )
    storm: Program = [later(60 + n % 7, f"{n}") for n in range(300)]
    system.step(
        [
            ("Ada", [["add"], ["note"], later(40, "late"), later(50, "cancelled", "t")]),
            ("Alan", [["add"], ["add"], later(50, "token", "u"), *storm]),
        ],
        state_partitions=2,
    )

    assert main(["state", "export", str(first), str(file)]) == 0
    assert main(["state", "import", str(file), str(second), "--state-partitions", "3"]) == 0
    assert main(["state", "export", str(second), str(again)]) == 0
    said = capsys.readouterr().out.splitlines()
    states = all_rows(first)
    assert all_rows(second) == states
    assert file_rows(file) == file_rows(again) == states
    system.checkpoint = second
    cancelled = system.texts([("Ada", [["cancel", "t"], ["look"]])], START + 30)
    due = system.texts([("Alan", [["add"], ["emit", "count"]])], START + 100)
    assert cancelled == [[]], "the value has expired"
    assert LIFETIME.total_seconds() < 30
    assert sorted(due) == sorted(["late", "token", "count", *(f"{n}" for n in range(300))])
    assert not system.has_timers()
    assert {b"Ada\0t.fns/a", b"Alan\0t.fns/a"} == all_rows(second).keys()
    assert said[0].startswith(f"{file} has {len(states)} addresses as of micro-batch ")
    assert said[1].startswith(
        f"checkpoint {second} has {len(states)} addresses, and goes on where "
    )

    capsys.readouterr()
    used = tmp_path / "used.parquet"
    with checkpoint_lock(Folder.at(second)):
        assert main(["state", "export", str(second), str(used)]) == 0
    assert main(["state", "import", str(used), str(tmp_path / "new")]) == 1
    assert main(["state", "export", str(second), str(used)]) == 1
    assert main(["state", "import", str(file), str(second)]) == 1
    captured = capsys.readouterr()
    reason = "an application was running with the checkpoint"
    assert f"no checkpoint can be made from it, since {reason}" in captured.out
    lines = captured.err.splitlines()
    assert f"no checkpoint can be made from {used}: when it was written, {reason}; let" in lines[0]
    assert f"{used} exists already: give the name of a new file" in lines[1]
    assert f"{second} has files: give an empty folder" in lines[2]
    assert not (tmp_path / "new").exists()


@pytest.mark.spark
@pytest.mark.broker
def test_a_window_does_not_open_again(kafka: KafkaHarness, tmp_path: Path) -> None:
    """The watermark goes on, too: what was late is late, and an open window closes with all of its records."""
    topic, out, file = kafka.topic("in"), kafka.topic("out"), tmp_path / "state.parquet"
    functions = StatefulFunctions()
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)

    class Counts(Window):
        count: int = 0

    def publish(ctx: WindowContext, text: str) -> None:
        seconds = round((ctx.window.start - start).total_seconds())
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=f"{seconds} {text}"))

    @windowed("test/counts", Tumbling(timedelta(seconds=10)), functions=functions)
    def add(ctx: WindowContext, text: str, counts: Counts) -> None:
        counts.count += 1

    @add.on_close
    def close(ctx: WindowContext, counts: Counts) -> None:
        publish(ctx, f"closed with {counts.count}")

    @add.on_late
    def late(ctx: WindowContext, text: str) -> None:
        publish(ctx, "late")

    module = (
        kafka.module({topic: ["test/counts"]}, semantic="exactly-once")
        .replace("valueType: io.statefun.types/string", "valueFormat: {type: text}")
        .replace(
            "  topics:\n", "  eventTime: {field: at, outOfOrder: 0s, idle: 1h}\n  topics:\n", 1
        )
    )

    def handle(checkpoint: Path, *seconds: int) -> list[str]:
        times = (round(start.timestamp() + each) for each in seconds)
        kafka.send(topic, [("Ada", json.dumps({"at": time})) for time in times])
        run(module, functions, checkpoint)
        return [record.value for record in kafka.receive(out)]

    assert handle(tmp_path / "first", 1, 23, 24) == ["0 closed with 1"]
    assert main(["state", "export", str(tmp_path / "first"), str(file)]) == 0
    assert main(["state", "import", str(file), str(tmp_path / "second")]) == 0
    assert handle(tmp_path / "second", 2) == ["0 closed with 1", "0 late"]
    assert handle(tmp_path / "second", 25, 30)[2:] == ["20 closed with 3"]


def test_a_checkpoint_in_which_nothing_waits_can_be_made_again(
    quiet: Folder, tmp_path: Path
) -> None:
    """The export gives no reason against it."""
    assert not export_state(quiet, tmp_path / "state.parquet").reason


def accept_sent(checkpoint: Folder) -> None:
    """Put a message into a checkpoint, as ``statefun send`` does."""
    put_message(checkpoint, ADA, "io.statefun.types/int", b"")


def accept_repair(checkpoint: Folder) -> None:
    """Accept a repair, as a command does that is killed before it applies the repair."""
    value = AddressState.Value(name="note", typename="io.statefun.types/string", value=b"x")
    change = Change(ADA, "note", None, value)
    RepairLog(checkpoint).accept("me", datetime.now(timezone.utc), [change])


def accept_posted(checkpoint: Folder) -> None:
    """Accept a message in the playground."""
    with closing(PlaygroundStore(checkpoint)) as store:
        store.post(ADA, "io.statefun.types/int", b"")


@pytest.mark.parametrize(
    ("accept", "reason"),
    [
        (accept_sent, "messages of 'statefun send' were not delivered yet"),
        (accept_repair, "a repair was accepted and not applied yet"),
        (accept_posted, "messages of the playground were not delivered yet"),
    ],
)
def test_no_checkpoint_is_made_without_what_was_accepted(
    quiet: Folder, tmp_path: Path, accept: Callable[[Folder], None], reason: str
) -> None:
    """A message from outside, or a repair, that the checkpoint has accepted is not in the exported state."""
    accept(quiet)

    assert export_state(quiet, tmp_path / "state.parquet").reason == reason


def test_a_damaged_file_is_the_reason_that_is_given(quiet: Folder, tmp_path: Path) -> None:
    """The states are exported all the same, and no application is said to be running."""
    quiet.child("sent").write("1.message", b"damaged")

    exported = export_state(quiet, tmp_path / "state.parquet")

    assert exported.addresses
    assert exported.reason.startswith("a file of the checkpoint could not be read")
    assert "sent/1.message" in exported.reason


def test_offsets_are_exported_as_an_interrupted_start_has_left_them(
    quiet: Folder, tmp_path: Path
) -> None:
    """A start that was killed while it changed the ingresses has written the new offsets only beside their order."""
    log, file = CommitLog(quiet), tmp_path / "state.parquet"
    former, _ = log.end_offsets(log.newest())
    new = {"others": {"0": 3}}
    rewriting = {batch: [new, log.end_offsets(batch)[-1]] for batch in log.planned_batches()}
    IngressOrder(["test/other"], {"test/commands": former}, {}, rewriting).write(quiet)

    export_state(quiet, file)

    facts = json.loads(pq.read_schema(file).metadata[b"statefun"])
    assert facts["beginning"]["ends"] == {"test/other": new}
    assert facts["beginning"]["removed"] == {"test/commands": former}


@pytest.mark.spark
def test_an_imported_checkpoint_knows_how_many_messages_wait(quiet: Folder, tmp_path: Path) -> None:
    """The messages wait in the exported states, and later micro-batches take them off this number."""
    waits = Outcome(waiting_bytes={"test.fns/account": 400}, waiting_messages=3)
    WaitingGauge(quiet).add(2, [waits])
    file, copy = tmp_path / "state.parquet", Folder.at(tmp_path / "copy")
    assert not export_state(quiet, file).reason

    import_state(file, copy, 1)

    assert WaitingGauge(copy).messages == 3
    ends = Outcome(waiting_bytes={"test.fns/account": -400}, waiting_messages=-3)
    WaitingGauge(copy).add(2, [ends])
    assert WaitingGauge(copy).messages == 0


@pytest.mark.spark
def test_a_file_of_any_name_can_be_imported(quiet: Folder, tmp_path: Path) -> None:
    """What ``export`` has written under a name, ``import`` reads under this name, with all of its rows."""
    file, copy = tmp_path / "_state {a,b} [1] * %20 ?#é.parquet", tmp_path / "copy"
    assert not export_state(quiet, file).reason

    import_state(file, Folder.at(copy), 1)

    assert all_rows(copy) == with_state(quiet, None, dict)


def test_other_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that are missing, damaged, or written by something else; so is a checkpoint that is none."""
    other, damaged = tmp_path / "other.parquet", tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"key": [b""]}), other)
    damaged.write_bytes(b"PAR1")
    new = tmp_path / "new"

    for name in (tmp_path / "none.parquet", other, damaged):
        assert main(["state", "import", str(name), str(new)]) == 1
    assert main(["state", "export", str(new), str(tmp_path / "file.parquet")]) == 1

    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"statefun: [SF100] there is no file {tmp_path / 'none.parquet'}: ")
    for line, name in zip(lines[1:3], (other, damaged), strict=True):
        assert f"{name} was not written by 'statefun state export', or is damaged" in line
    assert lines[3].startswith(f"statefun: [SF100] there is no checkpoint at {new};")
    assert not new.exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
