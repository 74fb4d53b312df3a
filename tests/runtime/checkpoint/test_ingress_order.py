# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from statefun.module.location import Location
from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import in_order, write_order
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
    """Whoever sorts a module file changes nothing."""
    folder = Folder.at(checkpoint)

    write_order(folder, ingresses("b", "a", "c"))
    plan(folder, sources=3)
    assert names(in_order(folder, ingresses("a", "b", "c"))) == ["b", "a", "c"]


def test_a_first_start_that_failed_decides_nothing(checkpoint: Path) -> None:
    """Until Spark has planned a batch, the module file can change."""
    folder = Folder.at(checkpoint)
    write_order(folder, ingresses("a"))

    assert names(in_order(folder, ingresses("b", "a"))) == ["b", "a"]


def test_looking_writes_nothing(checkpoint: Path) -> None:
    """Tools look at checkpoints as well, also at such that there are not yet."""
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
    """One of another streaming query, or a damaged one."""
    folder = Folder.at(checkpoint)
    plan(folder)
    with pytest.raises(CheckpointError, match="was not made by statefun"):
        in_order(folder, ingresses("a"))

    folder.write("ingresses.json", b"{")
    with pytest.raises(CheckpointError, match=r"ingresses.json is damaged"):
        in_order(folder, ingresses("a"))
