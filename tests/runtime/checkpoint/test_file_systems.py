# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from two_step import Countdown, Crash, Mounted, TwoStepSystem, files

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.file_systems import ArrowFiles, files_of
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.checkpoint.ingress_order import INGRESSES
from statefun.sdk.errors import ConfigurationError

NAMES = ["a", "b", "part/c"]


def opened(
    root: Path, before: Callable[[str], None] = lambda step: None, *, is_strict: bool = False
) -> Folder:
    """Return the folder "folder" on such a file system."""
    folder = Folder("two-step:/folder")
    folder.__dict__["_files"] = (files(root, before, is_strict=is_strict), "folder")
    return folder


def seen(root: Path) -> dict[str, bytes]:
    """Return the contents of all files that a new process sees, whichever way it looks."""
    folder = opened(root)
    found = {}
    for name in NAMES:
        try:
            found[name] = folder.read(name)
        except FileNotFoundError:
            continue
    assert {name for name in NAMES if folder.has(name)} == set(found)
    listed = {name: facts for name, facts in folder.files().items() if name in NAMES}
    assert listed == {name: folder.facts(name) for name in found if "/" not in name}
    sizes = {name: facts.size for name, facts in listed.items()}
    assert sizes == {name: len(content) for name, content in found.items() if "/" not in name}
    assert [name for name in folder.names() if name in NAMES] == sorted(sizes)
    return found


Operation = tuple[str, str, str]


def carry_out(folder: Folder, operation: Operation) -> None:
    """Carry out an operation on a folder."""
    kind, name, argument = operation
    if kind == "write":
        folder.write(name, argument.encode())
    elif kind == "remove":
        folder.remove(name)
    elif kind == "move":
        folder.move(name, argument)
    else:
        folder.finish_replacing()


def outcome(before: Mapping[str, bytes], operation: Operation) -> dict[str, bytes] | None:
    """Return the files after an operation on a plain dict; None if it is refused."""
    kind, name, argument = operation
    after = dict(before)
    if kind == "write":
        after[name] = argument.encode()
    elif kind == "remove":
        after.pop(name, None)
    elif kind == "move":
        if name not in after:
            return None
        after[argument] = after.pop(name)
    return after


def possible(before: dict[str, bytes], operation: Operation) -> Iterator[dict[str, bytes]]:
    """List the files that there may be after a crash within an operation."""
    yield before
    after = outcome(before, operation)
    if after is not None:
        yield after
        if operation[0] == "move":  # the target was deleted, and the file has its old name
            yield {name: content for name, content in before.items() if name != operation[2]}


def operations() -> st.SearchStrategy[Operation]:
    """Operations on few names, with contents of few lengths."""
    name, content = st.sampled_from(NAMES), st.sampled_from(["", "1", "22", "333333"])
    pairs = st.permutations(NAMES).map(lambda names: ("move", names[0], names[1]))
    return (
        st.tuples(st.just("write"), name, content)
        | st.tuples(st.just("remove"), name, st.just(""))
        | pairs
        | st.just(("finish", "", ""))
    )


@given(
    steps=st.lists(st.tuples(operations(), st.none() | st.integers(0, 9)), max_size=12),
    is_strict=st.booleans(),
)
def test_files_are_old_or_new_after_each_crash(
    steps: list[tuple[Operation, int | None]], *, is_strict: bool
) -> None:
    """On a file system that replaces files in two steps, no crash loses a file or brings one back."""
    with tempfile.TemporaryDirectory() as root:
        model: dict[str, bytes] = {}
        for operation, crash in steps:
            after = outcome(model, operation)
            try:
                folder = opened(Path(root), Countdown(crash), is_strict=is_strict)
                carry_out(folder, operation)
            except Crash:
                assert seen(Path(root)) in possible(model, operation)
                model = seen(Path(root))
            except FileNotFoundError:
                assert after is None
            else:
                assert after is not None
                model = after
            assert seen(Path(root)) == model


@pytest.mark.parametrize(
    "operation",
    [
        ("write", "a", "new"),
        ("write", "b", "new"),
        ("remove", "a", ""),
        ("move", "a", "b"),
        ("move", "a", "part/c"),
        ("move", "part/c", "a"),
    ],
    ids=["replace", "create", "remove", "move", "replace by it", "replace by another"],
)
@pytest.mark.parametrize("earlier", range(9))
def test_a_crash_at_any_step_leaves_the_old_or_the_new_file(
    operation: Operation, earlier: int, tmp_path: Path
) -> None:
    """This holds wherever the operation ends, also if an earlier one has crashed."""
    crashes = 0
    while True:
        root = tmp_path / str(crashes)
        root.mkdir()
        opened(root).write("a", b"old")
        opened(root).write("part/c", b"another")
        with suppress(Crash):
            opened(root, Countdown(earlier)).write("a", b"never reported")
        before = seen(root)
        assert before.pop("a") in {b"old", b"never reported"}
        before = seen(root)
        try:
            carry_out(opened(root, Countdown(crashes)), operation)
        except Crash:
            assert seen(root) in possible(before, operation)
            crashes += 1
        else:
            assert seen(root) == outcome(before, operation)
            opened(root, is_strict=True).write("a", b"again")
            assert opened(root).read("a") == b"again"
            break
        carry_out(opened(root), ("finish", "", ""))
        assert seen(root) in possible(before, operation)
        assert not [path for path in root.rglob("*") if path.name.endswith("-next")]
    assert crashes > 0


