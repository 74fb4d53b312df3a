# SPDX-License-Identifier: Apache-2.0
"""Publishing, simulated: real outbox, commit log and lanes on a model of disk and broker.

A seeded scheduler lets the driver crash between any two steps, loses, delays and reorders
requests and replies, lets drivers that are long replaced go on publishing, puts back older copies
of the checkpoint, and lets another driver run on a copy in the midst of anything. What functions
send is different at every attempt. At the end a read-committed reader has to see exactly what the
committed batches say, in order; or, of an application that was refused, a part of what they say in
one of the checkpoint's histories.

``python tests/simulation.py --seeds 100000`` tries many seeds, ``--seed 7`` one of them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import multiprocessing
import random
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import BinaryIO

import attrs

from statefun.dev.progress import Progress
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.commit_log import CommitLog
from statefun.runtime.effects import EGRESS_SCHEMA, EffectRows, EgressRecord
from statefun.runtime.egress.lane import (
    Cluster,
    Lane,
    LaneBatch,
    Marker,
    UncertainError,
    UndeliveredError,
)
from statefun.runtime.egress.runs import Runs
from statefun.runtime.filesystem import Folder
from statefun.runtime.outbox import Leftovers, Outbox, effect_stream
from statefun.runtime.recovery import Succession
from statefun.runtime.retention import Retention
from statefun.sdk.errors import CheckpointError

EXACTLY_ONCE = ("a/exactly", "b/exactly")
AT_LEAST_ONCE = "c/at-least"
PARTITIONS = 3
"""Of the state."""


class CrashError(BaseException):
    """The driver dies here."""


class Chaos:
    """Decides what goes wrong; the same seed decides the same."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.crashes = self.random.choice([0.0, 0.003, 0.02])
        self.troubles = self.random.choice([0.0, 0.02, 0.2])
        self.asides = self.random.choice([0.0, 0.05])
        self.meanwhile: Callable[[], None] = lambda: None
        """What else may happen between two steps."""
        self._busy = False
        self.active = True

    def step(self) -> None:
        """Be between two steps of the driver."""
        if not self.active or self._busy:
            return
        if self.random.random() < self.crashes:
            raise CrashError
        if self.random.random() < self.asides:
            self._busy = True
            try:
                self.meanwhile()
            finally:
                self._busy = False


