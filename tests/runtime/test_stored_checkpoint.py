# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that earlier versions have left: this version goes on from them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from stored_checkpoint import CHECKPOINTS, DELAY, MADE, StoppedClock, step

from statefun import Address, IntType, StringType
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT
from statefun.runtime.spark.session import open_session
from statefun.runtime.stored.stored_state import stored_state


def test_there_is_a_checkpoint_of_the_present_format() -> None:
    """A version with another format stores one of its own; formats that it does not read go."""
    assert [each.name for each in CHECKPOINTS.iterdir()] == [f"format-{CHECKPOINT_FORMAT}"]


@pytest.mark.spark
def test_a_stored_checkpoint_goes_on(checkpoint: Path) -> None:
    """State, delayed messages, undelivered messages and the ingress's offset: each counts once."""
    shutil.copytree(CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}", checkpoint)

    early = step(checkpoint, ["remind", "pay"], StoppedClock(MADE + DELAY / 2))
    late = step(checkpoint, ["remind", "pay", "pay"], StoppedClock(MADE + 2 * DELAY))

    assert early.next_timer is not None
    assert MADE + DELAY * 0.99 < early.next_timer <= MADE + DELAY, "both delayed messages wait"
    assert early.invocations == 1, "the payment that was not delivered"
    assert late.invocations == 4, "two delayed messages, a command, and its payment"
    assert late.next_timer is not None, "the note expires"
    clock = StoppedClock(MADE + 2 * DELAY)
    session = open_session(debug=False, state_partitions=1, kafka=False)
    with stored_state(session, Folder.at(checkpoint)) as state:
        account = state.at(Address("test.fns/account", "Ada"), clock)
        ledger = state.at(Address("test.fns/ledger", "Ada"), clock)
        assert list(state.timers()) == []
    assert {name: value.typename for name, value in account.items()} == {
        "total": IntType.typename,
        "note": StringType.typename,
    }
    assert IntType.serializer().deserialize(account["total"].value or b"") == 1 + 1 + 10 + 100 + 1
    assert StringType.serializer().deserialize(account["note"].value or b"") == "reminded"
    assert IntType.serializer().deserialize(ledger["total"].value or b"") == 2000
