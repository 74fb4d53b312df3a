# SPDX-License-Identifier: Apache-2.0
"""Clocks that are set at times, and that differ between machines."""

from __future__ import annotations

import random

import attrs

_START = 1_800_000_000_000
_SECOND = 1000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_JUMPS = (_SECOND, _MINUTE, _HOUR, 24 * _HOUR)


class MachineClock:
    """The clock of the driver's machine; it records its answers."""

    def __init__(self, generator: random.Random) -> None:
        self._random = generator
        self._elapsed = 0
        self._difference = _START
        self.readings = [_START]
        """All answers of the clock, in order."""

    def now(self) -> int:
        """Return the milliseconds since the epoch."""
        reading = self._elapsed + self._difference
        self.readings.append(reading)
        return reading

    def monotonic(self) -> int:
        """Return the milliseconds since the start of the machine."""
        return self._elapsed

    def advance(self, time: int) -> None:
        """Let so many milliseconds pass."""
        self._elapsed += time

    def jump(self) -> None:
        """Set the clock, forth or back."""
        self._difference += self._random.choice([-1, 1]) * self._random.choice(_JUMPS)

    def pass_idly(self) -> None:
        """Let some time pass in which nothing happens, often until something is almost due."""
        rest = self._random.choice([_HOUR, _MINUTE, 20 * _SECOND])
        self.advance(_HOUR - self._random.randrange(rest))

    def catch_up(self) -> None:
        """Set the clock so that every timer that was ever due is due now."""
        self._difference = max(self.readings) + 3 * _HOUR - self._elapsed


class Stopwatch:
    """A replacement of the module ``time``, for code that measures durations."""

    def __init__(self, clock: MachineClock) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        """Return seconds."""
        return self._clock.monotonic() / _SECOND

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._clock.advance(round(seconds * _SECOND))


@attrs.frozen
class WorkerClock:
    """The clock of a worker, on which no time passes while a task runs."""

    time: int

    @classmethod
    def beside(cls, time: int, generator: random.Random) -> WorkerClock:
        """Return a clock that is close to the driver's, or far from it."""
        return cls(time + generator.choice([0, 0, 300, -_SECOND, 40 * _SECOND, -_HOUR, 30 * _HOUR]))

    def now(self) -> int:
        """Return the milliseconds since the epoch."""
        return self.time

    def monotonic(self) -> int:
        """Return the milliseconds since a fixed but unknown moment."""
        return 0