class MemoryFolder(Folder):
    """A folder on a disk that survives the driver."""

    def __init__(self, location: str, files: dict[str, bytes], chaos: Chaos) -> None:
        object.__setattr__(self, "location", location)
        self._set(files, chaos)

    def _set(self, files: dict[str, bytes], chaos: Chaos) -> None:
        self.__dict__.update(files=files, chaos=chaos)

    @property
    def _files(self) -> dict[str, bytes]:
        files: dict[str, bytes] = self.__dict__["files"]
        return files

    def _step(self) -> None:
        self.__dict__["chaos"].step()

    def child(self, name: str) -> MemoryFolder:
        """Return a folder inside this one."""
        return MemoryFolder(f"{self.location}/{name}", self._files, self.__dict__["chaos"])

    def names(self) -> list[str]:
        """List what is directly inside."""
        start = f"{self.location}/"
        inside = (path[len(start) :] for path in self._files if path.startswith(start))
        return sorted({name.partition("/")[0] for name in inside})

    def has(self, name: str) -> bool:
        """Tell whether there is such a file."""
        return f"{self.location}/{name}" in self._files

    def open(self, name: str) -> BinaryIO:
        """Open a file."""
        try:
            return io.BytesIO(self._files[f"{self.location}/{name}"])
        except KeyError:
            raise FileNotFoundError(name) from None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or die before or after it."""
        self._step()
        self._files[f"{self.location}/{name}"] = content
        self._step()

    def remove(self, name: str) -> None:
        """Delete a file."""
        self._step()
        self._files.pop(f"{self.location}/{name}", None)
        self._step()

    def remove_all(self) -> None:
        """Delete the files one by one: a crash may leave some."""
        for path in [path for path in self._files if path.startswith(f"{self.location}/")]:
            del self._files[path]
            self._step()


@attrs.define
class Transaction:
    """What is open for a transactional id."""

    records: list[EgressRecord] = attrs.field(factory=list)
    marker: Marker | None = None


class Broker:
    """A cluster: what is written, who may write, and requests that are still on their way."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos = chaos
        self.log: dict[str, list[bytes]] = defaultdict(list)
        """What a read-committed reader sees, by egress."""
        self.markers: dict[str, Marker] = {}
        self.lanes = 0
        """How many lanes the progress topics have markers for."""
        self._epochs: dict[str, int] = defaultdict(int)
        self._open: dict[str, Transaction] = {}
        self._late: deque[Callable[[], object]] = deque()

    def ask(self, request: Callable[[], int | None]) -> int | None:
        """Send a request: it or its reply may be lost, and it may arrive much later."""
        self._chaos.step()
        generator = self._chaos.random
        if generator.random() < 0.3:
            self.deliver_late()
        if self._chaos.active and generator.random() < self._chaos.troubles:
            trouble = generator.randrange(3)
            if trouble == 0:
                raise UncertainError("the request was lost")
            if trouble == 1:
                self._late.append(request)
                raise UncertainError("the request is late")
            request()
            raise UncertainError("the reply was lost")
        result = request()
        self._chaos.step()
        return result

    def deliver_late(self) -> None:
        """Let one of the requests that are on their way arrive, in whatever order."""
        if not self._late:
            return
        generator = self._chaos.random
        self._late.rotate(generator.randrange(len(self._late)))
        with contextlib.suppress(UncertainError):  # nobody hears of it
            self._late.popleft()()

    def deliver_all_late(self) -> None:
        """Let all of them arrive."""
        while self._late:
            self.deliver_late()

    def init(self, id_: str) -> int:
        """Abort what is open, and take no more from whoever had the id before."""
        self._open.pop(id_, None)
        self._epochs[id_] += 1
        return self._epochs[id_]

    def produce(
        self, id_: str, epoch: int, records: Iterable[EgressRecord], marker: Marker | None
    ) -> None:
        """Add to the open transaction."""
        self._check(id_, epoch)
        transaction = self._open.setdefault(id_, Transaction())
        transaction.records.extend(records)
        transaction.marker = marker or transaction.marker

    def commit(self, id_: str, epoch: int) -> None:
        """Make the open transaction visible."""
        self._check(id_, epoch)
        transaction = self._open.pop(id_, Transaction())
        self.log[_egress(id_)].extend(record.value or b"" for record in transaction.records)
        if transaction.marker is not None:
            self.markers[id_] = transaction.marker

    def _check(self, id_: str, epoch: int) -> None:
        if self._epochs[id_] != epoch:
            raise UncertainError("fenced")


class ExactlyOnceModel:
    """The steps of ``ExactlyOnce``, on the model."""

    def __init__(self, broker: Broker, id_: str) -> None:
        self._broker = broker
        self._id = id_
        self._epoch = 0

    def open(self) -> Marker | None:
        """Fence, then read."""
        self._epoch = self._broker.ask(lambda: self._broker.init(self._id)) or 0
        self._broker.ask(lambda: None)  # the read may fail as well
        return self._broker.markers.get(self._id)

    def write(self, records: Iterable[EgressRecord], marker: Marker) -> None:
        """Produce in two requests, and commit."""
        broker, id_, epoch = self._broker, self._id, self._epoch
        sent = list(records)
        half = len(sent) // 2
        broker.ask(lambda: broker.produce(id_, epoch, sent[:half], None))
        broker.ask(lambda: broker.produce(id_, epoch, sent[half:], marker))
        broker.ask(lambda: broker.commit(id_, epoch))

    def close(self) -> None:
        """Nothing is told to the broker."""


class AtLeastOnceModel:
    """The steps of ``AtLeastOnce``, on the model."""

    def __init__(self, broker: Broker, id_: str) -> None:
        self._broker = broker
        self._id = id_

    def open(self) -> Marker | None:
        """Nobody keeps note."""
        return None

    def write(self, records: Iterable[EgressRecord], marker: Marker) -> None:
        """Produce; visible at once."""
        sent = [record.value or b"" for record in records]
        self._broker.ask(lambda: self._broker.log[_egress(self._id)].extend(sent))

    def close(self) -> None:
        """Nothing is told to the broker."""


History = tuple[dict[str, bytes], dict[str, list[bytes]]]
"""A checkpoint, and what committed batches have sent, by egress and state partition."""


