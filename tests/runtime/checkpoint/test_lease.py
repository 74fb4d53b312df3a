# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import attrs
import pytest

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lease import Lease, LeaseTimes, check_store, is_renewed, take
from statefun.runtime.checkpoint.lock import checkpoint_lock
from statefun.sdk.errors import CheckpointError, ConfigurationError

QUICK = LeaseTimes(
    renewal=timedelta(milliseconds=50),
    expiry=timedelta(seconds=1),
    lapse=timedelta(seconds=2),
    look=timedelta(milliseconds=100),
)
AT_ONCE = timedelta(0)


def test_a_lease_that_is_given_up_is_free_at_once(store: Folder) -> None:
    """Epochs follow each other, and the folder of a former owner takes no more changes."""
    with checkpoint_lock(store, AT_ONCE) as first:
        first.write("a", b"first")
    with checkpoint_lock(store, AT_ONCE) as second:
        with pytest.raises(CheckpointError, match="is no longer in use by this run"):
            first.child("b").write("c", b"late")
        second.write("a", b"second")

    assert store.read("a") == b"second"
    assert {"epoch-1", "epoch-2"} <= set(store.child("lease").names())


def test_an_owner_keeps_others_away_while_it_renews_its_lease(store: Folder) -> None:
    """The error names the process and its host."""
    with (
        checkpoint_lock(store, AT_ONCE, QUICK) as owned,
        pytest.raises(CheckpointError, match=r"is in use by process \d+ on "),
        checkpoint_lock(store, AT_ONCE, QUICK),
    ):
        pass
    del owned


def test_a_look_at_a_lease_takes_nothing(store: Folder) -> None:
    """It tells whether the owner renews it; an owner that does not for a while goes on all the same."""
    patient = attrs.evolve(QUICK, renewal=timedelta(seconds=2))
    assert not is_renewed(store, QUICK)
    with checkpoint_lock(store, AT_ONCE, QUICK):
        assert is_renewed(store, patient)
    assert not is_renewed(store, QUICK)
    lease = take(store, AT_ONCE, QUICK)

    assert not is_renewed(store, QUICK)

    lease.check()
    assert lease.epoch == 2


def test_an_owner_that_was_stopped_changes_nothing_more(store: Folder) -> None:
    """Another driver takes over after the lapse; then each change and renewal of the first one fails."""
    clock = Clock()
    lease = take(store, AT_ONCE, QUICK, clock.time, clock.sleep)
    first = store.guarded(lease.check)
    first.write("a", b"first")

    second = take(store, AT_ONCE, QUICK, clock.time, clock.sleep)
    store.guarded(second.check).write("a", b"second")

    assert clock.now >= QUICK.lapse.total_seconds()
    changes: list[Callable[[], object]] = [
        lambda: first.write("a", b"late"),
        lambda: first.create("b", b"late"),
        lambda: first.remove("a"),
        first.remove_all,
        lambda: first.move("a", "b"),
        lease.renew,
    ]
    for change in changes:
        with pytest.raises(CheckpointError, match="another driver has taken over"):
            change()
    assert store.read("a") == b"second"
    assert second.epoch == lease.epoch + 1


def test_an_error_of_an_owner_that_was_stopped_says_that_another_driver_has_taken_over(
    store: Folder,
) -> None:
    """It may have read a file that the other driver has deleted, and a copy of the checkpoint would be of no use."""
    stopped = attrs.evolve(QUICK, renewal=timedelta(hours=1), expiry=timedelta(0))
    clock = Clock()

    def miss_a_file(*, is_overtaken: bool) -> None:
        with checkpoint_lock(store, QUICK.lapse, stopped):
            if is_overtaken:
                take(store, AT_ONCE, QUICK, clock.time, clock.sleep)
            raise CheckpointError("a file is missing; restore the checkpoint from a copy")

    with pytest.raises(CheckpointError, match="a file is missing"):
        miss_a_file(is_overtaken=False)
    with pytest.raises(CheckpointError, match="another driver has taken over"):
        miss_a_file(is_overtaken=True)


def test_an_owner_that_was_stopped_goes_on_if_no_other_driver_has_begun(store: Folder) -> None:
    """A lease that has expired is renewed before the next change."""
    clock = Clock()
    lease = take(store, AT_ONCE, QUICK, clock.time, clock.sleep)
    clock.sleep(3600)

    store.guarded(lease.check).write("a", b"late, and alone")

    assert store.read("a") == b"late, and alone"


def test_of_drivers_that_start_at_the_same_time_one_wins(store: Folder) -> None:
    """Also on a store that is used for the first time."""

    def start(_: int) -> Lease | CheckpointError:
        try:
            return take(store, AT_ONCE, QUICK)
        except CheckpointError as error:
            return error

    with ThreadPoolExecutor() as threads:
        leases = [each for each in threads.map(start, range(4)) if isinstance(each, Lease)]

    assert len(leases) == 1


