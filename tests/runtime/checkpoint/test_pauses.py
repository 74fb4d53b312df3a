# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.orders import ORDER_FILE, Order, Orders, write_order
from statefun.runtime.checkpoint.pauses import (
    PAUSED_FILE,
    Parts,
    Pausable,
    Paused,
    Pauses,
    change_paused,
    read_paused,
    rename_paused,
    write_paused,
)
from statefun.sdk.errors import CheckpointError

PARTS = Parts(frozenset({"t/a", "t/b"}), frozenset({"t/out"}))


def test_a_start_keeps_what_is_paused(tmp_path: Path) -> None:
    """Also if the application has other parts than before."""
    folder = Folder.at(tmp_path)
    paused = Paused(ingresses=frozenset({"t/b"}), egresses=frozenset({"t/out"}))
    write_paused(folder, PARTS, paused)

    pauses = Pauses(folder)
    pauses.declare(["t/a"], ["t/out"])

    assert pauses.paused == paused
    assert read_paused(folder) == (Parts(frozenset({"t/a"}), frozenset({"t/out"})), paused)


def test_a_running_application_sees_each_change_once(tmp_path: Path) -> None:
    """Its listeners are called only if something has changed."""
    folder, calls = Folder.at(tmp_path), list[Paused]()
    pauses = Pauses(folder)
    pauses.listen(lambda: calls.append(pauses.paused))
    changes = [
        Paused().changed(Pausable.APPLICATION, "", is_paused=paused) for paused in (True, False)
    ]

    for change in changes:
        write_paused(folder, PARTS, change)
        pauses.look()
        pauses.look()

    assert calls == changes


def test_a_renamed_ingress_stays_paused(tmp_path: Path) -> None:
    """Otherwise a rename would let it read."""
    folder = Folder.at(tmp_path)
    write_paused(folder, PARTS, Paused(ingresses=frozenset({"t/a"})))

    rename_paused(folder, "t/a", "t/c")
    rename_paused(folder, "t/b", "t/d")

    parts = attrs.evolve(PARTS, ingresses=frozenset({"t/b", "t/c"}))
    assert read_paused(folder) == (parts, Paused(ingresses=frozenset({"t/c"})))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """An application must not go on as if nothing were paused."""
    write_paused(Folder.at(tmp_path), PARTS, Paused(application=True))
    file = tmp_path / PAUSED_FILE
    file.write_bytes(file.read_bytes()[:-2])

    with pytest.raises(CheckpointError, match=PAUSED_FILE):
        read_paused(Folder.at(tmp_path))


def test_an_order_is_taken_once(tmp_path: Path) -> None:
    """A later one replaces an earlier one that was not taken; a damaged one is refused."""
    folder = Folder.at(tmp_path)
    write_order(folder, Order.STOP)  # to an earlier run
    orders = Orders(folder)
    assert orders.next() is None

    write_order(folder, Order.RESTART)
    write_order(folder, Order.DRAIN)

    assert [orders.next(), orders.next()] == [Order.DRAIN, None]
    (tmp_path / ORDER_FILE).write_bytes(b"stop")
    with pytest.raises(CheckpointError, match=ORDER_FILE):
        orders.next()


def test_an_order_that_is_given_while_another_one_is_read_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is the same order."""
    folder = Folder.at(tmp_path)
    orders = Orders(folder)
    write_order(folder, Order.RESTART)
    read = Folder.read

    def reading(self: Folder, name: str) -> bytes:
        content = read(self, name)
        write_order(folder, Order.RESTART)
        return content

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "read", reading)
        assert orders.next() is Order.RESTART

    assert [orders.next(), orders.next()] == [Order.RESTART, None]


@pytest.mark.parametrize("kind", ["local", "store"])
def test_no_change_is_lost_if_many_are_made_at_the_same_moment(
    tmp_path: Path, store: Folder, kind: str
) -> None:
    """Each thread reads the file, and writes it with its own change."""
    folder = store if kind == "store" else Folder.at(tmp_path)
    names = [f"t/{number}" for number in range(40)]
    write_paused(folder, Parts(frozenset(names)), Paused())

    def pause(name: str) -> bool:
        return change_paused(folder, Pausable.INGRESS, name, is_paused=True)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(pause, names))

    assert read_paused(folder) == (Parts(frozenset(names)), Paused(ingresses=frozenset(names)))
    assert not pause(names[0])
