# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from statefun.engine.address_values import AddressValues
from statefun.engine.calls import (
    Call,
    call_for,
    failed_again,
    failed_message,
    failed_row,
    postponed_messages,
    waiting_row,
)
from statefun.engine.failures import RETRY, FailedMessage
from statefun.engine.groups import Columns, Group
from statefun.engine.row_flags import ENCODED, KEYLESS, REPLAYED
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.sdk.address import Address
from statefun.sdk.errors import FunctionError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.invocation_batch import FailedInvocation

CELLS = {"topic": "users", "partition": 1, "offset": 2, "timestamp": 3, "route": 4}
ERROR = FunctionError("bad")
TRACE = "traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def group_of(flags: int, value: bytes = b"v", typename: str = "t/v") -> Group:
    """Return an address with a record."""
    columns = Columns(
        [None], [typename], [value], [TRACE], [flags], cell=lambda name, _: _cell(name)
    )
    return Group(b"id\0t/f", columns, 0, 1, AddressValues(None))


def _cell(name: str) -> object:
    headers = json.dumps([{"key": "statefun-key"}]) if name == "headers" else None
    return CELLS.get(name, headers)


def call_of(group: Group, rows: Sequence[int] = range(1)) -> Call:
    """Return the call of the function at an address."""
    functions = StatefulFunctions()
    functions.register("t/f", lambda ctx, message: None)
    function = functions.for_typename("t/f")
    return call_for(group, Address("t", "f", "id"), function, rows, may_be_retried=True)


def failed(call: Call) -> FailedMessage:
    """Return the only message of a call as a failed one."""
    return failed_message(FailedInvocation(0, ERROR, "Error", ""), call)


@pytest.mark.parametrize("flags", [0, KEYLESS, ENCODED, KEYLESS | ENCODED])
def test_a_record_is_what_it_was_wherever_it_waits(flags: int) -> None:
    """Place, route, flags and trace of a record survive the wait in a state, and every kind of failure."""
    group = group_of(flags)
    origin = RecordOrigin(topic="users", partition=1, offset=2, timestamp=3, route=4)
    origin.keyless = bool(flags & KEYLESS)
    origin.headers.add(key="statefun-key")

    first = call_of(group)
    [postponed] = postponed_messages(first, 0)
    waited = call_of(group_of(0, postponed, RETRY))
    group.values.wait([waiting_row(group, 0)], 0)
    found = [
        failed_row(group, 0, ERROR),
        failed(first),
        failed_again(group, postponed, ERROR),
        failed(waited),
        failed(call_of(group, ())),
    ]

    assert [each.record for each in found] == [origin] * len(found)
    assert [each.is_encoded for each in found] == [bool(flags & ENCODED)] * len(found)
    assert [(each.typename, each.value) for each in found] == [("t/v", b"v")] * len(found)
    assert [each.trace for each in found] == [TRACE] * len(found)


def test_a_replayed_record_has_the_key_of_its_headers() -> None:
    """In records that are no replays, headers with our names have no meaning."""
    other, replayed = (group_of(flags).columns.record(0) for flags in (0, REPLAYED))

    assert other is not None
    assert replayed is not None
    assert (other.keyless, len(other.headers)) == (False, 1)
    assert (replayed.keyless, len(replayed.headers)) == (True, 0)
