# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import pickle
import re
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import KafkaHarness, run
from hypothesis import given
from hypothesis import strategies as st
from strategies import unicode_texts

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.inspect.unpublished import unpublished_records
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged
from statefun.runtime.checkpoint.playground_store import PlaygroundStore
from statefun.sdk.errors import ConfigurationError, StatefunError

ODD = "a b%20c%C3?d#e[f]{g},ü\N{SNOWMAN}+&="
"""A name with special characters of URIs, globs and shells."""


def names() -> st.SearchStrategy[str]:
    """Valid names of local files, with many special characters of URIs."""
    tricky = st.text(" %20?#&+:;=@[]{}*\\'\"ä€\N{SNOWMAN}", min_size=1, max_size=40)
    texts = st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=40
    )
    return (tricky | texts).filter(lambda name: name not in {".", ".."})


@given(name=names(), content=st.binary())
def test_what_is_written_is_there_until_it_is_removed(name: str, content: bytes) -> None:
    """A local file of any name can be written, listed, read and removed."""
    with tempfile.TemporaryDirectory() as root:
        folder = Folder.at(root).child("new").child("folder")

        folder.write(name, content)

        assert folder.names() == [name]
        assert folder.has(name)
        assert folder.read(name) == content
        assert Path(root, "new", "folder", name).read_bytes() == content
        folder.remove(name)
        assert folder.names() == []
        assert not folder.has(name)


@given(name=names(), inner=names())
def test_children_are_folders_of_any_name(name: str, inner: str) -> None:
    """A child's location is that of the file system; Spark gets it as it is, not escaped."""
    with tempfile.TemporaryDirectory() as root:
        child = Folder.at(root).child(name).child(inner)

        child.write("x", b"")

        assert child.location == f"{root}/{name}/{inner}"
        assert child.spark_uri == f"file:{root}/{name}/{inner}"
        assert Folder.at(root).names() == [name]
        assert Folder.at(root).child(name).names() == [inner]


@given(name=names())
def test_file_uris_are_decoded(name: str) -> None:
    """The URI of a local folder is the same folder as its path."""
    path = Path("/some where") / name

    folder = Folder.at(path.as_uri())

    assert folder == Folder.at(path)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:/a/b/", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("file:///a/b%2520c", "/a/b%20c"),
        ("a/b", "/work/a/b"),
        ("a:b", "/work/a:b"),
        ("file:a/b", "/work/a/b"),
    ],
)
def test_local_folders_are_absolute(
    location: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local folder becomes absolute, so that the working directory no longer matters."""
    monkeypatch.chdir(tmp_path)

    folder = Folder.at(location)

    assert folder.location == expected.replace("/work", str(tmp_path))
    assert folder.is_local


def test_nothing_is_there_before_something_was_written(tmp_path: Path) -> None:
    """A folder that does not exist is empty; only reading from it fails."""
    folder = Folder.at(tmp_path / "missing")

    assert folder.names() == []
    assert not folder.has("x")
    folder.remove("x")
    folder.remove_all()
    with pytest.raises(FileNotFoundError):
        folder.read("x")
    with pytest.raises(FileNotFoundError):
        folder.open("x")
    assert not (tmp_path / "missing").exists()


def test_remove_all_takes_everything_inside(tmp_path: Path) -> None:
    """Files and folders of any depth go, those beside the folder stay."""
    folder, beside = Folder.at(tmp_path / "one"), Folder.at(tmp_path / "one more")
    beside.write("x", b"stays")
    folder.write("x", b"goes")
    folder.child("a").child("b").write("x", b"goes")

    folder.remove_all()

    assert Folder.at(tmp_path).names() == ["one more"]
    assert beside.read("x") == b"stays"


def test_names_are_sorted(tmp_path: Path) -> None:
    """Names come in order, and folders are among them."""
    folder = Folder.at(tmp_path)
    for name in ("b", "10", "a", "9"):
        folder.write(name, b"")
    folder.child("aa").write("x", b"")

    assert folder.names() == ["10", "9", "a", "aa", "b"]


def test_readers_see_all_of_a_file_or_nothing(tmp_path: Path) -> None:
    """While a file is replaced over and over, every read gives one of its contents in full."""
    check_replacements(Folder.at(tmp_path), 300)


def test_readers_of_a_store_see_all_of_a_file_or_nothing(store: Folder) -> None:
    """Neither an object nor a file of HDFS is missing, or there in part, while it is replaced."""
    check_replacements(store, 60)


def check_replacements(folder: Folder, replacements: int) -> None:
    """Replace a file over and over, and check that each read meanwhile gives one of its contents in full."""
    contents = [bytes([number]) * 300_000 for number in range(3)]
    folder.write("file", contents[0])

    def replace() -> None:
        for number in range(replacements):
            folder.write("file", contents[number % 3])

    seen = set()
    with ThreadPoolExecutor(1) as thread:
        writer = thread.submit(replace)
        while not writer.done():
            seen.add(folder.read("file"))
        writer.result()

    assert seen <= set(contents)
    assert folder.names() == ["file"]


def test_a_file_is_on_the_disk_before_it_is_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so are the folders that were made for it, and at last its name."""
    root = tmp_path / "root"
    synced: list[tuple[str, bool]] = []

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path)
        name = re.sub(r"\.file\.[0-9a-f]{32}\.tmp", "TEMPORARY", str(path))
        synced.append((name, (root / "folder" / "file").exists()))
        fsync(descriptor)

    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", note)
    folder = Folder.at(root).child("folder")
    folder.write("file", b"content")
    first, synced[:] = synced[:], []
    folder.remove("file")
    folder.write("file", b"again")

    there = [("root/folder/TEMPORARY", False), ("root/folder", True)]
    assert first == [(".", False), ("root", False), *there]
    assert synced == there


