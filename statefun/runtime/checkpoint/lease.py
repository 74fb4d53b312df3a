# SPDX-License-Identifier: Apache-2.0
"""The lease that lets only one driver use a checkpoint in a store.

``lease/epoch-N`` names the owner of epoch N. It is created only if it does not exist, so that one driver wins each
epoch. The owner renews its lease: it replaces ``lease/beat-N``, and then checks that ``lease/epoch-N+1`` does not exist.
After that, it may change files until :attr:`LeaseTimes.expiry` after it began to renew, by a clock that also runs while the
process is stopped.

Another driver takes over if the beat says that its owner has ended, or if the beat has not changed for
:attr:`LeaseTimes.lapse`, as it sees by its own clock: clocks are never compared. It creates the next epoch and reads the beat
again. If the beat has not changed, the former owner has not renewed its lease since, and finds the new epoch when it
tries. If the beat has changed, the former owner has renewed its lease at the same time, and the new one waits for another
lapse: then that renewal has expired, and every change that was begun before is over.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta

import attrs

from statefun.runtime.checkpoint.boot_clock import now
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.store_errors import StoreError, UnsupportedRequestError
from statefun.sdk.errors import CheckpointError, ConfigurationError, StatefunError

logger = logging.getLogger("statefun")

_EPOCH, _BEAT = "epoch-", "beat-"
_KEPT = 100
"""How many epochs are kept; a driver that is stopped for longer than all of them does not find its own one."""
_RACERS = 8


@attrs.frozen
class LeaseTimes:
    """How often a lease is renewed, and for how long."""

    renewal: timedelta = timedelta(seconds=3)
    """The time between two renewals."""
    expiry: timedelta = timedelta(seconds=12)
    """How long the owner may change files after it began to renew."""
    lapse: timedelta = timedelta(seconds=45)
    """How long another driver waits for a change of the beat. A change that was begun before the expiry is over by
    then: ``lapse`` is longer than ``expiry`` by more than a change takes, with all its requests."""
    look: timedelta = timedelta(seconds=1)
    """The time between two looks at the beat of another driver."""


@attrs.define
class _Beat:
    """The content of ``lease/beat-N``."""

    owner: str
    holder: str
    """The owner for people: the process and the host."""
    count: int = 0
    is_over: bool = False

    def encode(self) -> bytes:
        return json.dumps(attrs.asdict(self)).encode()


class Lease:
    """The lease of one epoch, which this process owns.

    Args:
        checkpoint: the checkpoint.
        epoch: the number of the epoch.
        beat: the beat of the owner.
        times: how often it is renewed, and for how long.
        clock: gives the seconds of a clock that runs while the process is stopped.
    """

    def __init__(
        self,
        checkpoint: Folder,
        epoch: int,
        beat: _Beat,
        times: LeaseTimes,
        clock: Callable[[], float] = now,
    ) -> None:
        self.epoch = epoch
        self._checkpoint = checkpoint
        self._folder = checkpoint.child("lease")
        self._beat = beat
        self._times = times
        self._clock = clock
        self._end = float("-inf")
        """Until when this process may change files without another renewal."""
        self._lost: CheckpointError | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Check that this process still owns the lease; renew it first if it has expired.

        Raises:
            CheckpointError: if another driver has taken over; then also in all later calls.
            StoreError: if the store cannot be reached.
        """
        if self._lost is None and self._clock() < self._end:
            return
        self.renew()

    def renew(self) -> None:
        """Renew the lease; raises as :meth:`check`."""
        with self._lock:
            if self._lost is not None:
                raise self._lost
            begun = self._clock()
            has_expired = begun >= self._end
            self._beat.count += 1
            self._folder.write(f"{_BEAT}{self.epoch}", self._beat.encode())
            # Epochs are deleted in their order, so that either the next epoch is found or the own one is missing.
            if self._folder.has(f"{_EPOCH}{self.epoch + 1}") or (
                has_expired and not self._folder.has(f"{_EPOCH}{self.epoch}")
            ):
                self._lost = CheckpointError(
                    f"another driver has taken over checkpoint {self._checkpoint.shown}, since this one has not renewed "
                    f"its lease for {self._times.lapse.total_seconds():g} s: it was stopped, or could not reach the store; "
                    "nothing is lost, since the other driver goes on after the last committed batch"
                )
                raise self._lost
            self._end = begun + self._times.expiry.total_seconds()

    def give_up(self) -> None:
        """Let another driver take over at once; this process must not change files any more."""
        with self._lock:
            if self._lost is not None:
                return
            self._lost = CheckpointError(
                f"checkpoint {self._checkpoint.shown} is no longer in use by this run, which has ended"
            )
            self._beat.is_over = True
            self._folder.write(f"{_BEAT}{self.epoch}", self._beat.encode())