@attrs.define
class World:
    """What survives a driver."""

    seed: int
    chaos: Chaos
    broker: Broker
    disk: dict[str, bytes]
    truth: dict[str, list[bytes]]
    """What committed batches have sent, by egress and state partition."""
    copy: History | None = None
    """Another copy of the checkpoint, and what is true there."""
    histories: list[dict[str, list[bytes]]] = attrs.field(factory=list)
    """All that is or was true somewhere."""
    zombies: list[tuple[Lane, deque[LaneBatch]]] = attrs.field(factory=list)
    """Lanes of drivers that were replaced, and what they may still publish, in order."""
    counter: itertools.count[int] = attrs.field(factory=itertools.count)
    """Makes names that are never the same."""

    @classmethod
    def of(cls, seed: int) -> World:
        """Make a world."""
        chaos = Chaos(seed)
        world = cls(seed, chaos, Broker(chaos), {}, defaultdict(list))
        world.histories.append(world.truth)
        return world

    def make_copy(self) -> None:
        """Let somebody copy the checkpoint."""
        truth = defaultdict(list, {name: [*sent] for name, sent in self.truth.items()})
        self.copy = dict(self.disk), truth
        self.histories.append(truth)

    def take_copy(self) -> None:
        """Let somebody put the copy into the checkpoint's place; the other may come back."""
        assert self.copy is not None
        here = self.disk, self.truth
        (self.disk, self.truth), self.copy = self.copy, None
        if self.chaos.random.random() < 0.5:
            self.copy = here