def test_a_write_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another content nor a temporary file, which would fill a full disk attempt by attempt."""
    folder = Folder.at(tmp_path)
    folder.write("file", b"before")

    def full(descriptor: int) -> None:
        del descriptor
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            folder.write("file", b"after")

    assert folder.names() == ["file"]
    assert folder.read("file") == b"before"


def test_open_files_are_read_in_parts(tmp_path: Path) -> None:
    """An open file can be read piece by piece."""
    folder = Folder.at(tmp_path)
    folder.write("file", b"abcdef")

    with folder.open("file") as file:
        pieces = [file.read(4), file.read(4), file.read(4)]

    assert pieces == [b"abcd", b"ef", b""]


@given(location=unicode_texts().map("/{}".format))
def test_folders_travel_between_processes(location: str) -> None:
    """A pickled folder is the same folder, also when it has been used."""
    folder = Folder(location)
    used = Folder("/")
    used.has("tmp")

    assert pickle.loads(pickle.dumps(folder)) == folder
    assert pickle.loads(pickle.dumps(used)).has("tmp")
    assert hash(pickle.loads(pickle.dumps(folder))) == hash(folder)


def test_an_object_store_gets_complete_objects() -> None:
    """Without atomic renames, files are written in place, and nothing temporary appears."""
    folder = Folder.at("mock://bucket/")

    empty = folder.names()
    folder.write("b", b"old")
    folder.write("b", b"new")
    folder.write("a", b"")
    names = folder.names()
    folder.remove("a")
    folder.remove_several(["missing"])

    assert (empty, names, folder.names()) == ([], ["a", "b"], ["b"])
    assert folder.read("b") == b"new"
    assert not folder.has("a")
    with pytest.raises(FileNotFoundError):
        folder.read("a")


def test_locations_of_other_file_systems_stay_uris() -> None:
    """Spark gets the location as it was given; children are below it."""
    folder = Folder.at("mock://bucket/some/where/")

    child = folder.child("outbox")

    assert folder.spark_uri == "mock://bucket/some/where"
    assert (child.location, child.spark_uri) == (2 * ("mock://bucket/some/where/outbox",))
    assert not child.is_local
    assert pickle.loads(pickle.dumps(folder)) == folder


def test_options_of_a_file_system_stay_behind_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children have paths of their own, and the same options; Spark has others."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    options = "?endpoint_override=localhost%3A9000&scheme=http&region=none"
    folder = Folder.at(f"s3://bucket/some/where/{options}")

    child = folder.child("outbox").child("7")

    assert folder.location == f"s3://bucket/some/where{options}"
    assert child.location == f"s3://bucket/some/where/outbox/7{options}"
    assert child._files[1] == "some/where/outbox/7"  # noqa: SLF001 - asks no network
    assert child.spark_uri == "s3://bucket/some/where/outbox/7"


def test_a_question_mark_in_a_local_path_is_one() -> None:
    """A question mark is a valid character of a file's name."""
    child = Folder.at("/is it?/here").child("outbox")

    assert (child.location, child.spark_uri) == (
        "/is it?/here/outbox",
        "file:/is it?/here/outbox",
    )


