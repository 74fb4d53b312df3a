# SPDX-License-Identifier: Apache-2.0
"""The world that survives a driver; its truth are the committed micro-batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import attrs

from simulation.chaos import Chaos
from simulation.cluster import Broker
from simulation.disk import Disk, MemoryFolder
from statefun.runtime.checkpoint.commit_log import CommitLog

if TYPE_CHECKING:
    from simulation.elsewhere import Server
    from simulation.spark import Engine

EXACTLY_ONCE = ("a/exactly", "b/exactly")
AT_LEAST_ONCE = "c/at-least"
PARTITIONS = 3
"""Of the state."""
POISON = "!"
"""The last character of the names of messages with which a server goes down."""
_WITH_ENDPOINT = 0.12
"""How many worlds have a function elsewhere."""
_FAR_RECORDS = (12, 12, 50)
"""Limits of the number of records for that function; a world has one of them."""
_WITH_CALLS = 0.12
"""How many worlds have calls that leave their micro-batches."""
_WITH_ENDS = 0.3
"""How many worlds have processes that end in order."""
_WITH_CHANGES = 0.3
"""How many of the worlds with such calls have a coroutine function that is a plain one in some runs."""
_WITH_EXPIRY = 0.12
"""How many worlds have values that expire."""
_BOTH = 0.4
"""How many of the worlds with a function elsewhere have such calls."""
_SLOW_RECORDS = (4, 12, 30)
"""Limits of the number of records for functions with such calls."""
_BATCH_ROWS = (1, 3, 1000, 1000)
FAR = (1, 2, 3)
"""The ids of the function elsewhere: one for each partition."""
SLOW = (1, 2, 3)
"""The ids of the coroutine function with state."""
STATELESS = (b"/relay", b"/swift")
"""The ends of the keys of functions without state: these may run at several places at once."""


@attrs.frozen
class Sent:
    """A message that a function has sent."""

    uid: str
    sender: bytes
    target: bytes
    batch: int
    reading: int
    """How many readings of the driver's clock there were before."""
    due: int = 0
    """When it is due, by the driver's clock as the task continues it; 0 if at once."""
    floor: int = 0
    """The time of the driver's clock before which it must not be delivered."""
    token: bool = False
    """Whether it can be cancelled, by its uid."""


@attrs.frozen
class Received:
    """A message, or a record of the ingress, that a function was invoked with."""

    uid: str
    caller: bytes
    """Empty for a record."""
    target: bytes
    reading: int


@attrs.frozen
class Cancelled:
    """A request to drop a delayed message."""

    uid: str
    reading: int
    is_sure: bool
    """Whether the message was sent before, and must not be delivered if it was not due yet."""


@attrs.define
class Journal:
    """The actions of functions in a task."""

    sent: list[Sent] = attrs.field(factory=list)
    received: list[Received] = attrs.field(factory=list)
    cancelled: list[Cancelled] = attrs.field(factory=list)
    egress: list[tuple[str, bytes]] = attrs.field(factory=list)
    lost: list[str] = attrs.field(factory=list)
    """The first messages of calls whose processes were lost, for each loss that counts."""
    failed: list[str] = attrs.field(factory=list)
    """The messages that have failed for that reason."""

    def add(self, other: Journal) -> None:
        """Add later actions."""
        self.sent += other.sent
        self.received += other.received
        self.cancelled += other.cancelled
        self.egress += other.egress
        self.lost += other.lost
        self.failed += other.failed


@attrs.define
class Attempt:
    """An attempt at a micro-batch."""

    batch: int
    state: dict[bytes, bytes]
    """By address, as the attempt leaves it."""
    journals: dict[int, Journal] = attrs.field(factory=dict)
    """By state partition."""
    failed: int = 0
    """How many messages were skipped."""


Attempts = dict[int, Attempt]
"""The committed actions, by micro-batch."""


def journals(attempts: Attempts) -> Iterator[tuple[int, Journal]]:
    """Yield the journals of committed attempts with their state partitions, in order."""
    for batch in sorted(attempts):
        yield from sorted(attempts[batch].journals.items())


@attrs.define
class Losses:
    """The calls that were lost because the query has ended with their processes."""

    possible: set[str] = attrs.field(factory=set)
    """The processes that may have been the reason."""
    certain: dict[str, bool] = attrs.field(factory=dict)
    """The calls of which the driver has known that, before it ended; and whether they were known to run again."""


@attrs.define
class History:
    """A checkpoint, and its committed history."""

    disk: Disk = attrs.field(factory=Disk)
    attempts: Attempts = attrs.field(factory=dict)
    jvm: Engine | None = None
    """The remains of a driver that has ended."""
    server: Server | None = None
    """With the function that is elsewhere."""
    losses: Losses = attrs.field(factory=Losses)

    def copy(self) -> History:
        """Return another one, which goes its own way from now on."""
        losses = Losses(set(self.losses.possible), dict(self.losses.certain))
        return History(self.disk.copy(), dict(self.attempts), losses=losses)

    def folder(self, chaos: Chaos) -> MemoryFolder:
        """Return the checkpoint."""
        return MemoryFolder("/c", self.disk, chaos)


