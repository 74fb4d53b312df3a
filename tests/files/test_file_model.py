# SPDX-License-Identifier: Apache-2.0
"""What a file ingress reads, whatever happens to its files, their folder, and the runs that read them."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import attrs
from file_reader import Time
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from statefun.components.running import Folder, Offset
from statefun.files import file_source
from statefun.files.file_settings import (
    AfterRead,
    FileFormat,
    Files,
    IngressFiles,
    OnChange,
    UnfinishedLine,
)
from statefun.files.file_source import FileSource
from statefun.files.parsing import PATH, read_task
from statefun.sdk.errors import ConnectorError

NAMES = st.sampled_from("abc")
DAY = 24 * 3600
TIMES = st.sampled_from([0.0625, 0.25, 1.5, 4, 9.9375, 12, 60, DAY, 6 * DAY, 8 * DAY])
START = 1_800_000_000
KNOWN_FOR = 7 * DAY
A_LOOK = 31
"""After so many seconds a plan begins with a look at the folder."""


@attrs.define
class File:
    """A file as its writer knows it."""

    content: str = ""
    records: list[str] = attrs.field(factory=list)
    """Those with a line break."""
    rest: str = ""
    """A last line without one."""
    changed: float = 0.0
    """When it was written to."""
    seen: set[str] = attrs.field(factory=set)
    """What the run has seen in it."""
    lost_at: int | None = None
    """How many warnings there were when its present content was lost first."""

    @property
    def lines(self) -> list[str]:
        """The records of the file, and its last line without a line break."""
        return [*self.records, *([self.rest] if self.rest else [])]


@attrs.define
class Batch:
    """A micro-batch that is planned, and not committed."""

    end: Offset
    rows: list[tuple[str, str]]
    """The names of files and the records that it has if nothing happens to them."""
    is_logged: bool = False
    """Whether Spark has noted its end."""
    got: list[tuple[str, str]] | None = None
    """What was read of these."""


class FileMachine(RuleBasedStateMachine):
    """Each record is read once, a repeated micro-batch has the same records, and losses are reported."""

    @initialize(
        after=st.sampled_from(AfterRead),
        unfinished=st.sampled_from(UnfinishedLine),
        on_change=st.sampled_from(OnChange),
        most=st.sampled_from([1, 2, 1000]),
    )
    def begin(
        self, after: AfterRead, unfinished: UnfinishedLine, on_change: OnChange, most: int
    ) -> None:
        """Begin with an empty folder."""
        self.root = Path(tempfile.mkdtemp(prefix="statefun-files-"))
        self.folder, self.away = self.root / "in", self.root / "away"
        self.folder.mkdir()
        self.clock = Time()
        self.said: list[str] = []
        self.stack = ExitStack()
        self.stack.callback(shutil.rmtree, self.root)
        for target, name, new in (
            (time, "time_ns", self.wall),
            (os, "fsync", lambda _: None),
            (logging.getLogger("statefun.ingress"), "warning", self.say),
            (file_source.logger, "warning", self.say),
        ):
            self.stack.enter_context(mock.patch.object(target, name, new))
        self.after, self.unfinished, self.on_change = after, unfinished, on_change
        self.most = most
        self.files: dict[str, File] = {}
        self.stash: dict[str, tuple[File, float]] = {}
        """Files that were moved away, and when."""
        self.replaced: set[str] = set()
        """The names of those in whose place another one was meanwhile."""
        self.returned: dict[str, float] = {}
        """Files that have come back since the last look, and when they went away first."""
        self.taken: dict[str, File] = {}
        """Files that the source has taken away."""
        self.touched: set[str] = set()
        """The files that have become less, or others."""
        self.to_be_said: dict[str, int] = {}
        """The files of which something was seen, and not all read; what was said before."""
        self.begun: set[str] = set()
        """Those of them of which a part is missing that was planned."""
        self.number = 0
        self.offset: Offset = {"log": 0, "records": 0}
        self.committed: Offset | None = None
        self.batch: Batch | None = None
        self.read: Counter[str] = Counter()
        self.allowed: Counter[str] = Counter()
        """How often a record may be read."""
        self.required: Counter[str] = Counter()
        """How often a record has to be read that is in a file."""
        self.planned: set[str] = set()
        self.start(is_bounded=False)

    def wall(self) -> int:
        """Return the time of day, in nanoseconds."""
        return round((START + self.clock.seconds) * 1000) * 10**6

    def say(self, text: str, *arguments: object) -> None:
        """Keep a warning."""
        self.said.append(text % arguments)

    def start(self, *, is_bounded: bool, on_change: OnChange | None = None) -> None:
        """Begin a run."""
        self.is_bounded = is_bounded
        self.looked = -1e9
        self.runs_on_change = on_change or self.on_change
        for file in self.files.values():
            file.seen.clear()
        for name in self.to_be_said.keys() - self.begun:  # only the run knew of it that has ended
            del self.to_be_said[name]
        path = str(self.folder)
        files = IngressFiles(
            "ingress test/in",
            {path: Files(path, FileFormat.LINES)},
            self.runs_on_change,
            self.unfinished,
            self.after,
        )
        self.source = FileSource(
            files,
            Folder.at(self.root / "log"),
            self.most,
            committed=lambda: self.committed,
            clock=self.clock,
        )
        if is_bounded:
            self.source.bound()

    # What happens to files

    @property
    def is_there(self) -> bool:
        """Whether the folder exists and is the right one."""
        return not self.away.exists()

    def new(self) -> str:
        """Return a record that no other file has."""
        self.number += 1
        return self.expected(f"r{self.number:04}")

    def expected(self, record: str) -> str:
        """Expect that a record is read once more."""
        self.allowed[record] += 1
        self.required[record] += 1
        return record

    def allow(self, content: str) -> None:
        """Allow that lines are read once more, or not."""
        self.allowed.update(filter(None, content.split("\n")))

    def store(self, name: str, file: File, content: str) -> None:
        """Write a file with new content."""
        self.files[name] = file
        if content != file.content:
            file.lost_at = None
        if name in self.stash:
            self.replaced.add(name)
        file.content, file.changed = content, self.clock.seconds
        path = self.folder / name
        path.write_text(content)
        self.number += 1  # so no two times are equal
        os.utime(path, ns=(self.wall(), self.wall() + self.number))

    @precondition(lambda self: self.is_there)
    @rule(name=NAMES, count=st.integers(0, 3))
    def write(self, name: str, count: int) -> None:
        """Append whole lines to a file, which may be a new file."""
        file = self.files.get(name) or File()
        self.end_line(file)
        new = [self.new() for _ in range(count)]
        file.records += new
        self.store(name, file, file.content + "".join(f"{record}\n" for record in new))

    @precondition(lambda self: self.is_there)
    @rule(name=NAMES)
    def begin_line(self, name: str) -> None:
        """Append a part of a line to a file."""
        file = self.files.get(name) or File()
        self.end_line(file)
        self.number += 1
        file.rest = f"h{self.number:04}"
        self.allowed[file.rest] += 1
        self.store(name, file, file.content + file.rest)

    def end_line(self, file: File) -> None:
        """Write the rest of the last line: it is a record of its own if the first part was read as one."""
        if file.rest:
            rest = f"e{file.rest}"
            self.expected(record := rest if file.rest in self.planned else file.rest + rest)
            if file.rest in self.planned:
                file.records.append(file.rest)
                self.required[file.rest] = 1
            file.records.append(record)
            file.content += f"{rest}\n"
            file.rest = ""

    @precondition(lambda self: self.is_there and self.files)
    @rule(data=st.data(), keep=st.integers(0, 3))
    def cut(self, data: st.DataObject, keep: int) -> None:
        """Cut off a file after some lines: the remaining lines are read again."""
        name = data.draw(st.sampled_from(sorted(self.files)))
        file = self.files[name]
        content = "".join(file.content.splitlines(keepends=True)[:keep])
        self.lose(name, content)
        rest = content.rpartition("\n")[2]
        self.allow(content)
        kept = [record for record in file.records if f"{record}\n" in content]
        self.store(name, File("", kept, rest), content)

    @precondition(lambda self: self.is_there and self.files)
    @rule(data=st.data(), count=st.integers(0, 3))
    def replace(self, data: st.DataObject, count: int) -> None:
        """Replace a file by another one."""
        name = data.draw(st.sampled_from(sorted(self.files)))
        self.lose(name)
        new = [self.new() for _ in range(count)]
        self.store(name, File("", new), "".join(f"{record}\n" for record in new))

    @precondition(lambda self: self.is_there and self.files)
    @rule(data=st.data())
    def write_again(self, data: st.DataObject) -> None:
        """Write a file again without a change."""
        name = data.draw(st.sampled_from(sorted(self.files)))
        self.store(name, self.files[name], self.files[name].content)

    @precondition(lambda self: self.is_there and self.taken.keys() - self.files.keys())
    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        """Create a new file with the content of a file that was taken away."""
        name = data.draw(st.sampled_from(sorted(self.taken.keys() - self.files.keys())))
        taken = self.taken.pop(name)
        content = taken.content.rstrip("\n") + "\n" if taken.content else ""
        records = [self.expected(line) for line in content.split("\n")[:-1]]
        self.stash.pop(name, None)
        self.store(name, File("", records), content)

    @precondition(lambda self: self.is_there and self.files)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        """Move a file away, or delete it."""
        name = data.draw(st.sampled_from(sorted(self.files)))
        self.lose(name)
        os.rename(self.folder / name, self.root / name)  # noqa: PTH104 - a place for each
        self.stash[name] = self.files.pop(name), self.clock.seconds
        self.replaced.discard(name)

    @precondition(lambda self: self.is_there and self.stash.keys() - self.files.keys())
    @rule(data=st.data())
    def bring_back(self, data: st.DataObject) -> None:
        """Bring back a file as it was: it is known, if no other file has replaced it meanwhile."""
        name = data.draw(st.sampled_from(sorted(self.stash.keys() - self.files.keys())))
        self.files[name], moved = self.stash.pop(name)
        os.rename(self.root / name, self.folder / name)  # noqa: PTH104
        self.returned.setdefault(name, moved)
        self.to_be_said.pop(name, None)
        if name in self.replaced or self.clock.seconds - moved > KNOWN_FOR:
            self.allow(self.files[name].content)

    def lose(self, name: str, left: str = "") -> None:
        """Note which records are lost if a file goes away, or is cut off."""
        file = self.files[name]
        self.touched.add(name)
        lines = file.lines if self.unfinished is UnfinishedLine.READ else file.records
        if any(line in file.seen and line not in self.planned for line in lines):
            # What was said to be lost, and is again, need not be said again.
            file.lost_at = len(self.said) if file.lost_at is None else file.lost_at
            self.to_be_said.setdefault(name, file.lost_at)
            if any(line in self.planned and line not in left.split("\n") for line in file.lines):
                self.begun.add(name)

    @precondition(lambda self: self.is_there)
    @rule(is_empty=st.booleans())
    def unmount(self, *, is_empty: bool) -> None:
        """Remove the folder, or put an empty folder in its place."""
        self.folder.rename(self.away)
        self.unmounted = self.clock.seconds
        if is_empty:
            self.folder.mkdir()

    @precondition(lambda self: not self.is_there)
    @rule()
    def mount(self) -> None:
        """Bring the folder back."""
        if self.folder.exists():
            self.folder.rmdir()
        self.away.rename(self.folder)
        if self.clock.seconds - self.unmounted > KNOWN_FOR and self.after is not AfterRead.KEEP:
            for file in self.files.values():  # an empty folder is nothing special then
                self.allow(file.content)

    # What happens to runs

    @rule(seconds=TIMES, steps=st.integers(0, 4))
    def work(self, seconds: float, steps: int) -> None:
        """Let time pass, and the run take some steps."""
        self.clock.seconds += seconds
        for _ in range(steps):
            if self.batch is None:
                self.plan()
            elif self.batch.got is None:
                self.compute()
            else:
                self.commit()

    @rule(is_bounded=st.booleans())
    def crash(self, *, is_bounded: bool) -> None:
        """Begin another run: with the offset that Spark has stored, or else with that of the source."""
        if not self.folder.exists():
            try:
                self.start(is_bounded=is_bounded)
            except ConnectorError as error:
                assert "does not exist" in str(error)  # noqa: PT017 - it may also be a bounded one
                self.mount()
        if self.batch is not None:
            self.batch.got = None
        self.start(is_bounded=is_bounded)

    @precondition(lambda self: self.batch is not None and not self.batch.is_logged)
    @rule()
    def crash_before_spark_knows(self) -> None:
        """Begin another run before Spark has stored a planned offset: the plan is the same again."""
        self.crash(is_bounded=self.is_bounded)
        self.plan()

    def plan(self) -> None:
        """Plan a micro-batch, or repeat a plan."""
        # A plan that is repeated comes from the checkpoint: the source does not look at the folder.
        may_look = self.batch is None and self.clock.seconds - self.looked > A_LOOK
        try:
            end = self.source.latest_offset(self.offset)
        except ConnectorError as error:
            self.fail(error)
            return
        if may_look and not (self.is_bounded and self.looked > 0):
            self.looked = self.clock.seconds
            for name, file in self.files.items() if self.is_there else ():
                file.seen.update(file.lines)
                if self.clock.seconds - self.returned.pop(name, self.clock.seconds) > KNOWN_FOR:
                    self.allow(file.content)
        self.look_for_taken()
        if self.batch is not None:
            assert end == self.batch.end
        elif end != self.offset:
            self.batch = Batch(end, self.rows(end))
            self.check_halves()
            self.planned.update(row for _, row in self.batch.rows)

    def compute(self) -> None:
        """Read the planned records; the source reports those that are missing."""
        batch = self.batch
        assert batch is not None
        batch.is_logged = True
        said = len(self.said)
        try:
            got = self.rows(batch.end)
        except ConnectorError as error:
            self.fail(error)
            return
        left = iter(got)
        row = next(left, None)
        for name, record in batch.rows:
            if row == (name, record):
                row = next(left, None)
            else:
                assert name in self.touched
                assert any(f"{self.folder}/{name} was" in text for text in self.said[said:])
                self.required[record] = 0
        assert row is None
        batch.got = got

    def commit(self) -> None:
        """Commit the records that were read."""
        assert self.batch is not None
        self.read.update(record for _, record in self.batch.got or ())
        for record, count in self.read.items():
            assert count <= self.allowed[record], f"{record} was read again"
        self.offset = self.committed = self.batch.end
        self.batch = None

    def rows(self, end: Offset) -> list[tuple[str, str]]:
        """Read a micro-batch."""
        found = []
        for task in self.source.tasks(self.offset, end):
            for batch in read_task(task):
                for row in batch.to_pylist():
                    headers = {each["key"]: each["value"] for each in row["headers"]}
                    found.append((Path(headers[PATH].decode()).name, row["value"].decode()))
        return found

    def check_halves(self) -> None:
        """Check that a last line is read without a line break only if its file has not changed for a while."""
        assert self.batch is not None
        still = 1 if self.is_bounded else 10
        for name, record in self.batch.rows:
            if record.startswith("h") and "e" not in record and record not in self.planned:
                file = self.files[name]
                if record in file.records:
                    continue
                assert file.rest == record, f"a half of {file.lines}"
                assert self.unfinished is UnfinishedLine.READ
                assert self.clock.seconds - file.changed >= still

    def look_for_taken(self) -> None:
        """Check that files are taken away only if they have not changed and their records are committed."""
        still = 1 if self.is_bounded else 10
        for name in [*self.files] if self.is_there else ():
            if not (self.folder / name).exists():
                file = self.taken[name] = self.files.pop(name)
                assert self.after is not AfterRead.KEEP
                assert self.clock.seconds - file.changed >= still
                for line in file.lines:
                    assert self.read[line] or not self.required[line], f"{line} was not read"
                if self.after is AfterRead.MOVE:
                    moved = (self.folder / "_read").glob(f"{name}*")
                    assert file.content in [each.read_text() for each in moved]

    def fail(self, error: ConnectorError) -> None:
        """Check that there is a reason for an error; do what it says, and begin another run."""
        self.said.append(str(error))
        if not self.is_there:
            assert "was deleted" not in str(error)
            self.mount()
            self.crash(is_bounded=self.is_bounded)
            return
        if "has no files" in str(error):
            assert not any(path.is_file() for path in self.folder.iterdir())
            self.write("z", 1)
            self.crash(is_bounded=self.is_bounded)
            return
        assert self.runs_on_change is OnChange.FAIL
        assert any(f"{self.folder}/{name} was" in str(error) for name in self.touched), str(error)
        self.crash(is_bounded=self.is_bounded)
        self.start(is_bounded=self.is_bounded, on_change=OnChange.GO_ON)

    def teardown(self) -> None:
        """Read all remaining records, and check that none is lost."""
        if not hasattr(self, "stack"):
            return
        with self.stack:
            if not self.is_there:
                self.mount()
            self.crash(is_bounded=False)
            self.start(is_bounded=False, on_change=OnChange.GO_ON)
            self.write("z", 1)  # so the folder is not taken for one that is not mounted
            idle = 0
            while idle < 3:
                idle += 1
                self.work(A_LOOK + 1, 1)
                if self.batch is not None:
                    idle = 0
            for name, file in self.files.items():
                for record in file.records:
                    assert self.read[record] >= self.required[record], f"{record} of {name} is lost"
            for name, before in self.to_be_said.items():
                reports = [text for text in self.said[before:] if f"{self.folder}/{name} " in text]
                assert reports, f"a loss in {name} was not reported"


# Tests of a change try the same examples each time, so that it is the change that fails. ``make fuzz``
# tries new ones, each night in CI; a failure prints its steps, and the decorator that repeats them.
NEW_EXAMPLES = int(os.environ.get("STATEFUN_FUZZ_CASES", "0")) // 100
"""An example has many steps and takes as long as a hundred cases of other tests."""

TestFileModel = FileMachine.TestCase
TestFileModel.settings = settings(
    max_examples=NEW_EXAMPLES or 100,
    stateful_step_count=40,
    deadline=None,
    derandomize=not NEW_EXAMPLES,
    database=None,
    print_blob=True,
)
