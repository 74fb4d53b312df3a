# SPDX-License-Identifier: Apache-2.0
"""The offset of the feedback source, as Spark's log has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statefun.engine.watermark import EventProgress, Holder, Partition
from statefun.engine.wheel import event_bucket, time_of
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.ingress.feedback_offset import FeedbackOffset, feedback_offset
from statefun.sdk.errors import CheckpointError

PROGRESS = EventProgress(
    17,
    {Partition("a/in", "clicks", 0): 18},
    {17: 2},
    frozenset({Partition("a/in", "clicks", 1)}),
    Holder("message", "a/f/Ada", 5),
)


@pytest.mark.parametrize(
    "offset",
    [
        FeedbackOffset(),
        FeedbackOffset(3, 4),
        FeedbackOffset(3, 4, event=PROGRESS),
        FeedbackOffset(3, 4, event=PROGRESS, opened=17),
        FeedbackOffset(3, 4, {"b": 1, "a": 2, "new": 0}),
    ],
)
def test_offsets_go_through_json(offset: FeedbackOffset) -> None:
    """Spark compares offsets by their JSON, so equal offsets have equal JSON."""
    text = json.dumps(offset.encode())

    assert FeedbackOffset.decode(json.loads(text)) == offset
    assert json.dumps(FeedbackOffset.decode(json.loads(text)).encode()) == text
    assert '"new"' not in text


def test_a_tick_of_event_time_comes_bucket_by_bucket() -> None:
    """If very many messages are due at once, the offset has the last bucket that has got its tick."""
    first, second = (event_bucket(1000, 1000, name) for name in (b"a", b"b"))
    first, second = min(first, second), max(first, second)
    later = event_bucket(1250, 1250, b"a")
    at_first = FeedbackOffset(3, 4, event=EventProgress(1000), opened=first)
    afterwards = FeedbackOffset(4, 4, event=EventProgress(1000))

    assert [at_first.has_ticked(each) for each in (first, second, later)] == [True, False, False]
    assert [afterwards.has_ticked(each) for each in (first, second, later)] == [True, True, False]
    assert time_of(at_first.last_event_tick) < 1000 == time_of(afterwards.last_event_tick)
    assert not FeedbackOffset(3, 4).has_ticked(first)


def test_inboxes_count_from_one() -> None:
    """An inbox of which nothing is delivered yet has the number 0."""
    offset = FeedbackOffset(inboxes={"requests": 2})

    assert (offset.last_of("requests"), offset.last_of("replies")) == (2, 0)
    assert FeedbackOffset.decode(None) == FeedbackOffset()


@pytest.mark.parametrize(
    "content",
    [{}, {"batch": 1}, {"batch": 1, "tick": None}, {"batch": 1, "tick": 2, "inboxes": [1]}],
)
def test_another_offset_is_refused(tmp_path: Path, content: Any) -> None:
    """The error names the file of Spark's log."""
    with pytest.raises(ValueError, match="is not an offset of the feedback source"):
        FeedbackOffset.decode(content)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(content)}")
    with pytest.raises(CheckpointError, match="offsets/0 is damaged: its last line must be"):
        feedback_offset(CommitLog(Folder.at(tmp_path)), 0)


def test_nothing_is_delivered_before_the_first_batch(tmp_path: Path) -> None:
    """A fresh checkpoint has no offsets yet."""
    log = CommitLog(Folder.at(tmp_path))

    assert feedback_offset(log, log.newest()) == FeedbackOffset()
