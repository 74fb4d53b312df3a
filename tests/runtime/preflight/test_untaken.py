# SPDX-License-Identifier: Apache-2.0
"""Waiting messages of types that the handlers of their function do not take."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import attrs
import pytest
from stored_checkpoint import CHECKPOINTS

from statefun import Context, IntType, Message, StatefulFunctions, StringType
from statefun.engine.delays import WAKE_UP
from statefun.inspect.stored_findings import checkpoint_findings
from statefun.module.model import Module
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT
from statefun.runtime.preflight.untaken import untaken
from statefun.runtime.preflight.waiting_messages import WaitingMessages, by_function

PING = "com.example/Ping"


@attrs.frozen
class Pong:
    """Had the name ``Ping``."""

    n: int


def functions(**takes: Any) -> StatefulFunctions:
    """Return functions by their names, each with the annotation of its values."""
    made = StatefulFunctions()
    for name, annotation in takes.items():

        def handle(ctx: Context, value: Any) -> None: ...

        handle.__annotations__["value"] = annotation
        made.register(f"test.fns/{name}", handle)
    return made


def test_messages_of_a_former_class_are_found() -> None:
    """With the line that mends it; types that a handler takes, and statefun's own messages, are no problem."""
    one = WaitingMessages(messages=1)
    waiting = {
        ("test.fns/typed", PING): WaitingMessages(messages=2),
        ("test.fns/typed", "com.other/Pong"): one,
        ("test.fns/typed", StringType.typename): one,
        ("test.fns/typed", ""): one,
        ("test.fns/typed", WAKE_UP): one,
    }
    waiting["test.fns/typed", PING].add_timer(1_000)

    assert list(untaken(waiting, functions(typed=str | Pong))) == [
        (
            "no handler of function test.fns/typed takes messages without a value, of which the checkpoint holds 1 "
            "message: each of them fails when its turn comes; the handlers take str, Pong: add one with .on(None)"
        ),
        (
            f"no handler of function test.fns/typed takes messages of type {PING}, of which the checkpoint holds 2 "
            "messages and 1 timer (due 1970-01-01 00:00:01 UTC): each of them fails when its turn comes; the handlers "
            "take str, Pong: add one with .on(...), or give a class this type, also one that was renamed: "
            f'make_json_type("{PING}", Pong)'
        ),
    ]


@pytest.mark.parametrize("annotation", [Message, Any, bytes | None])
def test_functions_that_take_all_messages_have_none(annotation: Any) -> None:
    """And functions that are not registered have another problem."""
    waiting = {(f"test.fns/{name}", PING): WaitingMessages(1) for name in ("any", "gone")}

    assert list(untaken(waiting, functions(any=annotation))) == []


def test_messages_of_several_types_count_together() -> None:
    """With the first and the last due time of all."""
    late, early = WaitingMessages(messages=1), WaitingMessages(messages=2)
    for due in (3_000, 4_000):
        late.add_timer(due)
    early.add_timer(1_000)

    together = by_function({("t/f", "a"): late, ("t/f", "b"): early, ("t/g", "a"): late})

    assert together == {"t/f": WaitingMessages(3, 3, 1_000, 4_000), "t/g": late}


@pytest.mark.spark
def test_a_checkpoint_is_read_for_the_types_of_its_messages(tmp_path: Path) -> None:
    """Delayed, cancellable and undelivered messages, before the start that would stop at them."""
    checkpoint = tmp_path / "stored"
    shutil.copytree(CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}", checkpoint)

    def errors(made: StatefulFunctions) -> list[str]:
        found = checkpoint_findings(Folder.at(checkpoint), Module(), made)
        return [each.problem.text for each in found if each.is_error]

    account, ledger = errors(functions(account=str, ledger=Pong))

    takes = f"takes messages of type {IntType.typename}, of which the checkpoint holds"
    assert account.startswith(f"no handler of function test.fns/account {takes} 2 timers (due 2026")
    assert ledger.startswith(f"no handler of function test.fns/ledger {takes} 1 message: each")
    assert errors(functions(account=str | int, ledger=Message)) == []
