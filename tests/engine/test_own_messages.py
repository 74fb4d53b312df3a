# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

import pytest
from micro_batches import KEY, START, SetClock

from statefun import Context, IntType, Message, StatefulFunctions, ValueSpec
from statefun.engine.address_values import AddressValues
from statefun.engine.chunks import KEPT
from statefun.engine.clock import BatchClock
from statefun.engine.delays import WAKE_UP
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.failures import RETRY
from statefun.engine.groups import Columns, Group
from statefun.engine.left_calls import LOST, RESULT
from statefun.engine.program import Program
from statefun.engine.repairs import DELETE, SET
from statefun.sdk.errors import CheckpointError


@pytest.mark.parametrize("typename", [SET, DELETE, KEPT, WAKE_UP, RETRY, RESULT, LOST])
def test_a_damaged_message_of_the_engine_is_named(typename: str) -> None:
    """With its address; a bare error of Protobuf would not say which checkpoint is damaged."""
    functions = StatefulFunctions()

    @functions.bind("t/f", [ValueSpec("count", IntType)])
    def count(ctx: Context, message: Message) -> None:
        """Do nothing."""

    dispatcher = Dispatcher(
        Program(functions, {}),
        BatchClock(SetClock(), START),
        batch=1,
        delivered_up_to=None,
        concurrency=1,
        immediate=10,
    )
    columns = Columns([None], [typename], [b"\xff"], [None], [0], cell=lambda *_: None)
    group = Group(KEY, columns, 0, 1, AddressValues(None), True)

    text = f"a message of type {typename} to t/f/Ada is damaged"
    with pytest.raises(CheckpointError, match=re.escape(text)):
        list(dispatcher.dispatch([group], Effects()))
