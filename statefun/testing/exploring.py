# SPDX-License-Identifier: Apache-2.0
"""Runs a test with many schedules (orders of messages and crashes); reports the first that fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from statefun.module.model import KafkaEgress, KafkaIngress
from statefun.sdk.functions import StatefulFunctions
from statefun.testing.in_process import InProcessApplication
from statefun.testing.tested import LoadedProgram, loaded

_MOST_CRASHES = 5
"""The largest number of crashes of one schedule."""


class ScheduleError(AssertionError):
    """Raised by :func:`explore` if the test fails with a schedule: an order of messages, and crashes.

    The error text has the number of the schedule, with which ``explore`` can try the schedule again.
    """


def explore(  # noqa: PLR0913 - what an application needs, and how often
    test: Callable[[InProcessApplication], object],
    program: str | Path | None = None,
    *,
    module: str | Path | Sequence[str | Path] | None = None,
    functions: StatefulFunctions | None = None,
    components: Sequence[KafkaIngress | KafkaEgress] = (),
    crashes: int = 1000,
    schedule: int | None = None,
    seed: int = 0,
    twice: bool = False,
) -> None:
    """Run a test of an application with many schedules, each with its own order of messages and crashes.

    The first schedule has no crash. The next schedules have one crash each, until the application has
    crashed at each point where it can crash; all further schedules have crashes at random points. A crash
    before a commit makes the functions of the micro-batch run again; a crash while records are published
    repeats records of an at-least-once egress. A crash does not reset variables of functions outside of
    their state.

    Args:
        test: the test, which gets a new application for each schedule; it fails if it raises an exception.
        program: the file of the application, as for :class:`InProcessApplication`.
        module: the module files of the application.
        functions: the registry of the application's functions.
        components: ingresses and egresses that are declared in Python.
        crashes: how many schedules are tried.
        schedule: the number of a schedule; only the first schedule and this schedule are tried.
        seed: decides about all random choices; another number gives other schedules.
        twice: whether each function is called twice, to check that both calls have the same effects.

    Raises:
        ScheduleError: if the test fails; the error names the schedule, and its cause is the test's
            exception.

    >>> from statefun import Context, State, StatefulFunctions
    >>> functions = StatefulFunctions()
    >>> class Seen(State):
    ...     count: int = 0
    >>> @functions.bind("com.example/counter")
    ... def count(ctx: Context, number: int, seen: Seen) -> None:
    ...     seen.count += number
    >>> def test(app: InProcessApplication) -> None:
    ...     for number in range(3):
    ...         app.send("com.example/counter", "Ada", number)
    ...     app.drain()
    ...     assert app.state(Address("com.example/counter", "Ada")) == {"count": 3}
    >>> from statefun import Address, KafkaEgress
    >>> out = KafkaEgress.for_id("com.example/out").with_kafka_address("kafka:9092").build()
    >>> explore(test, functions=functions, components=[out], crashes=100)
    """
    application = loaded(program, module, functions, components)
    places = _try(test, application, _Schedule(seed, 0), twice=twice)
    for number in range(1, crashes) if schedule is None else [schedule]:
        single = number - 1 if number <= places else None
        _try(test, application, _Schedule(seed, number, single), twice=twice)


class _Schedule:
    """Decides at which points the application crashes, and remembers these points."""

    def __init__(self, seed: int, number: int, single: int | None = -1) -> None:
        self.number = number
        self.seed = seed + number
        self.places = 0
        self.crashed: list[str] = []
        self._single = single
        self._random = random.Random(self.seed)  # noqa: S311 - schedules, not secrets
        self._chance = self._random.choice([0.05, 0.2, 0.5])

    def crashes(self, place: str) -> bool:
        """Decide whether the application crashes at the point that ``place`` describes."""
        number, self.places = self.places, self.places + 1
        if self._single is None:
            happens = len(self.crashed) < _MOST_CRASHES and self._random.random() < self._chance
        else:
            happens = number == self._single
        if happens:
            self.crashed.append(place)
        return happens


def _try(
    test: Callable[[InProcessApplication], object],
    program: LoadedProgram,
    schedule: _Schedule,
    *,
    twice: bool,
) -> int:
    """Run the test with one schedule; return the number of points where the application could crash."""
    application = InProcessApplication.of(
        program, schedule.seed, twice=twice, crashes=schedule.crashes
    )
    try:
        test(application)
    except BaseException as error:
        # Failures of pytest are no subclasses of Exception; neither is what skips a test.
        if isinstance(error, KeyboardInterrupt | SystemExit) or type(error).__name__ == "Skipped":
            raise
        crashed = "; ".join(schedule.crashed) or "none"
        raise ScheduleError(
            f"the test fails in schedule {schedule.number}, with these crashes: {crashed}\n"
            f"{type(error).__name__}: {error}"
        ) from error
    return schedule.places
