# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
from datetime import datetime, timezone
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.engine.repairs import DELETE, SET
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.repair_log import Change, RepairLog, repairs_after
from statefun.sdk.errors import CheckpointError

NOW = datetime(2026, 5, 4, 12, tzinfo=timezone.utc)


def stored(name: str, value: bytes, expires: int = 0) -> AddressState.Value:
    """Return a stored value."""
    return AddressState.Value(name=name, typename="t/T", value=value, expires=expires)


def change(name: str, before: bytes | None, after: bytes | None) -> Change:
    """Return a change of a value of Ada."""
    old, new = (None if each is None else stored(name, each, 7) for each in (before, after))
    return Change(b"Ada\0t/f", name, old, new)


values = st.none() | st.binary(max_size=8)
all_changes = st.lists(
    st.builds(change, st.text(max_size=3), values, values), min_size=1, max_size=4
)


@given(st.lists(all_changes, max_size=4), st.integers(0, 16))
def test_changes_are_numbered_over_restarts(
    tmp_path_factory: pytest.TempPathFactory, repairs: list[list[Change]], after: int
) -> None:
    """Each change has the next number, and what was accepted is read again as it was."""
    checkpoint = Folder.at(tmp_path_factory.mktemp("repairs"))
    for made in repairs:
        RepairLog(checkpoint).accept("ada@host", NOW, made)

    log = RepairLog(checkpoint)

    everything = [each for made in repairs for each in made]
    assert [each for repair in log.repairs() for each in repair.changes] == everything
    assert log.readable(0) == len(everything)
    messages = log.messages(after, len(everything))
    assert [each.number for each in messages] == [*range(after + 1, len(everything) + 1)]
    for message in messages:
        made_change = everything[message.number - 1]
        if made_change.after is None:
            assert (message.typename, message.value.decode()) == (DELETE, made_change.name)
        else:
            assert message.typename == SET
            assert AddressState.Value.FromString(message.value) == made_change.after


def test_the_log_says_what_waits(tmp_path: Path) -> None:
    """A repair waits until its last change is applied; all of its changes are applied at once."""
    log = RepairLog(Folder.at(tmp_path))
    first = log.accept("ada@host", NOW, [change("a", None, b"1"), change("b", b"1", None)])
    second = log.accept("bob@host", NOW, [change("a", b"1", b"2")])

    assert (first.first, first.last, second.first) == (1, 2, 3)
    assert repairs_after(log.repairs(), 0) == [first, second]
    assert repairs_after(log.repairs(), 2) == [second]
    assert repairs_after(log.repairs(), 3) == []
    log.forget(3)
    assert RepairLog(Folder.at(tmp_path)).repairs() == [first, second], "it is also the log"
    assert not log.is_pending()


def test_a_repair_is_found_among_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the files with the wanted changes are read, also if the first one is in the midst of a repair."""
    folder = Folder.at(tmp_path)
    log = RepairLog(folder)
    for _ in range(10):
        log.accept("ada@host", NOW, [change("a", None, b"1")] * 3)
    reads: list[str] = []
    read = Folder.read

    def noting(place: Folder, name: str) -> bytes:
        reads.append(name)
        return read(place, name)

    monkeypatch.setattr(Folder, "read", noting)

    assert [each.number for each in log.messages(14, 19)] == [15, 16, 17, 18, 19]
    assert reads == ["13", "16", "19"]


def test_a_damaged_repair_is_named(tmp_path: Path) -> None:
    """It is neither skipped nor half applied."""
    RepairLog(Folder.at(tmp_path)).accept("ada@host", NOW, [change("a", None, b"1")])
    file = tmp_path / "repairs" / "1"
    file.write_bytes(file.read_bytes().replace(b"ada", b"eve"))

    with pytest.raises(CheckpointError, match=r"repairs/1 is damaged"):
        RepairLog(Folder.at(tmp_path))


def test_secret_values_stay_until_they_are_applied(tmp_path: Path) -> None:
    """Only the new value is in the file, and only until then; who changed which value when stays for ever."""
    log = RepairLog(Folder.at(tmp_path))
    pin = attrs.evolve(change("pin", b"old-secret", b"new-secret"), is_secret=True)
    log.accept("ada@host", NOW, [pin, change("a", b"before", b"after")])
    log.accept("ada@host", NOW, [pin])

    def contents() -> list[bytes]:
        files = (tmp_path / "repairs" / name for name in ("1", "3"))
        return [file.read_bytes() for file in files]

    def has(secret: bytes) -> list[bool]:
        return [base64.b64encode(secret) in content for content in contents()]

    assert has(b"old-secret") == [False, False]
    assert has(b"new-secret") == [True, True]
    set_, *_ = log.messages(0, 3)
    assert AddressState.Value.FromString(set_.value).value == b"new-secret"

    log.forget(2)

    assert has(b"new-secret") == [False, True]
    first, second = RepairLog(Folder.at(tmp_path)).repairs()
    assert first.changes[0] == attrs.evolve(
        pin, before=stored("pin", b"", 7), after=stored("pin", b"", 7)
    )
    assert first.changes[1] == change("a", b"before", b"after")
    assert second.changes[0].after == pin.after
    written = contents()
    log.forget(2)
    assert contents() == written
