# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta

import pytest

from statefun.files.look_pace import LookPace


@pytest.mark.parametrize(
    ("is_remote", "looks", "pauses"),
    [
        pytest.param(False, [(0, False)] * 3, [0.2, 0.2, 0.2], id="idle local folder"),
        pytest.param(False, [(0, True), (0, False)], [0, 0.2], id="a change is followed at once"),
        pytest.param(
            True, [(0, False)] * 7, [0.2, 0.4, 0.8, 1.6, 3.2, 5, 5], id="idle remote folder"
        ),
        pytest.param(
            True,
            [(0, False), (0, False), (0, True), (0, False)],
            [0.2, 0.4, 0, 0.2],
            id="a change makes the next looks frequent",
        ),
        pytest.param(False, [(0.5, True), (0.5, False)], [5, 5], id="a tenth of the time"),
        pytest.param(False, [(60, True), (60, False)], [30, 30], id="half a minute at most"),
    ],
)
def test_pauses_between_looks(
    looks: list[tuple[float, bool]], pauses: list[float], *, is_remote: bool
) -> None:
    """By how long each look took, and whether it has found a change."""
    pace = LookPace(is_remote=is_remote)

    assert [
        pace.pause(timedelta(seconds=seconds), has_changed=has_changed).total_seconds()
        for seconds, has_changed in looks
    ] == pauses
