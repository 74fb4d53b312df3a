# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import attrs
import pytest

from statefun.components.running import FileFacts, Folder
from statefun.files.examining import NOTHING_NEW, Examination
from statefun.files.file_log import FileRange, FileState
from statefun.files.file_plan import FilePlan, Loss, PlanFacts
from statefun.files.folder_watch import ListedFile

DAY = 24 * 3600 * 10**9
NOW = 1000 * DAY
PATH = "/in/a"
READ = FileState(end=40, lines=4, modified=1, is_all=True, size=40, digest="")
PARTLY_READ = attrs.evolve(READ, is_all=False)
NOT_READ = attrs.evolve(READ, end=0, lines=0, size=0, is_all=False)
GONE = attrs.evolve(READ, is_gone=True, gone=NOW - DAY)
CUT, REPLACED = "was cut off", "was replaced by another file"


def listed(
    size: int = 40, modified: int = 1, name: str = "a", *, was_cut: bool = False
) -> ListedFile:
    """Return a file as a look lists it."""
    return ListedFile("/in/*", Folder("/in"), name, FileFacts(size, modified), 0.0, was_cut)


def part(count: int, end: int = 60, *, is_all: bool = True, name: str = "a") -> FileRange:
    """Return a part of a file that an examination has found."""
    state = FileState(end, lines=count, modified=2, is_all=is_all, size=end, digest="")
    return FileRange("/in/*", "/in", name, 0, end, 1, first=0, count=count, state=state)


def examination(
    *parts: FileRange, change: str | None = None, has_more: bool = False
) -> Examination:
    """Return what an examination has found."""
    return Examination([*parts], change, has_more)


def planned(state: FileState | None, **facts: Any) -> FilePlan:
    """Return an empty plan; one file may be known."""
    states = {} if state is None else {PATH: state}
    return FilePlan(attrs.evolve(PlanFacts(7, 100, 10, states, now=NOW), **facts))


@pytest.mark.parametrize(
    ("state", "found", "forgotten", "back", "change"),
    [
        pytest.param(None, examination(part(3)), [], [], None, id="a new file"),
        pytest.param(None, examination(), [], [], None, id="a new file without whole lines"),
        pytest.param(PARTLY_READ, examination(part(3)), [], [], None, id="a file that grows"),
        pytest.param(PARTLY_READ, examination(), [], [], None, id="a file without a new line"),
        pytest.param(
            PARTLY_READ, examination(part(1), change=CUT), [PATH], [], CUT, id="a file that is cut"
        ),
        pytest.param(
            PARTLY_READ, examination(change=CUT), [PATH], [], CUT, id="a file that is emptied"
        ),
        pytest.param(
            READ, examination(part(2), change=REPLACED), [PATH], [], REPLACED, id="a replaced file"
        ),
        pytest.param(
            NOT_READ,
            examination(part(2), change=REPLACED),
            [PATH],
            [],
            None,
            id="a replaced file of which nothing was read",
        ),
        pytest.param(GONE, examination(), [], [PATH], None, id="a file that comes back"),
        pytest.param(
            GONE, examination(part(2)), [], [], None, id="a file that comes back and has grown"
        ),
        pytest.param(
            GONE,
            examination(part(2), change=REPLACED),
            [PATH],
            [],
            None,
            id="another file under the name of one that was gone",
        ),
    ],
)
def test_a_file_is_planned_by_its_state_and_content(
    state: FileState | None,
    found: Examination,
    forgotten: list[str],
    back: list[str],
    change: str | None,
) -> None:
    """Whatever has happened to it since; the entry numbers its records after all earlier ones."""
    plan = planned(state)
    outcome = plan.add(listed(60, 2), found)
    entry = plan.entry()

    assert (outcome.change, outcome.is_finished) == (change, True)
    assert (entry.forgotten, entry.back, entry.gone) == (forgotten, back, [])
    assert [each.first for each in entry.ranges] == [100] * len(found.ranges)
    assert entry.records == 100 + sum(each.count for each in found.ranges)
    assert entry.is_empty == (not (found.ranges or forgotten or back))
    assert plan.room == 110 - entry.records


def test_a_file_that_is_taken_away_when_read_may_be_replaced() -> None:
    """Its supplier may be faster than the application."""
    for takes_away in (False, True):
        outcome = planned(READ, takes_away=takes_away).add(
            listed(), examination(part(1), change=REPLACED)
        )
        assert outcome.change == (None if takes_away else REPLACED)
        outcome = planned(PARTLY_READ, takes_away=takes_away).add(
            listed(), examination(change=REPLACED)
        )
        assert outcome.change == REPLACED


def test_records_are_numbered_across_files_and_parts() -> None:
    """And files are planned until the micro-batch is full."""
    plan = planned(None)
    assert plan.room == 10
    plan.add(listed(name="a"), examination(part(2), part(3)))
    assert plan.room == 5
    plan.add(listed(name="b"), examination(part(5, name="b")))

    assert plan.room == 0
    assert [(each.name, each.first, each.count) for each in plan.entry().ranges] == [
        ("a", 100, 2),
        ("a", 102, 3),
        ("b", 105, 5),
    ]


