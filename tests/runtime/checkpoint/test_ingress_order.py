# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.checkpoint.ingress_order import (
    CHECKPOINT_FORMAT,
    INGRESSES,
    IngressOrder,
    check_format,
)
from statefun.sdk.errors import CheckpointError


def test_the_file_has_what_was_written(checkpoint: Path) -> None:
    """Offsets of removed ingresses, and a change that is not finished, are kept."""
    order = IngressOrder(
        ["t/b", "t/a"],
        {"t/c": {"users": {"0": 7}}, "t/d": None},
        {"t/a": ["users", "logs.*"]},
        {8: [{"x": {"0": 1}}, None, {"batch": 7}]},
    )

    order.write(Folder.at(checkpoint))

    assert IngressOrder.read(Folder.at(checkpoint)) == order


def test_a_foreign_checkpoint_is_refused(checkpoint: Path) -> None:
    """Either it belongs to another streaming query, or its file is damaged."""
    folder = Folder.at(checkpoint)
    with pytest.raises(CheckpointError, match="was not made by statefun"):
        IngressOrder.read(folder)

    folder.write("ingresses.json", b"{")
    with pytest.raises(CheckpointError, match=r"ingresses.json is damaged"):
        IngressOrder.read(folder)


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
    IngressOrder(["t/a"]).write(folder)
    check_format(folder)

    assert json.loads(read_framed(folder, INGRESSES))["format"] == CHECKPOINT_FORMAT


@pytest.mark.parametrize(
    "content", [{"format": CHECKPOINT_FORMAT}, {"format": CHECKPOINT_FORMAT, "ingresses": 5}]
)
def test_a_file_without_a_list_of_ingresses_is_damaged(checkpoint: Path, content: object) -> None:
    """The error names the file."""
    folder = Folder.at(checkpoint)
    write_framed(folder, INGRESSES, json.dumps(content).encode())

    with pytest.raises(CheckpointError, match=r"ingresses.json is damaged"):
        IngressOrder.read(folder)
