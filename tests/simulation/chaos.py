# SPDX-License-Identifier: Apache-2.0
"""The faults and their times, which all follow from the seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import NamedTuple

from simulation.clocks import MachineClock


class CrashError(BaseException):
    """The driver dies here."""


class Name(NamedTuple):
    """Stands for a UUID."""

    hex: str


class Chaos:
    """Decides about faults; the same seed makes the same decisions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        choose = self.random.choice
        self.crashes = choose([0.0, 0.003, 0.01, 0.03])
        """How likely one is at each step."""
        self.troubles = choose([0.0, 0.05, 0.2])
        """How likely one is with each request to the broker."""
        self.slowness = choose([0, 1000, 8000, 30_000])
        """Milliseconds that a request may take."""
        self.asides = choose([0.0, 0.03, 0.1])
        """How likely something else happens between two steps."""
        self.copies = choose([0.0, 0.0, 0.05])
        self.jumps = choose([0.0, 0.0, 0.02])
        self.power_cuts = choose([0.0, 0.0, 0.3])
        """How likely a crash is one of the machine."""
        self.rot = choose([0.0, 0.0, 0.5])
        """How likely a crash of the machine damages a file that was safe on its disk."""
        self.frozen = choose([0.0, 0.5])
        """How likely a crash leaves the driver's JVM behind."""
        self.clock = MachineClock(self.random)
        self.meanwhile: Callable[[], None] = lambda: None
        """Other events between two steps."""
        self.active = True
        self._busy = False
        self._names = itertools.count()

    def step(self) -> None:
        """Be between two steps of the driver."""
        if not self.active or self._busy:
            return
        chance = self.random.random
        if chance() < self.crashes:
            raise CrashError
        if self.jumps and chance() < self.jumps:
            self.clock.jump()
        if chance() < self.asides:
            self._busy = True
            try:
                self.meanwhile()
            finally:
                self._busy = False

    def happens(self, probability: float) -> bool:
        """Return whether something that goes wrong now and then does so now."""
        return self.active and self.random.random() < probability

    def number(self) -> int:
        """Return a number that was not there before."""
        return next(self._names)

    def uuid4(self) -> Name:
        """Return a name that was not there before, in the place of the module's."""
        return Name(f"{self.number():08x}")