@attrs.define
class World:
    """Whatever there is."""

    chaos: Chaos
    broker: Broker
    records: list[bytes]
    """The records of the ingress: their targets."""
    names: list[str]
    """The names of the records."""
    limits: random.Random
    """Chooses limits, and what concerns the function elsewhere."""
    has_endpoint: bool
    """Whether there is a function elsewhere."""
    poisonous: float
    """How likely a message to it takes its server down."""
    batch_rows: int
    """The most rows of a task's Arrow batch, which may end within an address."""
    calls: random.Random
    """Chooses the faults of calls that leave their micro-batches."""
    ends: random.Random
    """Chooses the processes that end in order."""
    has_ends: bool
    """Whether any do."""
    has_calls: bool
    """Whether calls leave their micro-batches."""
    changes: random.Random
    """Chooses the runs in which a coroutine function is a plain one."""
    has_changes: bool
    """Whether there are such runs."""
    expiry: random.Random
    """Chooses the values that expire."""
    has_expiry: bool
    """Whether there are any."""
    leaves: float
    """How likely a call leaves."""
    losses: float
    """How likely a worker process is lost, or a call ends without a result."""
    speed: float
    """How likely the driver gets a report at each look."""
    here: History = attrs.field(factory=History)
    copy: History | None = None
    """Another copy of the checkpoint."""
    histories: list[Attempts] = attrs.field(factory=list)
    """All that is or was true somewhere."""
    zombies: list[Callable[[], object]] = attrs.field(factory=list)
    """The remains of replaced drivers and tasks; each can take a step."""
    has_troubles: bool = False
    """Whether anything has happened for which records may come again at least once."""
    is_haunted: bool = False
    """Whether it is one of these that acts now."""
    in_task: bool = False
    """Whether it is a task that publishes now."""
    wrong: str = ""
    """What was wrong before the end."""
    jobs: int = 0
    """How many have published since something was published."""

    @property
    def has_coroutines(self) -> bool:
        """Whether there are calls that are awaited, and messages that wait for such calls."""
        return self.has_endpoint or self.has_calls

    @classmethod
    def of(cls, seed: int) -> World:
        """Make a world."""
        chaos = Chaos(seed)
        generator = chaos.random
        count = generator.randrange(1, 6)
        records = [b"%d\0t.fns/a" % generator.randrange(2) for _ in range(count)]
        own = random.Random(f"elsewhere {seed}")
        has_endpoint = own.random() < _WITH_ENDPOINT
        if has_endpoint:
            count = own.randrange(own.choice(_FAR_RECORDS))
            records += [b"%d\0t.fns/far" % own.choice(FAR) for _ in range(count)]
            own.shuffle(records)
        calls = random.Random(f"calls {seed}")
        has_calls = calls.random() < (_BOTH if has_endpoint else _WITH_CALLS)
        if has_calls:
            count = calls.randrange(1, calls.choice(_SLOW_RECORDS))
            records += [b"%d\0t.fns/slow" % calls.choice(SLOW) for _ in range(count)]
            calls.shuffle(records)
        poisonous = own.choice([0, 0.15])
        names = [
            f"r{number}{POISON * (b'/far' in target and own.random() < poisonous)}"
            for number, target in enumerate(records)
        ]
        ends = random.Random(f"ends {seed}")
        changes = random.Random(f"changing {seed}")
        expiry = random.Random(f"expiry {seed}")
        rows = random.Random(f"Arrow {seed}").choice(_BATCH_ROWS)
        has_changes = has_calls and changes.random() < _WITH_CHANGES
        world = cls(
            chaos,
            Broker(chaos),
            records,
            names,
            own,
            has_endpoint,
            poisonous / 3,
            rows,
            calls,
            ends,
            ends.random() < _WITH_ENDS,
            has_calls,
            changes,
            has_changes,
            expiry,
            expiry.random() < _WITH_EXPIRY,
            leaves=calls.choice([0.2, 0.6, 1]),
            losses=calls.choice([0, 0.05, 0.3]),
            speed=calls.choice([0.1, 0.5, 0.9]),
        )
        if has_changes:  # so that calls are under way, and messages wait, when a run ends
            world.leaves, world.speed = 1, 0.05
        world.histories.append(world.here.attempts)
        return world

    def make_copy(self) -> None:
        """Copy the checkpoint."""
        self.copy = self.here.copy()
        self.histories.append(self.copy.attempts)

    def take_copy(self) -> None:
        """Put the copy into the checkpoint's place; the other may come back."""
        assert self.copy is not None
        here = self.here
        self.here, self.copy = self.copy, None
        if self.chaos.random.random() < 0.5:
            self.copy = here

    def pass_outage(self) -> None:
        """Let something happen to the machine between two drivers, or nothing."""
        chaos = self.chaos
        if chaos.random.random() < chaos.power_cuts:
            self.lose_power()
        elif chaos.jumps and chaos.random.random() < 0.1:
            chaos.clock.jump()

    def lose_power(self) -> None:
        """Crash the machine, which loses unsynced content."""
        here, chaos = self.here, self.chaos
        here.jvm = None
        here.disk.lose_power(chaos.random, chaos.rot)
        newest = CommitLog(here.folder(chaos)).newest()
        if max(here.attempts, default=-1) > newest:
            self.histories.append(dict(here.attempts))
            for batch in [batch for batch in here.attempts if batch > newest]:
                del here.attempts[batch]