@pytest.mark.parametrize(
    ("state", "found", "is_finished", "end", "number"),
    [
        pytest.param(None, examination(part(3)), True, 60, 8, id="the whole file"),
        pytest.param(
            None, examination(part(3, is_all=False)), False, 60, 8, id="there was no room for more"
        ),
        pytest.param(
            None,
            examination(part(3, 30, is_all=False), part(3)),
            True,
            60,
            8,
            id="the last part decides",
        ),
        pytest.param(READ, NOTHING_NEW, True, 40, 7, id="read earlier"),
        pytest.param(None, examination(has_more=True), True, None, 7, id="an unfinished line"),
        pytest.param(READ, examination(change=CUT), True, None, 7, id="nothing is left of it"),
        pytest.param(
            READ, examination(part(1), change=REPLACED), True, 60, 8, id="another one is read"
        ),
    ],
)
def test_a_file_is_finished_when_all_of_it_is_planned(
    state: FileState | None, found: Examination, end: int | None, number: int, *, is_finished: bool
) -> None:
    """It may be taken away after the entry that reads the last of it."""
    outcome = planned(state).add(listed(60, 2), found)

    assert (outcome.is_finished, outcome.number) == (is_finished, number)
    assert (None if outcome.state is None else outcome.state.end) == end
    assert outcome.has_more == found.has_more


@pytest.mark.parametrize(
    ("state", "file", "is_unchanged"),
    [
        pytest.param(None, listed(), False, id="new"),
        pytest.param(READ, listed(), True, id="as it was read"),
        pytest.param(READ, listed(41), False, id="grown"),
        pytest.param(READ, listed(40, 2), False, id="written again"),
        pytest.param(PARTLY_READ, listed(), False, id="not read to its end"),
        pytest.param(GONE, listed(), False, id="back"),
    ],
)
def test_a_file_as_it_was_read_needs_no_examination(
    state: FileState | None, file: ListedFile, *, is_unchanged: bool
) -> None:
    """Its size and its time of change say so."""
    assert planned(state).is_unchanged(file) == is_unchanged


@pytest.mark.parametrize(
    ("bounds", "end"),
    [
        pytest.param(None, 40, id="not bounded"),
        pytest.param({PATH: 30}, 30, id="grown after the bound"),
        pytest.param({PATH: 50}, 40, id="cut after the bound"),
        pytest.param({}, 0, id="new after the bound"),
    ],
)
def test_a_bounded_run_reads_up_to_the_sizes_at_its_beginning(
    bounds: dict[str, int] | None, end: int
) -> None:
    """And nothing of files that came later."""
    assert planned(None, bounds=bounds).end_of(listed()) == end


@pytest.mark.parametrize(
    ("state", "is_unread", "leaving", "loss", "gone", "forgotten"),
    [
        pytest.param(READ, False, (), Loss.NOTHING, [PATH], [], id="read to its end"),
        pytest.param(PARTLY_READ, True, (), Loss.UNREAD_REST, [PATH], [], id="partly read"),
        pytest.param(None, True, (), Loss.UNKNOWN_FILE, [], [], id="seen and not read"),
        pytest.param(None, False, (), Loss.NOTHING, [], [], id="nothing known"),
        pytest.param(READ, False, (PATH,), Loss.NOTHING, [], [PATH], id="taken away, then a crash"),
        pytest.param(GONE, False, (), Loss.NOTHING, [], [], id="gone for a day"),
        pytest.param(
            attrs.evolve(GONE, gone=NOW - 7 * DAY), False, (), Loss.NOTHING, [], [], id="for seven"
        ),
        pytest.param(
            attrs.evolve(GONE, gone=NOW - 7 * DAY - 1),
            False,
            (),
            Loss.NOTHING,
            [],
            [PATH],
            id="for more than seven",
        ),
        pytest.param(
            attrs.evolve(PARTLY_READ, is_gone=True),
            False,
            (),
            Loss.NOTHING,
            [PATH],
            [],
            id="gone at an unknown time",
        ),
    ],
)
def test_a_file_that_vanishes_is_known_for_seven_days(  # noqa: PLR0917 - the columns of a table
    state: FileState | None,
    is_unread: bool,
    leaving: tuple[str, ...],
    loss: Loss,
    gone: list[str],
    forgotten: list[str],
) -> None:
    """Unless the application has taken it away itself."""
    plan = planned(state, removals=leaving)

    assert plan.mark_missing(PATH, is_unread=is_unread) is loss
    assert (plan.entry().gone, plan.entry().forgotten) == (gone, forgotten)
    assert plan.entry().at == NOW


@pytest.mark.parametrize(
    ("file", "is_new"),
    [
        pytest.param(listed(40, 1), False, id="the removal has not happened"),
        pytest.param(listed(40, 2), True, id="another file of that size"),
        pytest.param(listed(50, 2), False, id="it has grown before its removal"),
    ],
)
def test_a_file_under_the_name_of_one_that_was_taken_away_is_new(
    file: ListedFile, *, is_new: bool
) -> None:
    """If a run has crashed between the removal and the entry that forgets the file."""
    plan = planned(READ, removals=(PATH,))
    added = plan.add(file, examination(part(1)))

    assert (plan.state_of(file) is None) == is_new
    assert (added.warning is not None) == is_new
    assert plan.entry().forgotten == ([PATH] if is_new else [])


def test_files_that_are_taken_away_are_forgotten() -> None:
    """After the others, in one entry."""
    plan = planned(None)
    plan.forget(["/in/b"])

    assert plan.entry().forgotten == ["/in/b"]
    assert not plan.entry().is_empty


def test_a_cut_before_reading_is_a_warning() -> None:
    """Unless the change of the file says it."""
    file = listed(was_cut=True)

    assert planned(READ).add(file, examination(part(1))).warning == (
        "file /in/a was cut off before all of it was read",
        "the lost part is not read",
    )
    assert planned(READ).add(file, examination(change=CUT)).warning is None
    odd = Examination([], None, has_more=False, warning=("file /in/a is odd", "going on"))
    assert planned(READ).add(listed(), odd).warning == odd.warning
