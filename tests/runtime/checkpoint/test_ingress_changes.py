# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from two_step import Crash, Mounted

from statefun.module.connectors import ConnectorIngress
from statefun.module.location import Location
from statefun.module.model import KafkaIngress
from statefun.module.topic_routes import TopicRoute
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_changes import (
    change_order,
    committed_ends,
    finish_change,
    in_order,
)
from statefun.runtime.checkpoint.ingress_order import IngressOrder, source_name, topics_of_ingress
from statefun.sdk.address import TypeName
from statefun.sdk.errors import CheckpointError

NOWHERE = Location("module.yaml", 1, 1)
Declared = KafkaIngress | ConnectorIngress


def kafka(
    name: str, *topics: str, pattern: str = "", partitions: tuple[int, ...] = ()
) -> KafkaIngress:
    """Return an ingress that reads topics; without any, it reads the topic of its own name."""
    id_ = TypeName("t", name)
    routes = [
        TopicRoute(topic, id_, (), NOWHERE, partitions=partitions) for topic in topics or (name,)
    ]
    if pattern:
        routes = [TopicRoute(pattern, id_, (), NOWHERE, is_pattern=True)]
    return KafkaIngress(id_, "kafka:9092", tuple(routes), NOWHERE)


def connector(name: str, kind: str = "example/ingress", source: str = "folder") -> ConnectorIngress:
    """Return an ingress that a connector reads."""
    id_ = TypeName("t", name)
    route = TopicRoute(source, id_, (), NOWHERE)
    return ConnectorIngress(id_, kind, (route,), NOWHERE, "example:read")


def begin(
    folder: Folder, ingresses: Sequence[Declared], ends: Sequence[dict[str, Any] | None]
) -> None:
    """Let a first run read the ingresses, in one committed batch."""
    topics = {source_name(each): topics_of_ingress(each) for each in ingresses}
    IngressOrder([*topics], topics=topics).write(folder)
    plan(folder, 0, ends)
    folder.child("commits").write("0", b"v1\n{}")


def plan(folder: Folder, batch: int, ends: Sequence[dict[str, Any] | None]) -> None:
    """Let Spark plan a batch with these end offsets of ingresses."""
    lines = ["-" if end is None else json.dumps(end) for end in ends]
    content = "\n".join(["v1", "{}", *lines, json.dumps({"batch": batch - 1, "tick": -1})])
    folder.child("offsets").write(str(batch), content.encode())


def names(ingresses: Sequence[Declared]) -> list[str]:
    """Return the names of ingresses."""
    return [ingress.id.name for ingress in ingresses]


def test_the_order_of_module_files_does_not_matter(checkpoint: Path) -> None:
    """The checkpoint keeps the order of its sources; new ingresses come after those of their kind."""
    folder = Folder.at(checkpoint)
    ingresses: list[Declared] = [kafka("a"), kafka("b"), connector("k")]
    more: list[Declared] = [kafka("z"), *ingresses[:2], connector("j", "e/j"), ingresses[2]]
    begin(folder, [kafka("b"), kafka("a"), connector("k")], [None, None, None])

    assert names(in_order(folder, ingresses)) == ["b", "a", "k"]
    assert names(in_order(folder, more)) == ["b", "a", "z", "k", "j"]


def test_a_first_start_that_failed_decides_nothing(checkpoint: Path) -> None:
    """Until Spark has planned a batch, the module file can change."""
    folder = Folder.at(checkpoint)
    IngressOrder(["t/a"]).write(folder)

    assert names(in_order(folder, [kafka("b"), kafka("a")])) == ["b", "a"]


def test_reading_the_order_writes_nothing(checkpoint: Path) -> None:
    """Tools read checkpoints as well, also those that do not exist."""
    in_order(Folder.at(checkpoint), [kafka("a")])

    assert not checkpoint.exists()


