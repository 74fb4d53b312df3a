# SPDX-License-Identifier: Apache-2.0
"""Files of paths that an ingress has listed in an earlier run, and lists no longer."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from file_reader import Reader

from statefun.files.file_log import FileLog

DAY = 24 * 3600 * 10**9


def deployed(folder: Path, before: Reader | None, path: str) -> Reader:
    """Return the ingress of a new deployment, which reads another path."""
    (folder / path.partition("/")[0]).mkdir(exist_ok=True)
    reader = Reader(folder, "{type: lines}", path)
    reader.folder = folder / path.partition("/")[0]
    if before is not None:
        reader.offset = before.offset
    return reader


def known(reader: Reader) -> set[str]:
    """Return the names of the files that the log knows, each with the name of its folder."""
    states = FileLog(reader._log).states(reader.offset["log"])  # noqa: SLF001 - tests look into it
    return {"/".join(path.split("/")[-2:]) for path in states}


def test_files_of_former_paths_are_known_for_seven_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first start without them: a path with a date changes with each deployment, for years."""
    now = [time.time_ns()]
    monkeypatch.setattr("time.time_ns", lambda: now[0])
    reader, all_known = None, []
    for number in range(5):
        reader = deployed(tmp_path, reader, f"day{number}/*")
        reader.write("a", f"{number}\n", age=60)
        assert reader.values() == [str(number)]
        assert reader.read() == []
        all_known.append({name[: len("day0")] for name in known(reader)})
        now[0] += 4 * DAY

    assert all_known == [
        {"day0"},
        {"day0", "day1"},
        {"day0", "day1", "day2"},
        {"day1", "day2", "day3"},
        {"day2", "day3", "day4"},
    ]


def test_a_path_that_comes_back_in_time_has_read_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The week begins anew with each start that no longer has the path."""
    now = [time.time_ns()]
    monkeypatch.setattr("time.time_ns", lambda: now[0])
    one = deployed(tmp_path, None, "one")
    one.write("a", "first\n", age=60)
    assert one.values() == ["first"]
    for _ in range(3):
        two = deployed(tmp_path, one, "two")
        assert two.values() == []
        now[0] += 5 * DAY
        one = deployed(tmp_path, two, "one")
        assert one.values() == []
    one.append("a", "second\n")
    assert deployed(tmp_path, one, "one").values() == ["second"]


@pytest.mark.parametrize("path", ["two", "in/b*"])
def test_a_file_that_no_path_means_is_not_lost(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It was not deleted, so neither an error nor a warning says so, although a part of it is not read."""
    before = deployed(tmp_path, None, "in/*")
    before.write("a", "one\ntw", age=60)
    assert before.values() == ["one"]
    after = deployed(tmp_path, before, path)
    with caplog.at_level(logging.WARNING):
        assert after.values() == []
    assert not caplog.messages

    again = deployed(tmp_path, after, "in/*")
    again.append("a", "o\n")
    assert again.values() == ["two"]
