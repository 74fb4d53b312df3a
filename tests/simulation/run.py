# SPDX-License-Identifier: Apache-2.0
"""One seed, from a fresh checkpoint to the end."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

from simulation import side_by_side
from simulation.chaos import CrashError
from simulation.checks import difference, refusal
from simulation.clocks import Stopwatch
from simulation.driver import Driver
from simulation.publishing import THREADING, EndlessError
from simulation.world import World
from statefun.engine import buckets, chunks, left_calls, running_calls
from statefun.remote import attempts, batch_run, calling, circuit, endpoint_client, remote_function
from statefun.runtime.calls import call_register, turns
from statefun.runtime.checkpoint import call_log, checkpoint_files, timer_log
from statefun.runtime.dispatch import segments
from statefun.runtime.egress import tasks, thread
from statefun.runtime.ingress import holding
from statefun.runtime.release import publisher
from statefun.sdk.errors import CheckpointError
from statefun.testing import leaving

logging.getLogger("simulation").setLevel(logging.CRITICAL)

_ATTEMPTS = 25
"""So many drivers have a hard time; then all goes well."""


def simulate(seed: int) -> str:
    """Run one seed; return a text about the broken property, or nothing."""
    world = World.of(seed)
    with _simulated(world):
        try:
            reason = _run(world)
        except EndlessError as error:
            return str(error)
    return difference(world) if reason is None else refusal(world, reason)


def _run(world: World) -> str | None:
    """Run drivers until all is done; return why one was refused, if one was for good."""
    chaos, is_over = world.chaos, False
    for attempt in itertools.count():
        chaos.active = attempt < _ATTEMPTS and not is_over
        chaos.meanwhile = lambda: None
        if not chaos.active:
            world.broker.deliver_all_late()
        if chaos.active and world.copy is not None and chaos.random.random() < 0.3:
            world.take_copy()
        driver = Driver(world, world.here)
        try:
            driver.run()
        except CrashError:
            driver.crash()
            world.pass_outage()
        except CheckpointError as error:
            if not _is_temporary(error):
                return error.message
            driver.crash()
            world.here.jvm = None  # somebody has ended it
        else:
            if not chaos.active:
                return None
            is_over = True
    raise AssertionError


def _is_temporary(error: CheckpointError) -> bool:
    return "in use by" in error.message or "start again" in error.message


def _elsewhere(world: World) -> list[tuple[Any, str, Any]]:
    """Return the model of what is around the function elsewhere."""
    chaos, choose = world.chaos, world.limits.choice
    watch = Stopwatch(chaos.clock)
    return [
        *((module, "time", watch) for module in (batch_run, calling, endpoint_client)),
        *((module, "random", chaos.random) for module in (attempts, circuit, turns)),
        (calling, "Circuit", partial(circuit.Circuit, clock=watch.monotonic)),
        (holding, "logger", logging.getLogger("simulation")),
        (holding, "MOST_WAITING_BYTES", choose([100, 400, 1_000_000])),
        (chunks, "_FULL_BYTES", choose([60, 120, 100_000])),
        (chunks, "_KEPT_BYTES", 30),
        (chunks, "_MOST_ASKED", choose([1, 2, 32])),
        (remote_function, "_MOST_OUTAGES", choose([1, 2, 5])),
    ]


def _leaving(world: World) -> list[tuple[Any, str, Any]]:
    """Return the model of the parts around calls that leave their micro-batches."""
    choose = world.calls.choice
    return [
        (leaving, "await_all", side_by_side.await_all),
        (left_calls, "logger", logging.getLogger("simulation")),
        (call_register, "logger", logging.getLogger("simulation")),
        (holding, "logger", logging.getLogger("simulation")),
        (call_register, "_BATCH_BYTES", choose([1, 200, 1_000_000])),
        (call_log, "_LOG_LENGTH", choose([2, 3, 100])),
        (call_log, "_MOST_ENDED", choose([0, 2, 1000])),
        (holding, "MOST_WAITING_BYTES", choose([100, 400, 1_000_000])),
        (chunks, "_FULL_BYTES", choose([60, 120, 100_000])),
        (chunks, "_KEPT_BYTES", 30),
        (chunks, "_MOST_ASKED", choose([1, 2, 32])),
    ]


@contextmanager
def _simulated(world: World) -> Iterator[None]:
    """Replace the runtime's environment by the model."""
    chaos = world.chaos
    choose = chaos.random.choice
    changes: list[tuple[Any, str, Any]] = [
        (checkpoint_files, "uuid", chaos),
        (segments, "uuid", chaos),
        (publisher, "threading", THREADING),
        (thread, "threading", THREADING),
        (tasks, "time", Stopwatch(chaos.clock)),
        # Small limits, so that this simulation reaches them.
        (segments, "_INLINE_BYTES", choose([0, 1_000_000])),
        (segments, "_FULL_BYTES", choose([200, 1_000_000])),
        (segments, "_inline", segments.InlineBudget()),
        (timer_log, "_LOG_LENGTH", choose([2, 3, 100])),
        (buckets, "_FULL_BYTES", choose([100, 200, 100_000])),
    ]
    if world.has_calls:
        changes += _leaving(world)
    if world.has_endpoint:
        changes += _elsewhere(world)
    if world.has_coroutines:
        changes.append((running_calls, "await_all", side_by_side.await_all))
    with ExitStack() as stack:
        for module, name, value in changes:
            stack.enter_context(mock.patch.object(module, name, value))
        yield
