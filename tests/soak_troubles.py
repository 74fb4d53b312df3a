# SPDX-License-Identifier: Apache-2.0
"""The troubles of a soaked application: while a driver lives, and at the end of its life.

A driver is a program and a JVM, and either may be killed or frozen alone. The next driver is then
started at once, and meets whatever is left of the last one.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from soak_page import PARTS, resume
from soak_processes import PATIENCE, Driver, send
from soak_run import HOPS, Soak

Trouble = Callable[[Soak, Driver], Driver | None]
Ending = Callable[[Soak, Driver], Driver | None]
"""Either may return the next driver, if it has started that one."""
_Choice = TypeVar("_Choice")
_ENGINE = "[SF900]"
CHECKPOINT = "[SF600]"
_REASONS = (_ENGINE, CHECKPOINT, "[SF500]")
"""Reasons for which drivers may end by themselves: workers, broker, or an earlier driver."""
_FROZEN_JVM = "in use by Spark's JVM"
_MAX_STARTS = 10
_SOON = timedelta(minutes=1)
"""A program whose JVM is gone has nothing to wait for."""
_MANY_ENTRIES = 300
"""For each ledger: 3 MB, of which 2 MiB come back from chunks at once."""
_IDLE = timedelta(seconds=10)
"""After which there may be nothing to be committed."""


def harass(
    soak: Soak,
    lives: int,
    messages: int,
    endings: Sequence[Ending] | None = None,
    troubles: Sequence[Trouble] | None = None,
) -> None:
    """Let drivers of an application live and end so often, each kind of trouble coming in turn.

    Args:
        soak: the application.
        lives: how many drivers; as many as there are endings, or more, to meet each of these.
        messages: how many are sent meanwhile.
        endings: all there are on one machine, if not given.
        troubles: as the endings; all of them come, even if there are more of them than lives.
    """
    ends, dealt = _deck(soak, endings or ENDINGS, lives), _deck(soak, troubles or TROUBLES, lives)
    heir: Driver | None = None
    for life in range(lives):
        soak.send(messages // lives)
        driver = living(soak, heir)
        soak.elsewhere.start()  # entries that wait since an earlier driver come back
        for trouble in dealt[life::lives]:
            _let_work(soak, driver)
            _kill_worker(soak, driver)
            if not driver.is_running:
                driver = living(soak)
            driver = trouble(soak, driver) or driver
        _let_work(soak, driver)
        if not driver.is_running:
            driver = living(soak)
        heir = ends[life](soak, driver)
        if soak.has_chunks():
            soak.done["drivers that ended while chunks waited"] += 1
        soak.check_group_offsets()
    if heir is not None:
        heir.kill()
    for driver in soak.drivers:
        driver.wait_for_all()


def _deck(soak: Soak, kinds: Sequence[_Choice], lives: int) -> list[_Choice]:
    """Return each kind equally often, shuffled: as many as there are lives, or a few more."""
    deck = list(kinds) * -(-lives // len(kinds))
    soak.random.shuffle(deck)
    return deck


def living(soak: Soak, heir: Driver | None = None) -> Driver:
    """Return a driver that has committed a batch, after as many starts as that takes.

    Args:
        soak: the application.
        heir: a driver that was started already, if one was.

    Raises:
        AssertionError: if one ends with anything but an error for which there is a reason.
    """
    for _ in range(_MAX_STARTS):
        soak.send(HOPS)  # or there may be nothing to commit
        before = soak.commits()
        driver, heir = heir or soak.start(), None
        soak.wait_for(driver, lambda: soak.commits() > before)  # noqa: B023 - it is over then
        if driver.is_running:
            return driver
        _note_end(soak, driver)
    raise AssertionError(f"no driver of {_MAX_STARTS} has committed anything: {driver.log()}")


def _let_work(soak: Soak, driver: Driver) -> None:
    """Wait until some more batches are committed, or there are none; and then a random moment."""
    target = soak.commits() + soak.random.randrange(4)
    deadline = time.monotonic() + _IDLE.total_seconds()
    soak.wait_for(driver, lambda: soak.commits() >= target or time.monotonic() > deadline)
    time.sleep(soak.random.uniform(0, 0.5))


def _note_end(soak: Soak, driver: Driver) -> None:
    words = driver.last_words()
    if not words.startswith(_REASONS):
        raise AssertionError(f"ended with {driver.program.returncode}: {driver.log()}")
    if words.startswith(CHECKPOINT) and not any(text in words for text in soak.expected):
        raise AssertionError(f"refused a checkpoint that nothing is wrong with: {driver.log()}")
    soak.done[f"drivers that ended with {words.partition(' ')[0]}"] += 1


def _kill_worker(soak: Soak, driver: Driver) -> None:
    workers = soak.workers(driver)
    if workers and send(soak.random.choice(workers), signal.SIGKILL):
        soak.done["workers killed"] += 1


def _freeze_broker(soak: Soak, _driver: Driver) -> None:
    soak.kafka.pause()
    time.sleep(soak.random.uniform(0, 5))
    soak.kafka.resume()
    soak.done["brokers frozen"] += 1


def kill_broker(soak: Soak, _driver: Driver) -> None:
    """End the broker at once, and start it again."""
    soak.kafka.kill()
    soak.kafka.start()
    soak.done["brokers killed"] += 1


def _freeze_program(soak: Soak, driver: Driver) -> None:
    send(driver.program.pid, signal.SIGSTOP)
    time.sleep(soak.random.uniform(0, 5))
    send(driver.program.pid, signal.SIGCONT)
    soak.done["programs frozen"] += 1


def _freeze_jvm(soak: Soak, driver: Driver) -> None:
    jvm = driver.jvm()
    if jvm and send(jvm, signal.SIGSTOP):
        time.sleep(soak.random.uniform(0, 5))
        send(jvm, signal.SIGCONT)
        soak.done["JVMs frozen"] += 1


def _start_rival(soak: Soak, driver: Driver) -> None:
    """Start a second driver while the program of the first one is frozen: it is refused."""
    send(driver.program.pid, signal.SIGSTOP)
    if not driver.is_running:  # it has ended a moment ago
        return
    _check_refused(soak, soak.start(), "in use by process")
    send(driver.program.pid, signal.SIGCONT)
    soak.done["rivals of frozen programs refused"] += 1


def _take_server_away(soak: Soak, driver: Driver) -> Driver:
    """Stop the server of the ledgers until the next driver, and wait until entries are in chunks."""
    soak.random.choice([soak.elsewhere.kill, soak.elsewhere.freeze])()
    soak.write(_MANY_ENTRIES)
    while not soak.has_chunks():
        soak.wait_for(driver, soak.has_chunks)
        if not driver.is_running:
            driver = living(soak)
    soak.done["servers away until chunks waited"] += 1
    return driver


def _lose_disk(soak: Soak, driver: Driver) -> Driver:
    """Restore the application from a snapshot, which was made while it ran, after its disk is lost."""
    number = len(soak.restores["none"])
    soak.snapshot(f"snapshot-{number}")
    _let_work(soak, driver)
    soak.snapshot(f"snapshot-{number}")
    _let_work(soak, driver)
    driver.kill()
    driver.wait_for_all()
    soak.lose_checkpoint(f"snapshot-{number}")
    successor = living(soak)
    while soak.group_ahead():  # until it has committed its offsets for the first time
        soak.wait_for(successor, lambda: not soak.group_ahead())
        if not successor.is_running:
            successor = living(soak)
    soak.done["disks lost, and snapshots restored"] += 1
    return successor


def _give_orders(soak: Soak, driver: Driver) -> Driver:
    """Pause parts of the application through its admin API, restart it, and let all parts go on, in any order."""
    orders = [("POST", "/restart"), *(("PUT", path) for path in _paths("pause"))]
    soak.random.shuffle(orders)
    further = _paths("resume")
    soak.random.shuffle(further)
    for method, path in [*orders, *(("PUT", path) for path in further)]:
        if not soak.page.order(driver, method, path):
            break
        time.sleep(soak.random.uniform(0, 0.5))
    resume(soak.checkpoint)  # if the driver has ended before
    soak.done["orders given to the admin API"] += 1
    return driver if driver.is_running else living(soak)


def _paths(verb: str) -> list[str]:
    return [f"/{part.value}es/{name}/{verb}" if name else f"/{verb}" for part, name in PARTS]


def toggle_server(soak: Soak) -> None:
    """Start, kill or freeze the server of the ledgers, and send entries to them."""
    soak.random.choice([soak.elsewhere.start, soak.elsewhere.kill, soak.elsewhere.freeze])()
    soak.write(_MANY_ENTRIES)


def kill_all(soak: Soak, driver: Driver) -> None:
    """Leave nothing."""
    driver.kill()
    soak.done["programs and JVMs killed together"] += 1


def kill_program(soak: Soak, driver: Driver) -> None:
    """Leave a JVM, which ends by itself, to the next driver."""
    driver.program.kill()
    driver.program.wait()
    soak.done["programs killed alone"] += 1


def kill_jvm(soak: Soak, driver: Driver) -> None:
    """Leave a program, which ends by itself with an error of statefun."""
    jvm = driver.jvm()
    if not jvm or not send(jvm, signal.SIGKILL):
        raise AssertionError(f"there is no JVM to be killed: {driver.log()}")
    wait_for_end(driver, _SOON)
    if not driver.last_words().startswith(_ENGINE):
        raise AssertionError(f"without its JVM ended with something else: {driver.log()}")
    soak.done["JVMs killed alone"] += 1


def _leave_frozen_jvm(soak: Soak, driver: Driver) -> Driver:
    """Leave a frozen JVM, which goes on or is killed while the next driver waits for its end."""
    jvm = _orphan(driver)
    successor = soak.start()
    time.sleep(soak.random.uniform(0, 8))
    send(jvm, soak.random.choice([signal.SIGCONT, signal.SIGKILL]))
    soak.done["successors that waited for a frozen JVM"] += 1
    return successor


def _leave_jvm_frozen(soak: Soak, driver: Driver) -> None:
    """Leave a frozen JVM until the next driver is refused; then it goes on late, or is killed."""
    jvm = _orphan(driver)
    _check_refused(soak, soak.start(), _FROZEN_JVM)
    soak.done["successors refused for a frozen JVM"] += 1
    send(jvm, soak.random.choice([signal.SIGCONT, signal.SIGKILL]))


def _orphan(driver: Driver) -> int:
    """Freeze the JVM and kill its program alone."""
    jvm = driver.jvm()
    if not jvm or not send(jvm, signal.SIGSTOP):
        raise AssertionError(f"there is no JVM to be frozen: {driver.log()}")
    driver.program.kill()
    driver.program.wait()
    return jvm


def _check_refused(soak: Soak, driver: Driver, reason: str) -> None:
    wait_for_end(driver, PATIENCE)
    words = driver.last_words()
    if not words.startswith(CHECKPOINT) or reason not in words:
        raise AssertionError(f"not refused because it is {reason!r}: {driver.log()}")


def wait_for_end(driver: Driver, patience: timedelta) -> None:
    """Wait for a program that is about to end by itself.

    Raises:
        AssertionError: if it does not.
    """
    try:
        driver.program.wait(patience.total_seconds())
    except subprocess.TimeoutExpired:
        raise AssertionError(f"still running after {patience}: {driver.log()}") from None


TROUBLES: tuple[Trouble, ...] = (
    _freeze_broker,
    kill_broker,
    _freeze_program,
    _freeze_jvm,
    _start_rival,
    _take_server_away,
    _give_orders,
    _lose_disk,
)
"""The troubles that a driver may survive, or from which a successor goes on."""
ENDINGS: tuple[Ending, ...] = (
    kill_all,
    kill_program,
    kill_jvm,
    _leave_frozen_jvm,
    _leave_jvm_frozen,
)
"""How the life of a driver may end."""
