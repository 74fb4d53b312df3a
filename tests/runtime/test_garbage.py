# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc

from statefun.runtime.garbage import frozen


def test_objects_from_before_a_run_are_left_out_until_it_ends() -> None:
    """Afterwards the collector looks at everything again."""
    before = gc.get_freeze_count()

    with frozen():
        during = gc.get_freeze_count()

    assert before == gc.get_freeze_count() == 0
    assert during > 10_000


def test_of_several_runs_the_last_one_ends_it() -> None:
    """Runs in threads of a process begin and end as they like."""
    first, second = frozen(), frozen()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    in_between = gc.get_freeze_count()
    second.__exit__(None, None, None)

    assert in_between > 10_000
    assert gc.get_freeze_count() == 0


def test_objects_that_the_program_has_frozen_stay_frozen() -> None:
    """Only the program unfreezes them."""
    own: list[object] = []
    gc.freeze()
    try:
        with frozen():
            assert not is_looked_at(own)
        assert not is_looked_at(own)
    finally:
        gc.unfreeze()
    assert is_looked_at(own)


def is_looked_at(thing: object) -> bool:
    """Return whether the collector looks at an object."""
    return any(found is thing for found in gc.get_objects())