def test_a_store_that_ignores_conditions_is_refused(
    store: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written besides the objects of the check, which are deleted."""

    def create(self: Folder, name: str, content: bytes) -> bool:
        self.write(name, content)
        return True

    monkeypatch.setattr(Folder, "create", create)
    with pytest.raises(
        ConfigurationError, match="replaces an existing object if it is asked to create the object"
    ):
        check_store(store)

    assert store.names() == []


class Clock:
    """A clock that only sleeping moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        """Return the seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Move on."""
        self.now += seconds


class World:
    """Drivers on one store, each with a clock of its own; one takes a step at a time, in a random order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        over = json.dumps({"owner": "-", "holder": "-", "count": 1, "is_over": True}).encode()
        # A first epoch has ended: the check of a new store has threads of its own.
        self.objects = {"epoch-1": over, "beat-1": over}
        self.now = 0.0
        self.newest = 0
        """The newest epoch whose owner may change files."""
        self._turn = threading.Condition()
        self._sleepers: dict[int, float] = {}
        self._running: int | None = None

    def run(self, drivers: int) -> None:
        """Run drivers to their ends."""
        with ThreadPoolExecutor(drivers) as threads:
            self._sleepers = {number: self.random.uniform(0, 5) for number in range(drivers)}
            futures = [threads.submit(self._drive, number) for number in range(drivers)]
            self._wake()
            for future in futures:
                future.result()

    def _wake(self) -> None:
        with self._turn:
            if self._sleepers:
                number = min(self._sleepers, key=self._sleepers.__getitem__)
                self.now = max(self.now, self._sleepers.pop(number))
                self._running = number
            self._turn.notify_all()

    def sleep(self, number: int, seconds: float) -> None:
        """Let others go on for some time."""
        with self._turn:
            self._sleepers[number] = self.now + seconds
        self._wake()
        with self._turn:
            self._turn.wait_for(lambda: self._running == number)

    def _drive(self, number: int) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._running == number)
        offset, rate = self.random.uniform(0, 1e6), self.random.uniform(0.98, 1.02)
        folder = StoreFolder(self, number)

        def sleep(seconds: float) -> None:
            self.sleep(number, seconds / rate)

        def clock() -> float:
            return offset + self.now * rate

        try:
            lease = take(folder, timedelta(seconds=60), LeaseTimes(), clock, sleep)  # type: ignore[arg-type] # as a folder
            assert lease.epoch > self.newest, "two owners may change files"
            self.newest = lease.epoch
            for _ in range(self.random.randint(0, 8)):
                lease.check()
                assert self.newest == lease.epoch, "two owners may change files"
                # The process is stopped now and then, for minutes.
                sleep(self.random.choice([1, 3, 3, 3, 10, 13, 24, 26, 200]))
                if self.random.random() < 0.7:
                    lease.renew()
            if self.random.random() < 0.5:
                lease.give_up()
        except CheckpointError:
            pass
        finally:
            self._wake()


class StoreFolder:
    """The folder ``lease`` in a world; requests take time before and after they have an effect."""

    shown = "simulated"

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number

    def child(self, _name: str) -> StoreFolder:
        """Return the same folder: a checkpoint has no other one here."""
        return self

    def _request(self) -> None:
        # Up to the time after which a request is given up.
        times = [0.01, 0.02, 0.05, 1, 4.9]
        self._world.sleep(self._number, self._world.random.choice(times))

    def names(self) -> list[str]:
        """Return the names of all objects."""
        self._request()
        return sorted(self._world.objects)

    def has(self, name: str) -> bool:
        """Return whether there is an object."""
        self._request()
        found = name in self._world.objects
        self._request()
        return found

    def read(self, name: str) -> bytes:
        """Return an object."""
        self._request()
        content = self._world.objects.get(name)
        self._request()
        if content is None:
            raise FileNotFoundError(name)
        return content

    def write(self, name: str, content: bytes) -> None:
        """Replace an object."""
        self._request()
        self._world.objects[name] = content
        self._request()

    def create(self, name: str, content: bytes) -> bool:
        """Create an object if there is none."""
        self._request()
        present = self._world.objects.setdefault(name, content)
        self._request()
        return present == content

    def remove(self, name: str) -> None:
        """Delete an object."""
        self._request()
        self._world.objects.pop(name, None)


@pytest.mark.parametrize("seed", range(25))
def test_at_no_time_two_owners_may_change_files(seed: int) -> None:
    """Whatever drivers are stopped, answers are late and clocks are wrong."""
    World(seed).run(3)


def test_with_a_lapse_that_is_too_short_two_owners_may_change_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The simulation finds it if a driver waits for less than a lease lasts."""
    impatient = LeaseTimes(lapse=timedelta(seconds=2), look=timedelta(seconds=1))
    monkeypatch.setattr(f"{__name__}.LeaseTimes", lambda: impatient)

    def find() -> None:
        for seed in range(100):
            World(seed).run(3)

    with pytest.raises(AssertionError, match="two owners"):
        find()