@contextmanager
def held_lease(checkpoint: Folder, patience: timedelta, times: LeaseTimes) -> Iterator[Folder]:
    """Own the lease of a checkpoint in a store during the block.

    Args:
        checkpoint: the checkpoint.
        patience: how long to wait for the end of a driver that still renews its lease.
        times: how often the lease is renewed, and for how long.

    Yields:
        The checkpoint, which refuses changes once the lease is lost.

    Raises:
        ConfigurationError: if the store does not refuse to create an object that exists.
        CheckpointError: if another driver uses the checkpoint, or has taken it over when the block ends with an error.
    """
    try:
        lease = take(checkpoint, patience, times)
    except StoreError as error:
        raise CheckpointError(
            f"checkpoint {checkpoint.shown} cannot be used: {error.message}"
        ) from error
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(times.renewal.total_seconds()):
            try:
                lease.renew()
            except StoreError as error:
                logger.warning(
                    "the lease of checkpoint %s was not renewed: %s",
                    checkpoint.shown,
                    error.message,
                )
            except CheckpointError:
                return  # the next change of a file raises it

    thread = threading.Thread(target=renew, name="statefun-lease", daemon=True)
    thread.start()
    try:
        yield checkpoint.guarded(lease.check)
    except StatefunError:
        with suppress(StoreError):
            lease.check()  # if it is lost, files may be missing or new because another driver goes on
        raise
    finally:
        ended.set()
        thread.join()
        with suppress(StoreError):  # the next driver then waits until the lease lapses
            lease.give_up()