def test_passwords_in_locations_are_refused() -> None:
    """They would be logged with the location; the error does not show them either."""
    with pytest.raises(ConfigurationError, match="must not have a password in it") as caught:
        Folder.at("s3a://KEY:SECRET@bucket/checkpoint")

    assert "KEY" not in str(caught.value).replace("AWS_SECRET_ACCESS_KEY", "")
    assert "SECRET@" not in str(caught.value)


def test_secrets_in_options_are_not_shown() -> None:
    """The query of a checkpoint's URI is for pyarrow alone: no error, log or repr has it."""
    secret = "plan7ed-s3cret"  # noqa: S105 - planted
    folder = Folder.at(f"mock:///nowhere/at/all?client_secret={secret}")
    shown = [repr(folder), repr(folder.child("outbox")), folder.shown, folder.child("a").spark_uri]
    for location in (f"nope://a/b?client_secret={secret}", f"s3://a b?secret_key={secret}"):
        with pytest.raises(ConfigurationError) as refused:
            Folder.at(location)
        shown += [str(refused.value), repr(refused.value.__cause__)]
    shown.append(str(damaged(folder, "a", "its checksum differs")))
    attempts: list[Callable[[], object]] = [
        lambda: PlaygroundStore(folder),
        lambda: list(unpublished_records(folder)),
    ]
    for attempt in attempts:
        with pytest.raises(StatefunError) as raised:
            attempt()
        shown.append(f"{raised.value} {raised.value!r}")

    assert not [text for text in shown if secret in text]
    assert folder.shown == "mock:///nowhere/at/all?client_secret=***"


def test_unknown_file_systems_are_refused() -> None:
    """The error says which location, and why."""
    with pytest.raises(ConfigurationError) as caught:
        Folder.at("nope://bucket/path")

    assert caught.value.message == (
        "folder 'nope://bucket/path' cannot be used: "
        "Unrecognized filesystem type in URI: nope://bucket/path"
    )


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_unknown_options_of_stores_are_refused(scheme: str) -> None:
    """Under each name of S3, an option with a typo is an error before any request."""
    location = f"{scheme}://bucket/path?regoin=here"

    with pytest.raises(ConfigurationError, match="the option regoin is not one of access_key"):
        Folder.at(location)


@pytest.mark.broker
@pytest.mark.spark
def test_spark_and_pyarrow_mean_the_same_folder(kafka: KafkaHarness, tmp_path: Path) -> None:
    """An application runs, and goes on, in a checkpoint with the oddest of names."""
    users, out = kafka.topic("users"), kafka.topic("out")
    functions = StatefulFunctions()

    @functions.bind("test.fns/count", specs=[ValueSpec("seen", IntType)])
    def count(ctx: Context, message: Message) -> None:
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=f"{ctx.storage.seen}"))

    module = kafka.module({users: ["test.fns/count"]})
    for value in ("a", "b"):
        kafka.send(users, [("Ada", value)])
        run(module, functions, tmp_path / ODD)

    assert [record.value for record in kafka.receive(out)] == ["1", "2"]
    assert [path.name for path in tmp_path.iterdir()] == [ODD]
    assert {"commits", "metadata", "state"} <= {path.name for path in (tmp_path / ODD).iterdir()}


def test_a_file_of_somebody_else_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First its content is synced, then its name; a missing file is ignored."""
    (tmp_path / "file").write_bytes(b"content")
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
    )

    Folder.at(tmp_path).sync("file")
    Folder.at(tmp_path).sync("other")

    assert synced == [str(tmp_path / "file"), str(tmp_path)]


def test_sizes_of_nested_files(tmp_path: Path) -> None:
    """Their paths are relative to the folder."""
    folder = Folder.at(tmp_path)
    folder.child("a").child("b").write("c", b"123")
    folder.write("d", b"")

    assert folder.sizes() == {"a/b/c": 3, "d": 0}