@pytest.mark.parametrize(
    "reads", [Folder.read, Folder.has, lambda *file: Folder.facts(*file) is not None]
)
def test_readers_find_a_file_while_it_is_replaced(
    reads: Callable[[Folder, str], object], tmp_path: Path
) -> None:
    """Steps of a writer and of a reader may alternate in any way."""
    for writers in range(9):
        for readers in range(4):
            root = tmp_path / f"{writers}-{readers}"
            root.mkdir()
            opened(root).write("a", b"old")
            found = _alternated(root, writers, readers, reads)
            assert found in (b"old", b"new", True)
            assert opened(root).read("a") == b"new"


def _alternated(
    root: Path, writers: int, readers: int, reads: Callable[[Folder, str], object]
) -> object:
    """Let a writer take so many steps, then a reader, then the writer the others, and so on."""
    is_waiting, goes_on = threading.Event(), threading.Event()
    steps = {"writer": 0, "reader": 0}

    def write_step(step: str) -> None:
        if step != "read":
            if steps["writer"] == writers:
                is_waiting.set()
                goes_on.wait()
            steps["writer"] += 1

    def replace() -> None:
        opened(root, write_step).write("a", b"new")
        is_waiting.set()

    writer = threading.Thread(target=replace)
    writer.start()

    def read_step(step: str) -> None:
        if steps["reader"] == readers:
            goes_on.set()
            writer.join()
        steps["reader"] += 1

    is_waiting.wait()
    try:
        return reads(opened(root, read_step), "a")
    finally:
        goes_on.set()
        writer.join()


def test_spark_finds_offsets_whose_rewriting_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log knows the batch at once; after it has finished that, the file has its own name again."""
    mounted = Mounted(tmp_path, monkeypatch)
    offsets = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n{"t":{"0":9}}'
    mounted.crashing(None).child("offsets").write("0", offsets)
    mounted.crashing(None).child("commits").write("0", b"v1\n{}")
    file = tmp_path / "checkpoint" / "offsets" / "0"

    were_missing = 0
    for steps in range(12):
        try:
            CommitLog(mounted.crashing(steps)).rewrite_offsets([{"t": {"0": 5}}])
        except Crash:
            were_missing += not file.exists()
        log = CommitLog(mounted.crashing(None))
        assert log.planned() == 0
        assert log.end_offsets(0) in ([{"t": {"0": 9}}], [{"t": {"0": 5}}])
        log.finish_rewriting()
        assert file.exists()

    assert were_missing
    assert CommitLog(mounted.crashing(None)).end_offsets(0) == [{"t": {"0": 5}}]


def test_framed_files_are_replaced_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each crash, the order of the ingresses is the old one or the new one."""
    mounted = Mounted(tmp_path, monkeypatch)
    crashes = 0
    while True:
        write_framed(mounted.crashing(None), INGRESSES, b"old")
        try:
            write_framed(mounted.crashing(crashes), INGRESSES, b"the new one")
        except Crash:
            crashes += 1
            assert read_framed(mounted.crashing(None), INGRESSES) in (b"old", b"the new one")
        else:
            break

    assert crashes > 4
    assert read_framed(mounted.crashing(None), INGRESSES) == b"the new one"


@pytest.mark.parametrize(
    ("make", "is_replaced_in_one_step"),
    [
        (fs.LocalFileSystem, True),
        (lambda: fs.FileSystem.from_uri("mock://bucket")[0], True),
        (lambda: fs.S3FileSystem(region="none", anonymous=True), True),
        (lambda: fs.GcsFileSystem(anonymous=True), True),
        (lambda: fs.AzureFileSystem(account_name="none", account_key="a2V5"), False),
        (lambda: fs.PyFileSystem(TwoStepSystem(Path("/"))), False),
    ],
    ids=["local", "mock", "s3", "gcs", "azure", "other"],
)
def test_second_names_are_for_file_systems_that_need_them(
    make: Callable[[], fs.FileSystem], *, is_replaced_in_one_step: bool
) -> None:
    """Local disks and stores of whole objects get no further requests."""
    assert (type(files_of(make())) is ArrowFiles) == is_replaced_in_one_step


def test_a_file_system_that_cannot_rename_is_refused(tmp_path: Path) -> None:
    """Before anything is written under the file's own name."""

    def without_rename(step: str) -> None:
        if step == "rename":
            raise NotImplementedError("not without hierarchical namespace")

    with pytest.raises(ConfigurationError) as refused:
        opened(tmp_path, without_rename).write("a", b"1")

    assert "folder/a cannot be written, since its file system does not rename files" in str(
        refused.value
    )
    assert not opened(tmp_path).has("a")


def test_a_missing_file_cannot_be_moved(tmp_path: Path) -> None:
    """Also where the file system would not say that it is missing."""
    with pytest.raises(FileNotFoundError, match="folder/a"):
        opened(tmp_path).move("a", "b")


def test_sizes_are_those_of_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that a crash has left under its second name alone has its own name."""
    mounted = Mounted(tmp_path, monkeypatch)
    inner = mounted.crashing(None).child("a")
    inner.write("b", b"old")
    steps = 0
    while (tmp_path / "checkpoint" / "a" / "b").exists():
        with pytest.raises(Crash):
            mounted.crashing(steps).child("a").write("b", b"longer")
        steps += 1

    sizes = mounted.crashing(None).sizes()
    assert {path: size for path, size in sizes.items() if not path.endswith(".tmp")} == {"a/b": 6}