class Driver:
    """What ``Application`` and ``Publisher`` do, step by step."""

    lane_type = Lane
    runs_type = Runs

    def __init__(self, world: World) -> None:
        self._world = world
        self._chaos = world.chaos
        self._checkpoint = MemoryFolder("/c", world.disk, world.chaos)
        self._outbox = Outbox(self._checkpoint)
        self._commit_log = CommitLog(self._checkpoint)
        self._truth = world.truth
        self._run = f"run-{next(world.counter)}"
        self._lane_count = world.chaos.random.choice([1, 1, 2, 3])
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._released: deque[int] = deque()
        self._left: dict[int, set[str]] = {}

    def run(self, batches: int) -> None:
        """Recover, then stage and publish up to the batch before ``batches``."""
        newest = self._commit_log.newest()
        leftovers = self._recover(newest)
        self._retention = Retention(self._checkpoint)
        self._chaos.meanwhile = self._meanwhile
        self._take_over()
        self._retention.start(leftovers)
        if not self._commit_log.query_id():
            self._checkpoint.write("metadata", json.dumps({"id": "query"}).encode())
        for batch in leftovers.unpublished:
            self._release(batch)
        while self._released:
            self._publish_one()
        self._succession = Succession(newest)
        self._next = newest + 1
        while self._next < batches or self._released:
            if self._next < batches and (
                not self._released
                or (len(self._released) < 4 and self._chaos.random.random() < 0.5)
            ):
                self._run_batch()
            else:
                self._publish_one()
            self._maybe_leave()

    def _take_over(self) -> None:
        """Open all lanes, then claim them; on a fresh checkpoint they are claimed when needed."""
        runs = self.runs_type(self._checkpoint, self._run, EXACTLY_ONCE)
        if not self._commit_log.query_id():
            runs.add()
            return
        lanes = [lane for egress in EXACTLY_ONCE for lane in self._make_lanes(egress)]
        for lane in lanes:
            lane.open(runs.earlier)
        publishers = {lane.claim() for lane in lanes}
        runs.add()
        runs.forget_all_but(publishers)

    def _make_lanes(self, egress: str) -> list[Lane]:
        broker = self._world.broker
        broker.lanes = max(broker.lanes, self._lane_count)
        return [self._make_lane(egress, number) for number in range(self._opened_lanes())]

    def _opened_lanes(self) -> int:
        """Return how many lanes are opened before anything runs: all that there ever were."""
        return self._world.broker.lanes

    def _recover(self, newest: int) -> Leftovers:
        return self._outbox.recover(newest)

    def _maybe_leave(self) -> None:
        """Be replaced without knowing it; or let somebody copy the checkpoint."""
        generator, world = self._chaos.random, self._world
        if not self._chaos.active:
            return
        if generator.random() < self._chaos.crashes:
            staged = list(filter(None, map(self._outbox.staged, self._released)))
            for (name, number), lane in self._lanes.items():
                shares = deque(LaneBatch.of(each, name, number) for each in staged)
                world.zombies.append((lane, shares))
            raise CrashError
        if world.copy is None and generator.random() < self._chaos.crashes:
            world.make_copy()

    def _meanwhile(self) -> None:
        """Be at some step of publishing while something else happens."""
        world, generator = self._world, self._chaos.random
        if world.copy is not None and generator.random() < 0.2:
            self._be_rivalled()
        elif world.zombies and generator.random() < 0.5:
            lane, shares = world.zombies.pop(generator.randrange(len(world.zombies)))
            with contextlib.suppress(UndeliveredError, CheckpointError):
                if shares:
                    lane.publish(shares.popleft())
                    world.zombies.append((lane, shares))
        else:
            world.broker.deliver_late()

    def _be_rivalled(self) -> None:
        """Let another driver run on the copy for a while."""
        world = self._world
        assert world.copy is not None
        disk, truth = world.copy
        rival = type(self)(attrs.evolve(world, disk=disk, truth=truth, copy=None))
        with contextlib.suppress(CrashError, UndeliveredError, CheckpointError):
            rival.run(world.chaos.random.randrange(2, 9))
        world.chaos.meanwhile = self._meanwhile

    def _run_batch(self) -> None:
        """Plan, run, stage and commit a batch, as Spark does."""
        batch, generator, world = self._next, self._chaos.random, self._world
        self._checkpoint.child("offsets").write(str(batch), b'v1\n{}\n{"batch": -1, "tick": -1}')
        sent: dict[str, list[bytes]] = defaultdict(list)
        segments = [self._segment(batch, partition, sent) for partition in range(PARTITIONS)]
        segments = [segment for segment in segments if segment.egress]
        is_first = self._succession.check(batch)
        if segments:
            self._outbox.stage(
                Manifest(batch=batch, query_id="query", lanes=self._lane_count, segments=segments)
            )
        elif is_first:
            self._outbox.remove(batch)
        self._chaos.step()
        world.disk[f"/c/commits/{batch}"] = b"v1"
        for name, values in sent.items():
            self._truth[name].extend(values)
        self._chaos.step()
        self._next += 1
        self._release(batch)
        if generator.random() < 0.1:
            self._chaos.step()

    def _segment(self, batch: int, partition: int, sent: dict[str, list[bytes]]) -> Segment:
        """Let functions send something that no other attempt sends."""
        generator, world = self._chaos.random, self._world
        segment = Segment(partition=partition)
        for egress in (*EXACTLY_ONCE, AT_LEAST_ONCE):
            if generator.random() < 0.5:
                continue
            rows = EffectRows(EGRESS_SCHEMA)
            for _ in range(generator.randrange(1, 4)):
                value = f"{partition} {batch} {next(world.counter)}".encode()
                rows.append(EgressRecord("topic", None, value, None))
                sent[f"{egress}/{partition}"].append(value)
            count, content = len(rows), rows.take()
            stream = effect_stream(content, count)
            if generator.random() < 0.1:
                name = f"{partition}-{next(world.counter)}.arrow"
                self._outbox.batch_folder(batch).write(name, content)
                stream = effect_stream(content, count, name)
            segment.egress[egress].CopyFrom(stream)
        return segment

    def _release(self, batch: int) -> None:
        staged = self._outbox.staged(batch)
        self._left[batch] = set()
        if staged is not None:
            self._left[batch].update(*(segment.egress for segment in staged.manifest.segments))
        self._released.append(batch)

    def _publish_one(self) -> None:
        """Let one egress publish its oldest batch, and finish what is done."""
        waiting: dict[str, int] = {}
        for batch in self._released:
            for egress in sorted(self._left[batch]):
                waiting.setdefault(egress, batch)
        if waiting:
            egress, batch = self._chaos.random.choice(sorted(waiting.items()))
            self._publish(egress, batch)
            self._left[batch].discard(egress)
        while self._released and not self._left[self._released[0]]:
            batch = self._released[0]
            staged = self._outbox.staged(batch)
            if staged is not None:
                self._retention.published(staged.manifest)
            self._retention.committed(batch)
            self._released.popleft()

    def _publish(self, egress: str, batch: int) -> None:
        staged = self._outbox.staged(batch)
        assert staged is not None
        for number in range(staged.lanes):
            self._lane(egress, number).publish(LaneBatch.of(staged, egress, number))

    def _lane(self, egress: str, number: int) -> Lane:
        if egress in EXACTLY_ONCE and not any(name == egress for name, _ in self._lanes):
            for lane in self._make_lanes(egress):
                lane.claim()
        if (egress, number) in self._lanes:
            return self._lanes[egress, number]
        if egress in EXACTLY_ONCE:
            self._world.broker.lanes = max(self._world.broker.lanes, number + 1)
        return self._make_lane(egress, number)

    def _make_lane(self, egress: str, number: int) -> Lane:
        broker, id_ = self._world.broker, f"{egress}/{number}"
        connect = self._cluster if egress in EXACTLY_ONCE else AtLeastOnceModel
        self._lanes[egress, number] = self.lane_type(
            egress,
            self._run,
            self._checkpoint,
            lambda: connect(broker, id_),
            self._pause,
            chunk_records=2,
        )
        return self._lanes[egress, number]

    def _cluster(self, broker: Broker, id_: str) -> Cluster:
        return ExactlyOnceModel(broker, id_)

    def _pause(self, reason: str) -> None:
        if self._chaos.active and self._chaos.random.random() < 0.05:
            raise CrashError


