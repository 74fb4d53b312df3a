# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from statefun.module.location import Location
from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.checkpoint.ingress_order import (
    CHECKPOINT_FORMAT,
    INGRESSES,
    check_format,
    in_order,
    write_order,
)
from statefun.sdk.address import TypeName
from statefun.sdk.errors import CheckpointError


def ingresses(*names: str) -> list[KafkaIngress]:
    """Return ingresses of these names."""
    nowhere = Location("module.yaml", 1, 1)
    return [KafkaIngress(TypeName("t", name), "kafka:9092", (), nowhere) for name in names]


def plan(folder: Folder, sources: int = 2) -> None:
    """Let Spark plan a batch."""
    offsets = b"\n".join([b"-"] * sources)
    folder.child("offsets").write("0", b'v1\n{}\n%s\n{"batch": -1, "tick": -1}' % offsets)


def names(found: Sequence[KafkaIngress]) -> list[str]:
    """Return the names of ingresses."""
    return [ingress.id.name for ingress in found]


def test_a_checkpoint_keeps_its_order(checkpoint: Path) -> None:
    """The order of the ingresses in a module file does not matter."""
    folder = Folder.at(checkpoint)

    write_order(folder, ingresses("b", "a", "c"))
    plan(folder, sources=3)
    assert names(in_order(folder, ingresses("a", "b", "c"))) == ["b", "a", "c"]


def test_a_first_start_that_failed_decides_nothing(checkpoint: Path) -> None:
    """Until Spark has planned a batch, the module file can change."""
    folder = Folder.at(checkpoint)
    write_order(folder, ingresses("a"))

    assert names(in_order(folder, ingresses("b", "a"))) == ["b", "a"]


def test_reading_the_order_writes_nothing(checkpoint: Path) -> None:
    """Tools read checkpoints as well, also those that do not exist."""
    in_order(Folder.at(checkpoint), ingresses("a"))

    assert not checkpoint.exists()


@pytest.mark.parametrize("now", [("a",), ("a", "b", "c"), ("a", "c")])
def test_other_ingresses_are_refused(checkpoint: Path, now: tuple[str, ...]) -> None:
    """The error names the former and the present ingresses, and a remedy."""
    folder = Folder.at(checkpoint)
    write_order(folder, ingresses("a", "b"))
    plan(folder)

    with pytest.raises(CheckpointError, match=r"reads from t/a, t/b, and the module files declare"):
        in_order(folder, ingresses(*now))


def test_a_foreign_checkpoint_is_refused(checkpoint: Path) -> None:
    """Either it belongs to another streaming query, or it is damaged."""
    folder = Folder.at(checkpoint)
    plan(folder)
    with pytest.raises(CheckpointError, match="was not made by statefun"):
        in_order(folder, ingresses("a"))

    folder.write("ingresses.json", b"{")
    with pytest.raises(CheckpointError, match=r"ingresses.json is damaged"):
        in_order(folder, ingresses("a"))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"format": CHECKPOINT_FORMAT + 1, "sources": [1]}, f"format {CHECKPOINT_FORMAT + 1}"),
        ({"format": f"{CHECKPOINT_FORMAT}"}, f"format '{CHECKPOINT_FORMAT}'"),
        ({"ingresses": ["t/a"]}, "no format number"),
        (["t/a"], "no format number"),
    ],
)
def test_a_checkpoint_of_another_format_is_refused(
    checkpoint: Path, content: object, found: str
) -> None:
    """The rest of the file does not matter; the error has both formats, and a remedy."""
    folder = Folder.at(checkpoint)
    write_framed(folder, INGRESSES, json.dumps(content).encode())

    with pytest.raises(
        CheckpointError,
        match=f"has {found}, .* reads only format {CHECKPOINT_FORMAT}: use a version",
    ):
        check_format(folder)


def test_a_new_checkpoint_gets_the_present_format(checkpoint: Path) -> None:
    """The format is written with the ingresses; before that, there is none to check."""
    folder = Folder.at(checkpoint)

    check_format(folder)
    write_order(folder, ingresses("a"))
    check_format(folder)

    assert json.loads(read_framed(folder, INGRESSES))["format"] == CHECKPOINT_FORMAT


@pytest.mark.parametrize(
    "content", [{"format": CHECKPOINT_FORMAT}, {"format": CHECKPOINT_FORMAT, "ingresses": 5}]
)
def test_a_file_without_a_list_of_ingresses_is_damaged(checkpoint: Path, content: object) -> None:
    """The error names the file."""
    folder = Folder.at(checkpoint)
    write_framed(folder, INGRESSES, json.dumps(content).encode())
    plan(folder, sources=1)

    with pytest.raises(CheckpointError, match=r"ingresses.json is damaged"):
        in_order(folder, ingresses("a"))
