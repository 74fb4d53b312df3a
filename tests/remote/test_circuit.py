# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from statefun.remote.circuit import (
    FEW_FAILURES,
    LONGEST_PAUSE,
    PATIENCE,
    SHORTEST_PAUSE,
    Circuit,
    EndpointDownError,
)
from statefun.sdk.invocation_batch import CircuitReport


class Endpoint:
    """An endpoint whose state the test sets, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.problem: str | None = "is down"
        self.asked = 0
        self.reports: dict[str, CircuitReport] = {}
        self.circuit = Circuit("http://it", self.reports, lambda: self.now)

    async def probe(self) -> str | None:
        """Return its problem, if it has one."""
        self.asked += 1
        await asyncio.sleep(0)
        return self.problem

    def fail(self, seconds: float = PATIENCE.total_seconds()) -> None:
        """Let attempts fail, often and for long enough."""
        for _ in range(FEW_FAILURES):
            self.circuit.not_reached("is down")
            self.now += seconds / (FEW_FAILURES - 1)

    def problem_reported(self) -> str | None:
        """Take the circuit's report, and return the problem in it."""
        report = self.reports.pop("http://it")
        assert report.endpoint == "http://it"
        return report.problem

    def admits(self) -> bool:
        """Return whether a call is let through."""
        try:
            asyncio.run(self.circuit.admit(self.probe))
        except EndpointDownError:
            return False
        return True


def test_a_few_failures_open_no_circuit() -> None:
    """A server that restarts is called again, and so is one that answers now and then."""
    endpoint = Endpoint()
    endpoint.fail(seconds=0)
    assert endpoint.admits()
    endpoint.circuit.reached()
    endpoint.now += 60
    endpoint.circuit.not_reached("is down")
    assert endpoint.admits()
    assert (endpoint.asked, endpoint.problem_reported()) == (0, None)


def test_an_endpoint_that_is_down_gets_no_calls() -> None:
    """It is asked after a pause, and each refused call makes a report."""
    endpoint = Endpoint()
    endpoint.fail()
    assert not endpoint.admits()
    assert endpoint.problem_reported() == "is down"
    assert endpoint.asked == 0
    endpoint.now += 2
    assert not endpoint.admits()
    assert endpoint.asked == 1
    assert not endpoint.admits()
    assert endpoint.asked == 1
    assert endpoint.problem_reported() == "is down"
    assert endpoint.reports == {}


def test_an_endpoint_that_answers_again_gets_calls() -> None:
    """One answer is enough."""
    endpoint = Endpoint()
    endpoint.fail()
    endpoint.problem = None
    endpoint.now += 2
    assert endpoint.admits()
    assert endpoint.admits()
    assert endpoint.asked == 1
    assert endpoint.problem_reported() is None
    endpoint.circuit.reached()
    assert endpoint.reports == {}


def test_pauses_grow_up_to_a_limit() -> None:
    """No message waits for longer than the limit once an endpoint is back."""
    endpoint = Endpoint()
    endpoint.fail()
    waits = []
    for _ in range(10):
        endpoint.now += LONGEST_PAUSE.total_seconds() * 2
        with pytest.raises(EndpointDownError) as raised:
            asyncio.run(endpoint.circuit.admit(endpoint.probe))
        waits.append(raised.value.wait)
    assert waits[0] < waits[-1] <= LONGEST_PAUSE * 1.25


def test_calls_at_the_same_time_share_a_question() -> None:
    """A thousand waiting addresses do not ask a thousand times."""
    endpoint = Endpoint()
    endpoint.fail()
    endpoint.problem = None
    endpoint.now += 2

    async def many() -> None:
        await asyncio.gather(*(endpoint.circuit.admit(endpoint.probe) for _ in range(100)))

    asyncio.run(many())
    assert endpoint.asked == 1


def test_calls_do_not_wait_for_an_endpoint_that_hangs() -> None:
    """They are refused for a while, and the answer counts when it comes."""
    endpoint = Endpoint()
    endpoint.fail()
    endpoint.problem = None
    endpoint.now += 2

    async def scenario() -> None:
        answer = asyncio.Event()

        async def hanging() -> str | None:
            await answer.wait()
            return await endpoint.probe()

        for _ in range(2):
            with pytest.raises(EndpointDownError) as raised:
                await asyncio.wait_for(endpoint.circuit.admit(hanging), 60)
            assert raised.value.wait == SHORTEST_PAUSE
            endpoint.now += 1
        answer.set()
        for _ in range(10):  # steps of the event loop, in which the probe ends
            await asyncio.sleep(0)
        await endpoint.circuit.admit(hanging)

    asyncio.run(scenario())
    assert endpoint.asked == 1
    assert endpoint.problem_reported() is None


def test_an_endpoint_may_rest_though_it_answers_others() -> None:
    """It has asked for a pause itself."""
    endpoint = Endpoint()
    endpoint.circuit.rest(timedelta(seconds=60), "is busy")
    endpoint.circuit.reached()
    assert not endpoint.admits()
    endpoint.now += 61
    assert endpoint.admits()
    assert endpoint.asked == 0


def test_a_rest_is_not_taken_for_an_outage() -> None:
    """A call that an endpoint's rest refuses knows that the endpoint is not down; while it is down, it is."""
    endpoint = Endpoint()
    endpoint.circuit.reached()
    endpoint.circuit.rest(timedelta(seconds=60), "is busy")
    with pytest.raises(EndpointDownError) as resting:
        asyncio.run(endpoint.circuit.admit(endpoint.probe))
    endpoint.fail()
    assert not endpoint.admits()

    assert resting.value.is_rest
    assert not endpoint.circuit.down_error().is_rest
    assert not Endpoint().circuit.down_error().is_rest


def test_a_circuit_is_needed_unless_a_new_one_is_the_same() -> None:
    """That of an endpoint that fails, is down, rests or is asked now is kept; so is one that a call uses."""
    endpoint = Endpoint()
    circuit, needed = endpoint.circuit, []
    needed.append(("new", circuit.is_needed()))
    with circuit.call():
        needed.append(("called", circuit.is_needed()))
    circuit.not_reached("is down")
    needed.append(("fails", circuit.is_needed()))
    endpoint.fail()
    endpoint.now += 3600
    needed.append(("down", circuit.is_needed()))
    endpoint.problem = None
    assert endpoint.admits()
    needed.append(("answers", circuit.is_needed()))
    circuit.rest(timedelta(seconds=60), "is busy")
    needed.append(("rests", circuit.is_needed()))
    endpoint.now += 60
    needed.append(("has rested", circuit.is_needed()))

    async def ask() -> None:
        question = asyncio.ensure_future(circuit.answers(endpoint.probe))
        await asyncio.sleep(0)
        needed.append(("asked", circuit.is_needed()))
        await question
        needed.append(("has answered", circuit.is_needed()))

    asyncio.run(ask())

    kept = ["called", "fails", "down", "rests", "asked"]
    assert [name for name, is_needed in needed if is_needed] == kept
