# SPDX-License-Identifier: Apache-2.0
"""Runs a program, and compares it with the model."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from event_time_model.arrivals import arrivals
from event_time_model.joins import join_differences
from event_time_model.observing import Trace, observe
from event_time_model.programs import Program, random_program
from event_time_model.watermarks import watermark_differences
from event_time_model.windows import window_differences

SMALL, LARGE = 60, 2000
"""The most records of a small program and a large one."""


def differences(program: Program, trace: Trace) -> Iterator[str]:
    """Yield what was not as the model has it."""
    came = arrivals(program, trace)
    yield from came.differences
    yield from watermark_differences(program, trace)
    yield from window_differences(program, came.of.get("windows", []), trace)
    yield from join_differences(program, came, trace)
    if not program.has_long_calls:  # which calls leave their micro-batch differs
        yield from trace.unequal
    if sorted(map(repr, trace.journal)) != sorted(map(repr, trace.published)):
        yield "what was published is not what was committed"
    follows = all(each.follows for each in program.settings.values())
    is_endless = getattr(program.kind, "timeout", 0) is None
    left = [each for each in trace.left if not (is_endless and each.startswith("test/windows/"))]
    if follows and left:
        yield f"the state of {left} is left"


def problem(program: Program) -> str:
    """Return what is wrong when a program runs; empty if nothing is."""
    return "\n".join(differences(program, observe(program)))


def problem_of_seed(seed: int, records: int) -> tuple[int, str]:
    """Run the random program of a seed; return how many records it has, and what is wrong."""
    program = random_program(Random(seed), records)
    return len(program.steps), problem(program)
