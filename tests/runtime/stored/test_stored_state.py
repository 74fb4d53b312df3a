# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.engine.address_keys import address_key
from statefun.engine.chunks import KEPT, chunk_key
from statefun.protocol.runtime_pb2 import AddressState, Retry, Waiting
from statefun.runtime.spark.session import open_session
from statefun.runtime.stored.stored_state import StoredState
from statefun.sdk.address import Address


@pytest.mark.spark
def test_messages_that_wait_for_calls_count_by_function_and_type() -> None:
    """In the state of their address, in its chunks, and in a call that goes on."""
    of_a, of_b = (Retry(typename=f"t/{each}", value=b"").SerializeToString() for each in "ab")
    nothing = Retry(typename="t/a").SerializeToString()
    key = address_key(Address("t.fns/f", "Ada"))
    state = AddressState(waiting=[of_a, of_a, nothing])
    state.under_way.messages.append(of_b)
    kept = Waiting(messages=[of_b, of_a]).SerializeToString()
    chunk = AddressState(values=[AddressState.Value(name=KEPT, typename=KEPT, value=kept)])
    rows = [
        (bytearray(each), bytearray(content.SerializeToString()))
        for each, content in [(key, state), (chunk_key(key, 0), chunk)]
    ]
    session = open_session(debug=False, state_partitions=None, kafka=False)

    stored = StoredState(session.createDataFrame(rows, "target binary, state binary"))

    assert stored.waiting() == {
        ("t.fns/f", "t/a"): 3,
        ("t.fns/f", "t/b"): 2,
        ("t.fns/f", ""): 1,
    }
