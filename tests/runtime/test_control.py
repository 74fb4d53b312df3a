# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from harness import wait

from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import checkpoint_lock, unlocked
from statefun.runtime.checkpoint.orders import ORDER_FILE, Order, Orders, write_order
from statefun.runtime.checkpoint.pauses import PAUSED_FILE, Parts, Paused, write_paused
from statefun.runtime.control import Control, RunEnding
from statefun.runtime.settings import Settings
from statefun.sdk.errors import CheckpointError
from statefun.sdk.functions import StatefulFunctions


@pytest.mark.parametrize("lock", [checkpoint_lock, unlocked])
def test_an_order_of_an_earlier_run_is_dropped(
    tmp_path: Path, lock: Callable[[Folder], AbstractContextManager[Folder]]
) -> None:
    """Also a damaged one; otherwise the next start would end at once, or warn of it."""
    folder, content = Folder.at(tmp_path), b"stop"
    for _ in range(2):
        (tmp_path / ORDER_FILE).write_bytes(content)
        os.utime(tmp_path / ORDER_FILE, ns=(0, time.time_ns() - 10**9))
        with lock(folder):
            assert Orders(folder).next() is None
            write_order(folder, Order.STOP)
            content = folder.read(ORDER_FILE)


def test_an_order_is_obeyed_that_was_given_before_the_first_look(tmp_path: Path) -> None:
    """A command may find the lock of the run before the run looks for orders."""
    folder = Folder.at(tmp_path)
    with checkpoint_lock(folder):
        write_order(folder, Order.STOP)
        orders = Orders(folder)

        assert orders.next() is Order.STOP
        assert orders.next() is None


def test_an_order_in_a_store_is_for_the_owner_of_the_lease(store: Folder) -> None:
    """Its time is compared with that of the lease, as the store tells them."""
    with checkpoint_lock(store) as owned:
        write_order(store, Order.STOP)
        assert Orders(owned).next() is Order.STOP
    time.sleep(1)  # stores have times in seconds
    with checkpoint_lock(store) as owned:
        assert Orders(owned).next() is None


def test_an_order_ends_with_its_run(tmp_path: Path) -> None:
    """Otherwise it would be one to the next run if the clock of the machine were set back."""
    folder, control = Folder.at(tmp_path), Control()
    with checkpoint_lock(folder), control.obeying(folder):
        write_order(folder, Order.STOP)
        wait(control.stopping.is_set)

    assert not (tmp_path / ORDER_FILE).exists()


def test_orders_are_obeyed_after_one_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says once what is wrong."""
    control, folder = Control(), Folder.at(tmp_path)
    with caplog.at_level(logging.WARNING), control.obeying(folder):
        (tmp_path / ORDER_FILE).write_bytes(b"stop")
        wait(lambda: ORDER_FILE in caplog.text)
        write_order(folder, Order.STOP)
        wait(control.stopping.is_set)
    assert control.ending is RunEnding.STOP
    assert caplog.text.count("cannot be obeyed") == 1


def test_a_signal_counts_more_than_orders() -> None:
    """An application that was to restart ends if it gets a signal, too, and not the other way round."""
    control = Control()

    for ending in (RunEnding.RESTART, RunEnding.SIGNAL, RunEnding.STOP):
        control.end(ending)

    assert control.ending is RunEnding.SIGNAL
    assert not control.is_restarted()


def test_a_signal_during_a_restart_ends_the_application() -> None:
    """Its handler may run while the restart begins, in the thread that has the lock."""
    control = Control()
    control.end(RunEnding.RESTART)

    class Interrupted(threading.Event):
        def clear(self) -> None:
            super().clear()
            control.end(RunEnding.SIGNAL)

    control.stopping = Interrupted()

    assert not control.is_restarted()
    assert control.ending is RunEnding.SIGNAL
    assert control.stopping.is_set()


def test_a_restart_takes_back_an_order_to_drain(tmp_path: Path) -> None:
    """The new run reads again."""
    control = Control()
    with control.obeying(Folder.at(tmp_path)):
        control.obey(Order.DRAIN)
        assert not control.reads("t/in")

        control.obey(Order.RESTART)

        assert control.is_restarted()
        assert control.reads("t/in")


def test_an_order_to_drain_that_follows_a_restart_counts(tmp_path: Path) -> None:
    """A run takes seconds to end: what is ordered meanwhile is for the next run, as the command has said."""
    control = Control()
    with control.obeying(Folder.at(tmp_path)):
        control.obey(Order.RESTART)
        control.obey(Order.DRAIN)  # while the run ends

        assert control.is_restarted()
        assert not control.reads("t/in")
        assert control.may_end_draining()


@pytest.mark.parametrize(
    ("paused", "may_end"),
    [
        (Paused(), True),
        (Paused(ingresses=frozenset({"t/in"})), True),
        (Paused(egresses=frozenset({"t/out"})), False),
        (Paused(application=True), False),
    ],
)
def test_draining_waits_for_what_must_go_on(
    tmp_path: Path, paused: Paused, *, may_end: bool
) -> None:
    """A part may be paused after the order: then not everything can be delivered and published."""
    folder, control = Folder.at(tmp_path), Control()
    write_paused(folder, Parts(), paused)
    with control.obeying(folder):
        control.obey(Order.DRAIN)

        assert control.may_end_draining() is may_end


def test_a_start_that_cannot_read_what_is_paused_names_the_checkpoint(tmp_path: Path) -> None:
    """It is one line, and no traceback."""
    (tmp_path / PAUSED_FILE).mkdir()
    functions, settings = StatefulFunctions(), Settings.resolve({}, None, checkpoint=tmp_path)
    functions.register("t/greet", lambda _ctx, _message: None)
    module = parse_module("kind: io.statefun.playground.v1/ingress\nspec: {port: 8090}")
    application = Application(module, functions, settings)

    with pytest.raises(CheckpointError) as caught:
        application.run()

    assert caught.value.message.startswith(f"checkpoint {tmp_path} cannot be used: [Errno 21] ")
