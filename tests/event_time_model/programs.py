# SPDX-License-Identifier: Apache-2.0
"""Random programs; all times are in milliseconds, those of records since the start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import NamedTuple

import attrs

from statefun.windows import Counted, Hopping, Session, Sliding, Tumbling
from statefun.windows.window_kinds import WindowKind

STREAMS, ROWS = "test/streams", "test/rows"
"""The ingresses: one for streams, and one for the rows of a table."""
_LONG = 9 * 86_400_000
_PAUSES = [0] * 8 + [300, 4000, 60_000]
_ROLES = [
    "count",
    "left right",
    "count count left right row left gone",
    "count count count left right",
]
_DELAYED = frozenset({"later", "delay"})


class EventSettings(NamedTuple):
    """The settings of event time of an ingress."""

    out_of_order: int
    idle: int
    max_future: int
    follows: bool


@attrs.frozen
class Step:
    """A record, and what happens after it."""

    number: int
    role: str
    """``count``, ``left``, ``right``, ``row`` or ``gone``, a tombstone of the table."""
    key: str
    partition: int
    time: int
    hops: tuple[str, ...]
    """What the message of the record goes through before it comes to its function."""
    drains: bool
    """Whether it is handled before the next record is written."""
    pause: int
    """By how much the clock moves then."""

    @property
    def topic(self) -> str:
        """The topic of the record."""
        return "rows" if self.role in {"row", "gone"} else "streams"

    @property
    def is_delayed(self) -> bool:
        """Whether its message waits for a timer."""
        return not _DELAYED.isdisjoint(self.hops)


@attrs.frozen
class Program:
    """A random program."""

    seed: int
    """Decides the order of messages, and where the application crashes."""
    settings: dict[str, EventSettings]
    kind: WindowKind
    shares_panes: bool
    """Whether the class of windows can merge, as it must for some kinds."""
    before: int
    """How much earlier the partners of a join may be."""
    after: int
    within: int
    """For how long a record of the second stream is valid."""
    grace: int
    """The grace of both joins."""
    crashes: float
    """The probability of a crash at each point where one may come."""
    steps: Sequence[Step]

    @property
    def has_long_calls(self) -> bool:
        """Whether calls may leave their micro-batches."""
        return any("slow" in each.hops for each in self.steps)

    @property
    def is_orderly(self) -> bool:
        """Whether no record can be late, as disorder is within ``outOfOrder`` and nothing becomes idle or is delayed."""
        allowed = min(each.out_of_order for each in self.settings.values())
        newest = 0
        for step in self.steps:
            if step.time < newest - allowed or step.is_delayed or step.pause:
                return False
            newest = max(newest, step.time)
        return True


def _kind(chance: Random) -> WindowKind:
    grace = timedelta(milliseconds=chance.choice([0, 0, 1, 3100, 6000]))
    offset = timedelta(milliseconds=chance.choice([0, 0, 2000, 1]))
    size = chance.choice([1000, 3000, 7000, 7001, 12_000, 30_000])
    wait = 75_000 if size == 30_000 else size  # its times are rounded more than others
    match chance.randrange(5):
        case 0:
            return Tumbling(timedelta(milliseconds=size), grace=grace, offset=offset)
        case 1:
            every = timedelta(milliseconds=max(size // chance.choice([2, 3, 4]), 1))
            return Hopping(timedelta(milliseconds=size), every=every, grace=grace, offset=offset)
        case 2:
            return Session(timedelta(milliseconds=wait), grace=grace)
        case 3:
            return Sliding(timedelta(milliseconds=wait), grace=grace)
        case _:
            timeout = chance.choice([None, timedelta(milliseconds=wait)])
            return Counted(chance.randint(1, 4), timeout=timeout)


def random_program(chance: Random, records: int) -> Program:
    """Return a random program.

    Args:
        chance: decides about everything.
        records: the most records that it has.
    """
    is_orderly = chance.random() < 0.4
    out_of_order = chance.choice([0, 1000, 20_000] if is_orderly else [0, 0, 1000, 5000])
    follows = chance.random() < 0.8
    settings = {
        each: EventSettings(
            out_of_order=chance.choice([out_of_order, out_of_order, 2000]),
            idle=chance.choice([10_000, 50_000]),
            max_future=_LONG if is_orderly else chance.choice([_LONG, _LONG, 120_000]),
            follows=follows or chance.random() < 0.2,
        )
        for each in (STREAMS, ROWS)
    }
    kind = _kind(chance)
    return Program(
        seed=chance.randrange(1 << 32),
        settings=settings,
        kind=kind,
        shares_panes=chance.random() < 0.5 or isinstance(kind, Session | Sliding),
        before=chance.choice([0, 0, 999, 5000]),
        after=chance.choice([0, 2000, 150_000]),
        within=chance.choice([0, 1500, 20_000]),
        grace=chance.choice([0, 0, 1, 4000]),
        crashes=chance.choice([0.0, 0.2]),
        steps=_steps(chance, records, settings, is_orderly=is_orderly),
    )


def _steps(
    chance: Random, records: int, settings: dict[str, EventSettings], *, is_orderly: bool
) -> list[Step]:
    allowed = min(each.out_of_order for each in settings.values())
    kinds = chance.choice([[], ["ring", "self"], ["ring", "self", "slow"], ["ring", "later"]])
    if not is_orderly:
        kinds = [*kinds, *chance.choice([[], ["later"], ["delay"]])]
    elif "later" in kinds:
        kinds = ["ring"]
    count = chance.randint(1, records)
    keys = [f"k{number}" for number in range(chance.randint(1, 2 + count // 30))]
    unit = chance.choice([1, 500, 1000])  # so that times are those of the ends of windows
    behind = (
        [0, 0, allowed // 2, max(allowed - unit, 0)] if is_orderly else [0, 0, 700, 3000, 30_000]
    )
    pace = max(chance.choice([500, 4000]) // max(count // 40, 1), 1)
    often = min(1.0, 12 / count)
    roles = chance.choice(_ROLES).split()
    partitions, drains = chance.randint(1, 2), chance.choice([0.2, 0.6, 0.9])
    steps, now = list[Step](), 60_000
    for number in range(count):
        now += chance.choice([0, chance.randrange(pace), pace])
        role = chance.choice(roles)
        is_row = role in {"row", "gone"}
        steps.append(
            Step(
                number=number,
                role=role,
                key=chance.choice(keys),
                partition=chance.randrange(partitions),
                time=max(now - chance.choice(behind), 0) // unit * unit,
                hops=()
                if is_row or not kinds
                else tuple(chance.choice(kinds) for _ in range(chance.choice([0, 0, 1, 3]))),
                drains=chance.random() < often * drains,
                pause=0 if is_orderly or chance.random() > often else chance.choice(_PAUSES),
            )
        )
    return steps