def simulate(seed: int, driver: type[Driver] = Driver) -> str:
    """Run one seed; return what is wrong in the end, or nothing."""
    world = World.of(seed)
    batches = world.chaos.random.randrange(2, 9)
    refused = False
    for attempt in itertools.count():
        world.chaos.active = attempt < 30
        world.chaos.meanwhile = lambda: None
        if world.copy is not None and world.chaos.random.random() < 0.3:
            world.take_copy()
        try:
            driver(world).run(batches)
        except CrashError:
            continue
        except CheckpointError:
            refused = True
        break
    world.chaos.active = False
    world.broker.deliver_all_late()
    if not refused and len(world.histories) > 1 and _difference(world):
        # It was replaced while it had nothing more to publish: the next start tells.
        try:
            driver(world).run(batches)
        except CheckpointError:
            refused = True
    return _refusal(world) if refused else _difference(world)


def _refusal(world: World) -> str:
    """Check that a refused checkpoint is not the only one, and that no two of them are mixed."""
    if len(world.histories) == 1:
        return "refused, though there is no copy"
    checkpoint = MemoryFolder("/c", world.disk, world.chaos)
    newest, runs = CommitLog(checkpoint).newest(), {*checkpoint.child("runs").names(), ""}
    if all(
        marker.batch <= newest and {marker.publisher, marker.owner} <= runs
        for marker in world.broker.markers.values()
    ):
        return "refused, though nobody else has been there"
    if not any(_is_part_of(truth, world.broker) for truth in world.histories):
        return f"a mixture of histories: {dict(world.broker.log)}"
    return ""


def _is_part_of(truth: dict[str, list[bytes]], broker: Broker) -> bool:
    """Tell whether nothing is published exactly once but what a history says, in order."""
    for egress in EXACTLY_ONCE:
        for partition, got in _by_sender(broker.log[egress]).items():
            if truth[f"{egress}/{partition}"][: len(got)] != got:
                return False
    return True


def _by_sender(values: Iterable[bytes]) -> dict[str, list[bytes]]:
    seen: dict[str, list[bytes]] = defaultdict(list)
    for value in values:
        seen[value.partition(b" ")[0].decode()].append(value)
    return seen


def _difference(world: World) -> str:
    """Compare what a reader sees with what the committed batches say, sender by sender."""
    for egress in (*EXACTLY_ONCE, AT_LEAST_ONCE):
        seen = _by_sender(world.broker.log[egress])
        for partition in map(str, range(PARTITIONS)):
            expected, got = world.truth[f"{egress}/{partition}"], seen[partition]
            if egress == AT_LEAST_ONCE:  # some may come again, and some of another history
                got = [value for value in dict.fromkeys(got) if value in set(expected)]
                if len(world.histories) > 1:
                    expected, got = sorted(expected), sorted(got)
            if expected != got:
                return f"{egress}, partition {partition}: {expected} became {got}"
    return ""


def _egress(id_: str) -> str:
    return id_.rpartition("/")[0]


def main() -> int:
    """Try many seeds, or show one."""
    parser = argparse.ArgumentParser(description=__doc__, prog="make simulate")
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    if arguments.seed is not None:
        print(simulate(arguments.seed) or "as it should be")  # noqa: T201 - a program
        return 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with Progress(f"simulating {len(seeds)} seeds") as progress, multiprocessing.Pool() as pool:
        for done, (seed, wrong) in enumerate(pool.imap_unordered(_try, seeds, chunksize=50), 1):
            if wrong:
                progress.update("")
                print(f"seed {seed}: {wrong}", file=sys.stderr)  # noqa: T201 - a program
                return 1
            if done % 100 == 0:
                progress.update(f"{done} passed")
    print(f"{len(seeds)} seeds passed: nothing lost, nothing twice, all in order")  # noqa: T201 - a program
    return 0


def _try(seed: int) -> tuple[int, str]:
    return seed, simulate(seed)


if __name__ == "__main__":
    sys.exit(main())
