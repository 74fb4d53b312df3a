# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint says about one address: on a stored checkpoint, and on states of all forms."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from stored_checkpoint import CHECKPOINTS, DELAY, MADE, functions

from statefun import (
    Address,
    CheckpointError,
    ConfigurationError,
    IntType,
    StatefulFunctions,
    StringType,
)
from statefun.engine.address_keys import address_key
from statefun.engine.buckets import DELAYED
from statefun.engine.chunks import KEPT, chunk_key
from statefun.engine.wheel import bucket_for, bucket_key
from statefun.inspect.state_texts import sections
from statefun.protocol.runtime_pb2 import (
    AddressState,
    Bucket,
    DelayedMessage,
    Manifest,
    Retry,
    Segment,
    Waiting,
)
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.runtime.stored.address_report import AddressReport, address_report
from statefun.runtime.stored.committed_state import CommittedState, with_state
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.state_json import report_json

STORED = Folder.at(CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}")
ACCOUNT = Address("test.fns/account", "Ada")
KEY = address_key(ACCOUNT)
DUE = round((MADE + DELAY).timestamp() * 1000)
NOTHING_KNOWN = KnownValues([], None)


class Model(CommittedState):
    """A state that is in memory."""

    def __init__(self, states: Mapping[bytes, AddressState]) -> None:
        super().__init__(Folder.at("/nowhere"), 7, [])
        self.states = {key: state.SerializeToString() for key, state in states.items()}

    def get(self, key: bytes) -> bytes | None:
        """Return the state of an address."""
        return self.states.get(key)

    def containing(self, part: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the states of addresses whose keys contain ``part``."""
        return (pair for pair in self.states.items() if part in pair[0])


def stored_report(address: Address, batch: int | None = None) -> AddressReport:
    """Return what the stored checkpoint says about an address."""
    known = KnownValues.of(STORED, None)
    return with_state(
        STORED,
        batch,
        lambda state: address_report(state, address, known, is_newest=batch is None),
    )


def retry(number: int) -> bytes:
    """Return a message that waits."""
    value = IntType.serializer().serialize(number)
    waiting = Retry(attempts=number, caller=KEY, typename=IntType.typename, value=value)
    return waiting.SerializeToString()


@pytest.mark.parametrize("batch", [None, 1])
def test_values_and_timers_are_decoded(batch: int | None) -> None:
    """Of the newest batch through the log of timers, and of an older one by reading the whole state."""
    report = stored_report(ACCOUNT, batch)

    values = {value.name: value.decoded.value for value in report.values}
    assert values == {"total": 2 if batch is None else 1, "note": "reminded"}
    assert [value.expires > 0 for value in report.values] == [False, True]
    timers = [(each.due, each.token, each.decoded.value, each.caller) for each in report.timers]
    assert sorted(timers, key=lambda timer: timer[1]) == [
        (DUE, "", 10, ACCOUNT),
        (DUE, "token", 100, ACCOUNT),
    ]
    assert [report.waiting, report.undelivered, report.call] == [[], [], None]


def test_timers_are_found_while_an_egress_is_behind(tmp_path: Path) -> None:
    """Their batch is delivered, but stays in the outbox until its records are published; the log lacks its buckets."""
    stored = Folder.at(shutil.copytree(STORED.location, tmp_path / "stored"))
    buckets = TimerLog(stored).load().all()
    stored.child("timers").remove_all()
    stream = effect_stream(b"", 1)
    segment = Segment(partition=0, egress={"t/out": stream}, messages=stream, buckets=buckets)
    Outbox(stored).stage(Manifest(batch=0, query_id="query", segments=[segment], lanes=1))

    known = KnownValues.of(stored, None)
    report = with_state(
        stored, None, lambda state: address_report(state, ACCOUNT, known, is_newest=True)
    )

    assert sorted(each.token for each in report.timers) == ["", "token"]


def test_timers_of_event_time_are_named() -> None:
    """They come after those of the clock, whatever their times are, and JSON says so as well."""
    value = StringType.serializer().serialize("x")
    clock = DelayedMessage(due=9000, target=KEY, typename=StringType.typename, value=value)
    event = DelayedMessage()
    event.CopyFrom(clock)
    event.due, event.in_event_time = 1000, True
    content = Bucket(messages=[event, clock]).SerializeToString()
    bucket = AddressState.Value(name="1", typename=DELAYED, value=content)
    model = Model({bucket_key(bucket_for(9000, KEY)): AddressState(values=[bucket])})

    report = address_report(model, ACCOUNT, NOTHING_KNOWN, is_newest=False)

    ((_heading, rows),) = sections(report, 0)
    assert [row[0] for row in rows] == [
        "due (UTC)",
        "1970-01-01 00:00:09",
        "1970-01-01 00:00:01 event time",
    ]
    assert [each["in_event_time"] for each in report_json(report)["timers"]] == [False, True]


def test_undelivered_messages_are_found() -> None:
    """The ledger has no state yet, but a message is on its way to it."""
    report = stored_report(Address("test.fns/ledger", "Ada"))

    assert not report.values
    assert [message.decoded.value for message in report.undelivered] == [1000]
    assert stored_report(Address("test.fns/ledger", "Alan")).is_empty


def test_messages_wait_in_the_state_in_chunks_and_in_a_call() -> None:
    """They are in the order in which they will be handled."""
    state = AddressState(waiting=[retry(1), retry(2)], waiting_until=9)
    state.under_way.attempt, state.under_way.since = "attempt", 5
    state.under_way.messages.append(retry(7))
    state.stored.first, state.stored.end = -1, 1
    chunks = {}
    for number in (-1, 0):
        kept = Waiting(messages=[retry(number + 10)]).SerializeToString()
        value = AddressState.Value(name=KEPT, typename=KEPT, value=kept)
        chunks[chunk_key(KEY, number)] = AddressState(values=[value])
    model = Model({KEY: state, **chunks})

    report = address_report(model, ACCOUNT, NOTHING_KNOWN, is_newest=False)

    waiting = [(each.attempts, each.decoded.value) for each in report.waiting]
    assert waiting == [(1, 1), (2, 2), (9, 9), (10, 10)]
    assert report.waiting_until == 9
    assert report.call is not None
    assert (report.call.since, report.call.attempt) == (5, "attempt")
    assert [each.decoded.value for each in report.call.messages] == [7]


def test_a_damaged_state_names_its_address() -> None:
    """It is not taken for an empty one."""
    model = Model({})
    model.states[KEY] = b"\xff"

    with pytest.raises(CheckpointError, match=r"stored state of test\.fns/account/Ada"):
        address_report(model, ACCOUNT, NOTHING_KNOWN, is_newest=False)


def test_a_program_of_another_application_is_refused() -> None:
    """The program's own checkpoint is not."""
    other = StatefulFunctions()
    other.bind("other.fns/f")(lambda context, message: None)

    assert "test.fns/account" in KnownValues.of(STORED, functions()).typenames
    with pytest.raises(ConfigurationError, match=r"functions \(other.fns/f\) are not those of"):
        KnownValues.of(STORED, other)