def test_ingresses_do_not_change_before_the_first_commit(checkpoint: Path) -> None:
    """Where the first micro-batch begins is known only to Spark, so it has to run first."""
    folder = Folder.at(checkpoint)
    IngressOrder(["t/a"]).write(folder)
    plan(folder, 0, [{"a": {"0": 1}}])

    with pytest.raises(CheckpointError, match="planned its first micro-batch, and has not"):
        in_order(folder, [kafka("a"), kafka("b")])
    with pytest.raises(CheckpointError, match="planned its first micro-batch, and has not"):
        change_order(folder, [kafka("a", "a", "more")], [{"more": {"0": 70}}])
    assert names(in_order(folder, [kafka("a")])) == ["a"]


def test_a_removed_ingress_goes_on_when_it_comes_back(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its offset is that of the newest committed batch, however long it was away."""
    folder, log = Folder.at(checkpoint), CommitLog(Folder.at(checkpoint))
    begin(folder, [kafka("a"), kafka("b")], [{"a": {"0": 3}}, {"b": {"0": 5}}])
    plan(folder, 1, [{"a": {"0": 4}}, {"b": {"0": 9}}])  # is not committed

    with caplog.at_level(logging.INFO, "statefun"):
        change_order(folder, in_order(folder, [kafka("a")]), [None])
        removed = log.end_offsets(0), log.end_offsets(1)
        change_order(folder, in_order(folder, [kafka("a"), kafka("b")]), [None, None])

    assert [each[:-1] for each in removed] == [[{"a": {"0": 3}}], [{"a": {"0": 4}}]]
    assert log.end_offsets(0)[:-1] == [{"a": {"0": 3}}, {"b": {"0": 5}}]
    assert log.end_offsets(1)[:-1] == [{"a": {"0": 4}}, {"b": {"0": 5}}]
    assert [text.partition(";")[0] for text in caplog.messages] == [
        "ingress t/b is no longer declared",
        "ingress t/b is declared again, and goes on where the checkpoint has stopped",
    ]


def test_a_new_ingress_begins_where_it_is_told(checkpoint: Path) -> None:
    """All batches in the log have its starting offset, also a planned one: it reads nothing of the ingress."""
    folder, log = Folder.at(checkpoint), CommitLog(Folder.at(checkpoint))
    begin(folder, [kafka("a")], [{"a": {"0": 3}}])
    plan(folder, 1, [{"a": {"0": 4}}])

    ordered = in_order(folder, [kafka("b"), kafka("a")])
    change_order(folder, ordered, [None, {"b": {"0": 70}}])

    assert committed_ends(folder, ordered) == [{"a": {"0": 3}}, {"b": {"0": 70}}]
    assert log.end_offsets(1)[:-1] == [{"a": {"0": 4}}, {"b": {"0": 70}}]


def test_new_topics_begin_where_they_are_told(checkpoint: Path) -> None:
    """The topics that were read before keep their offsets."""
    folder = Folder.at(checkpoint)
    begin(folder, [kafka("a")], [{"a": {"0": 3}}])

    change_order(folder, [kafka("a", "a", "more")], [{"more": {"0": 70}}])

    assert committed_ends(folder, [kafka("a")]) == [{"a": {"0": 3}, "more": {"0": 70}}]


@pytest.mark.parametrize(
    ("former", "new", "is_refused"),
    [
        (kafka("a", "users"), kafka("b", "users", "orders"), True),
        (kafka("a", "users"), kafka("b", pattern="us.*"), True),
        (kafka("a", "users"), kafka("b", "orders"), False),
        (kafka("a", "users", partitions=(0,)), kafka("b", "users", partitions=(1,)), False),
        (connector("a"), connector("b"), True),
        (connector("a"), connector("b", source="another"), False),
        (connector("a"), connector("a", "another/kind"), True),
        (connector("a"), connector("b", "another/kind"), False),
        (connector("a"), kafka("b", "log"), False),
        (kafka("a", "users"), connector("b"), False),
    ],
)
@pytest.mark.parametrize("is_removed_first", [True, False])
def test_a_person_decides_whether_an_ingress_was_renamed(
    checkpoint: Path, former: Declared, new: Declared, *, is_refused: bool, is_removed_first: bool
) -> None:
    """If a new ingress reads what a former one has read, its records would be read twice, or left out."""
    folder = Folder.at(checkpoint)
    end = {"users": {"0": 3}} if isinstance(former, KafkaIngress) else {"log": 3}
    begin(folder, [former], [end])
    if is_removed_first:
        change_order(folder, in_order(folder, []), [])

    if is_refused:
        with pytest.raises(CheckpointError, match=r"has read in .*statefun ingress forget"):
            in_order(folder, [new])
    else:
        assert in_order(folder, [new]) == [new]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([kafka("a", "x"), kafka("b", "y")], kafka("a", "x", "y")),
        (
            [kafka("a", "x", partitions=(1,)), kafka("b", "x", partitions=(0,))],
            kafka("a", "x", partitions=(0, 1)),
        ),
    ],
)
def test_a_person_decides_about_the_records_of_a_merged_ingress(
    checkpoint: Path, before: list[KafkaIngress], after: KafkaIngress
) -> None:
    """If an ingress takes over what another one has read, it does not know how far that one was read."""
    folder = Folder.at(checkpoint)
    begin(
        folder,
        before,
        [{before[0].topics[0].topic: {"1": 3}}, {before[1].topics[0].topic: {"0": 5}}],
    )

    with pytest.raises(
        CheckpointError, match=r"what ingress t/b has read .*; declare ingress t/b again, or delete"
    ):
        in_order(folder, [after])
    assert in_order(folder, [after, before[1]]) == [after, before[1]]


def test_an_ingress_that_has_read_nothing_is_remembered(checkpoint: Path) -> None:
    """A connector may have files for it, which a person has to be able to delete."""
    folder = Folder.at(checkpoint)
    begin(folder, [connector("k")], [None])

    change_order(folder, [], [])

    assert IngressOrder.read(folder).removed == {"t/k (example/ingress)": None}


def test_a_log_that_lacks_an_offset_is_an_error(checkpoint: Path) -> None:
    """The error names the file; nothing is changed."""
    folder = Folder.at(checkpoint)
    begin(folder, [kafka("a"), kafka("b")], [{"a": {"0": 3}}])

    with pytest.raises(CheckpointError, match=r"offsets/0 has the offsets of 1 ingresses"):
        change_order(folder, [kafka("a")], [None])
    assert IngressOrder.read(folder).names == ["t/a", "t/b"]


def test_a_change_outlives_a_crash_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start finds the old sources or the new ones, never a mixture."""
    mounted = Mounted(tmp_path, monkeypatch)
    before, after = [kafka("a"), kafka("b")], [kafka("b"), kafka("c")]
    found = set()
    for steps in range(100):
        whole = mounted.crashing(None)
        begin(whole, before, [{"a": {"0": 3}}, {"b": {"0": 5}}])
        plan(whole, 1, [{"a": {"0": 4}}, {"b": {"0": 6}}])
        has_crashed = False
        try:
            change_order(mounted.crashing(steps), after, [None, {"c": {"0": 70}}])
        except Crash:
            has_crashed = True
        whole = mounted.crashing(None)
        CommitLog(whole).finish_rewriting()
        finish_change(whole)
        order, log = IngressOrder.read(whole), CommitLog(whole)
        state = tuple(order.names), *(json.dumps(log.end_offsets(batch)[:-1]) for batch in (0, 1))
        found.add((state, json.dumps(order.removed)))
        if not has_crashed:
            break

    old = (
        ("t/a", "t/b"),
        '[{"a": {"0": 3}}, {"b": {"0": 5}}]',
        '[{"a": {"0": 4}}, {"b": {"0": 6}}]',
    )
    new = (
        ("t/b", "t/c"),
        '[{"b": {"0": 5}}, {"c": {"0": 70}}]',
        '[{"b": {"0": 6}}, {"c": {"0": 70}}]',
    )
    assert found == {(old, "{}"), (new, '{"t/a": {"a": {"0": 3}}}')}


class EditedCheckpoint:
    """A checkpoint whose module file is edited at random, and what each of its ingresses has read."""

    def __init__(self, seed: int, mounted: Mounted) -> None:
        self._random = random.Random(seed)
        self._mounted = mounted
        self._all: list[Declared] = [
            *(kafka(name) for name in "abcdef"),
            *(connector(n, f"e/{n}") for n in "xyz"),
        ]
        self._ends: dict[str, dict[str, Any] | None] = {}
        """The committed end offset of each ingress that was ever a source."""
        self._batch = 0

    def begin(self) -> None:
        """Let the first run read some ingresses."""
        declared = self._declared()
        self._ends = {source_name(each): self._start(each) for each in declared}
        begin(self._mounted.crashing(None), declared, [*self._ends.values()])

    def edit(self) -> None:
        """Start once with other ingresses, after some crashes; then read some records."""
        declared = self._declared()
        starts: dict[str, dict[str, Any] | None] = {}
        while True:
            steps = self._random.choice([None, self._random.randrange(60)])
            try:
                ordered = self._start_with(self._mounted.crashing(steps), declared, starts)
            except Crash:
                continue
            break
        self._ends = {**starts, **self._ends}
        assert committed_ends(self._mounted.crashing(None), ordered) == [
            self._ends[source_name(each)] for each in ordered
        ]
        self._read(ordered)

    def _start_with(
        self,
        folder: Folder,
        declared: Sequence[Declared],
        starts: dict[str, dict[str, Any] | None],
    ) -> list[Declared]:
        CommitLog(folder).finish_rewriting()
        finish_change(folder)
        ordered = in_order(folder, declared)
        for each, end in zip(ordered, committed_ends(folder, ordered), strict=True):
            if end is None and source_name(each) not in self._ends:
                starts.setdefault(source_name(each), self._start(each))
        change_order(
            folder,
            ordered,
            [starts.get(source_name(each)) for each in ordered],
        )
        return ordered

    def _read(self, ordered: Sequence[Declared]) -> None:
        """Let Spark plan a batch, and perhaps commit it."""
        folder = self._mounted.crashing(None)
        ends = [*committed_ends(folder, ordered)]
        for number, each in enumerate(ordered):
            if self._random.random() < 0.7:
                ends[number] = _advanced(each, ends[number])
        plan(folder, self._batch + 1, ends)
        folder.child("offsets").remove(str(self._batch - 3))  # as Spark does, but later
        if self._random.random() < 0.7:
            self._batch += 1
            folder.child("commits").write(str(self._batch), b"v1\n{}")
            self._ends.update(
                {source_name(each): end for each, end in zip(ordered, ends, strict=True)}
            )

    def _declared(self) -> list[Declared]:
        chosen: list[Declared] = [each for each in self._all if self._random.random() < 0.5]
        self._random.shuffle(chosen)
        return sorted(chosen, key=lambda each: isinstance(each, ConnectorIngress))

    def _start(self, ingress: Declared) -> dict[str, Any] | None:
        if isinstance(ingress, ConnectorIngress):
            return None
        return {ingress.id.name: {"0": self._random.randrange(1000)}}


def _advanced(ingress: Declared, end: dict[str, Any] | None) -> dict[str, Any]:
    if isinstance(ingress, ConnectorIngress):
        return {"log": (end or {"log": 0})["log"] + 1}
    assert end is not None
    return {ingress.id.name: {"0": end[ingress.id.name]["0"] + 1}}


@pytest.mark.parametrize("seed", range(20))
def test_edits_never_change_how_far_an_ingress_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A thousand random edits in all, with crashes at any step of them, and of the runs between them."""
    edited = EditedCheckpoint(seed, Mounted(tmp_path, monkeypatch))
    edited.begin()

    for _ in range(50):
        edited.edit()
