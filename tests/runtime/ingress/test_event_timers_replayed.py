# SPDX-License-Identifier: Apache-2.0
"""Timers in event time and windows through crashes of the driver: real plans, buckets and files, without Spark."""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from event_time_run import Run, StoppedError
from hypothesis import given, settings
from hypothesis import strategies as st

from statefun.engine import buckets
from statefun.runtime.ingress import committed_messages
from statefun.runtime.ingress.feedback import FeedbackReader
from statefun.runtime.ingress.feedback_offset import FeedbackOffset
from statefun.windows.separate_windows import SeparateWindows


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Let few buckets be opened at a time, and small buckets move their messages to chunks; no power is lost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(committed_messages, "_MOST_BUCKETS", 2)
        patch.setattr(buckets, "_FULL_BYTES", 300)
        patch.setattr(buckets, "_CHUNK_BYTES", 500)
        patch.setattr(os, "fsync", lambda _: None)
        yield


def differences(seed: int) -> list[str]:
    """Run an application, and return what is not as it must be."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), random.Random(seed))
        try:
            run.to_the_end()
        except StoppedError:
            return ["micro-batches do not come to an end"]
        return run.differences()


@settings(max_examples=25)
@given(st.integers(0, 1_000_000))
def test_each_timer_comes_once_and_each_window_closes_once(seed: int) -> None:
    """At their times, with all records, in repeated micro-batches that are the same, and nothing is left."""
    assert differences(seed) == []


def whole_tick(self: FeedbackOffset) -> int:
    """Take a tick for one that all of its buckets have got."""
    return self.event_tick


def unheld(self: FeedbackReader, before: FeedbackOffset, _: int | None) -> Any:
    """Let the watermark pass messages that wait for it."""
    return _progress(self, before, None)


def forgetful(self: SeparateWindows, *_: Any) -> None:
    """Take each wake-up for one that has come before."""


_progress = FeedbackReader._progress  # noqa: SLF001 - the rule that is broken


@pytest.mark.parametrize(
    ("owner", "name", "replacement", "found"),
    [
        (FeedbackOffset, "last_event_tick", property(whole_tick), "came 0 times, and not {1}"),
        (FeedbackReader, "_progress", unheld, r"was due at \d+, and came at \d+"),
        (SeparateWindows, "_wake_up", forgetful, "has not closed with its"),
    ],
)
def test_a_broken_rule_is_found(
    owner: type, name: str, replacement: Any, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The laws above can fail."""
    monkeypatch.setattr(owner, name, replacement)

    wrong = [text for seed in range(12) for text in differences(seed)]

    assert any(re.search(found, text) for text in wrong), wrong