def take(
    checkpoint: Folder,
    patience: timedelta,
    times: LeaseTimes,
    clock: Callable[[], float] = now,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease:
    """Take the lease of a checkpoint, or wait until its owner has ended or has not renewed it for too long.

    Raises:
        ConfigurationError: if the store does not refuse to create an object that exists.
        CheckpointError: if another driver still renews the lease after ``patience``, or takes it first.
        StoreError: if the store cannot be reached.
    """
    folder = checkpoint.child("lease")
    deadline = clock() + patience.total_seconds()
    epoch = _newest(folder)
    if epoch == 0:
        check_store(folder)
    before = _wait(checkpoint, folder, epoch, deadline, times, clock, sleep)
    beat = _Beat(uuid.uuid4().hex, f"process {os.getpid()} on {socket.gethostname()}")
    epoch += 1
    if not folder.create(f"{_EPOCH}{epoch}", beat.encode()):
        raise _in_use(checkpoint, _read(folder, f"{_EPOCH}{epoch}"))
    if epoch > 1 and _read(folder, f"{_BEAT}{epoch - 1}") != before:
        # Its owner finds the new epoch, or does not renew it in time, and its last changes are over.
        sleep(times.lapse.total_seconds())
    lease = Lease(checkpoint, epoch, beat, times, clock)
    lease.renew()
    for name in (f"{_EPOCH}{epoch - _KEPT}", f"{_BEAT}{epoch - 2}"):
        folder.remove(name)
    return lease


def _wait(  # noqa: PLR0913, PLR0917 - the clock and the sleep of :func:`take`
    checkpoint: Folder,
    folder: Folder,
    epoch: int,
    deadline: float,
    times: LeaseTimes,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> _Beat | None:
    """Wait until the owner of an epoch has ended, or does not renew its lease; return its last beat."""
    if epoch == 0:
        return None
    seen, since, is_logged = _read(folder, f"{_BEAT}{epoch}"), clock(), False
    while seen is None or not seen.is_over:
        if clock() - since >= times.lapse.total_seconds():
            return seen
        if not is_logged:
            holder = seen or _read(folder, f"{_EPOCH}{epoch}")
            logger.info(
                "checkpoint %s is in use by %s, or that driver has ended without giving up its lease; waiting up to %g s",
                checkpoint.shown,
                "another driver" if holder is None else holder.holder,
                max(times.lapse.total_seconds(), deadline - since),
            )
            is_logged = True
        sleep(times.look.total_seconds())
        present = _read(folder, f"{_BEAT}{epoch}")
        if present != seen:
            seen, since = present, clock()
            if clock() >= deadline and not (seen is not None and seen.is_over):
                raise _in_use(checkpoint, seen)
        if folder.has(f"{_EPOCH}{epoch + 1}"):
            raise _in_use(checkpoint, _read(folder, f"{_EPOCH}{epoch + 1}"))
    return seen


def is_renewed(checkpoint: Folder, times: LeaseTimes = LeaseTimes()) -> bool:
    """Return whether a driver renews the lease of a checkpoint; this takes some seconds if it does not.

    Raises:
        StoreError: if the store cannot be reached.
    """
    folder = checkpoint.child("lease")
    epoch = _newest(folder)
    if epoch == 0:
        return False
    seen, end = _read(folder, f"{_BEAT}{epoch}"), now() + 3 * times.renewal.total_seconds()
    while seen is None or not seen.is_over:
        if now() >= end:
            return False
        time.sleep(times.look.total_seconds())
        present = _read(folder, f"{_BEAT}{epoch}")
        if present != seen:
            return present is not None and not present.is_over
    return False


def epoch_began(checkpoint: Folder) -> int:
    """Return when the newest epoch began, in nanoseconds since the epoch of Unix; 0 if that is not known."""
    folder = checkpoint.child("lease")
    facts = folder.facts(f"{_EPOCH}{_newest(folder)}")
    return 0 if facts is None else facts.modified


def check_store(folder: Folder) -> None:
    """Check that a store refuses to create an object that exists, also for requests at the same time.

    Raises:
        ConfigurationError: if it does not.
        StoreError: if the store cannot be reached.
    """
    name, reason = f"probe-{uuid.uuid4().hex}", "replaces an existing object"
    try:
        is_right = folder.create(name, b"first") and not folder.create(name, b"second")
        is_right = is_right and folder.read(name) == b"first"
        with ThreadPoolExecutor(_RACERS) as racers:
            won = racers.map(
                lambda each: folder.create(f"{name}-race", b"%d" % each), range(_RACERS)
            )
            is_right = sum(won) == 1 and is_right
    except UnsupportedRequestError:
        is_right, reason = False, "answers with an error"
    finally:
        for each in (name, f"{name}-race"):
            folder.remove(each)
    if not is_right:
        raise ConfigurationError(
            f"the store of {folder.shown} {reason} if it is asked to create the object only if there is none, so nothing keeps "
            "a second driver away; use another store"
        )


def _newest(folder: Folder) -> int:
    """Return the number of the newest epoch; 0 if there is none."""
    names = (name.removeprefix(_EPOCH) for name in folder.names() if name.startswith(_EPOCH))
    return max((int(number) for number in names if number.isdecimal()), default=0)


def _read(folder: Folder, name: str) -> _Beat | None:
    """Return the content of a file of the lease; None if there is none yet."""
    try:
        return _Beat(**json.loads(folder.read(name)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            f"{folder.shown}/{name} is damaged ({error}); delete it if no driver runs"
        ) from error


def _in_use(checkpoint: Folder, beat: _Beat | None) -> CheckpointError:
    holder = "another driver" if beat is None else beat.holder
    return CheckpointError(
        f"checkpoint {checkpoint.shown} is in use by {holder}; stop that process, or give this application another "
        "checkpoint"
    )
