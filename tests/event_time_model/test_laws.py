# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_time_model.observing import observe
from event_time_model.programs import random_program
from event_time_model.run import SMALL, problem, problem_of_seed
from event_time_model.sabotage import SABOTAGES, sabotaged

_RECORDS = 20
_SEEDS = 1000
"""So many are tried on an engine that is sabotaged, if none of those that have detected the sabotage does."""


@given(chance=st.randoms(use_true_random=False))
def test_programs_do_what_the_model_says(chance: Random) -> None:
    """Watermarks, late records, windows, joins and the table are those of the model, with any disorder and crashes."""
    assert not problem(random_program(chance, _RECORDS))


@given(chance=st.randoms(use_true_random=False))
def test_the_same_program_ends_in_the_same_way(chance: Random) -> None:
    """A program that runs again notes, publishes and skips the same, in the same order."""
    program = random_program(chance, _RECORDS)
    first, again = observe(program), observe(program)

    assert first[1:] == again[1:]


def test_a_large_program_does_what_the_model_says() -> None:
    """So does a program with hundreds of records, in which many come in one micro-batch."""
    records, wrong = problem_of_seed(12, 2000)

    assert records > 500
    assert not wrong


def _detects(name: str, seed: int) -> bool:
    """Return whether the program of a seed detects a sabotage, and finds nothing without it."""
    try:
        with sabotaged(name):
            found = problem_of_seed(seed, SMALL)[1]
    except Exception:  # noqa: BLE001 - what is broken may stop a program
        found = "stopped"
    return bool(found) and not problem_of_seed(seed, SMALL)[1]


@pytest.mark.parametrize("name", SABOTAGES)
def test_every_law_matters(name: str) -> None:
    """The model detects an engine that breaks one."""
    seeds = (*SABOTAGES[name].seeds, *range(_SEEDS))

    assert any(_detects(name, seed) for seed in seeds)
