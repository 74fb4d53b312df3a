# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from micro_batches import SetClock

from statefun.engine.address_keys import address_key
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.calls.turns import Turns
from statefun.sdk.address import Address
from statefun.sdk.invocation_batch import Turn

ADA, ALAN = Address("t.fns/f", "Ada"), Address("t.fns/f", "Alan")
SERVER = "http://server"


def outcome(*suspects: Address, taken: bool = False) -> Outcome:
    """Return the outcome of a task with suspects of one server."""
    made = Outcome(has_taken_turn=taken)
    for suspect in suspects:
        made.suspects.add(address=address_key(suspect), server=SERVER)
    return made


@pytest.fixture
def clock() -> SetClock:
    """Return a clock that a test sets."""
    return SetClock()


def test_one_suspect_of_all_tasks_has_a_turn(clock: SetClock) -> None:
    """Each has one at some time; a micro-batch without suspects gives none."""
    turns = Turns(set, clock)
    assert turns.next() is None

    chosen = set()
    for _ in range(200):
        turns.choose([outcome(ADA), outcome(), outcome(ALAN)])
        chosen.add(turns.next())
    turns.choose([outcome(), outcome()])

    assert chosen == {Turn(ADA, SERVER), Turn(ALAN, SERVER)}
    assert turns.next() is None


def test_an_outage_in_company_leaves_the_turn(clock: SetClock) -> None:
    """All wait until calls of earlier micro-batches have ended; then the suspect is called alone, and others have turns."""
    busy = {SERVER, "http://other"}
    turns = Turns(lambda: busy, clock)
    turns.choose([outcome(ADA)])
    assert turns.next() == Turn(ADA, SERVER, has_company=True)

    turns.choose([outcome(ADA, taken=True), outcome(ALAN)])
    assert turns.next() == Turn(ADA, SERVER, has_company=True, waits=True)
    turns.choose([outcome(), outcome(ALAN)])
    assert turns.next() == Turn(ADA, SERVER, has_company=True, waits=True)
    busy.remove(SERVER)
    turns.choose([outcome(), outcome(ALAN)])
    assert turns.next() == Turn(ADA, SERVER)
    turns.choose([outcome(), outcome()])  # the server is down still
    assert turns.next() == Turn(ADA, SERVER)

    turns.choose([outcome(ALAN), outcome(taken=True)])
    assert turns.next() == Turn(ALAN, SERVER)


def test_a_turn_in_company_without_an_outage_is_over(clock: SetClock) -> None:
    """The suspect has been called, and is none any more, or has not been called at all."""
    for taken in (True, False):
        turns = Turns(lambda: {SERVER}, clock)
        turns.choose([outcome(ADA)])
        turns.next()

        turns.choose([outcome(taken=taken)])

        assert turns.next() is None


def test_a_suspect_waits_for_ten_seconds(clock: SetClock) -> None:
    """Other servers of a load balancer may go on for long: after that, an outage counts in any case."""
    turns = Turns(lambda: {SERVER}, clock)
    turns.choose([outcome(ADA)])
    turns.next()
    turns.choose([outcome(ADA, taken=True)])
    clock.stopwatch += 9_999
    assert turns.next() == Turn(ADA, SERVER, has_company=True, waits=True)

    clock.stopwatch += 1

    assert turns.next() == Turn(ADA, SERVER)


def test_a_suspect_keeps_its_turn_for_half_a_minute(clock: SetClock) -> None:
    """Its address may be gone, and others wait."""
    turns = Turns(lambda: {SERVER}, clock)
    turns.choose([outcome(ADA)])
    turns.next()
    turns.choose([outcome(ADA, taken=True)])
    clock.stopwatch += 29_999
    turns.choose([outcome()])
    assert turns.next() == Turn(ADA, SERVER)

    clock.stopwatch += 1
    turns.choose([outcome()])

    assert turns.next() is None
