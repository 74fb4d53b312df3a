# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import attrs
import pytest

from statefun.engine.address_values import AddressValues
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.failures import DispatchError
from statefun.engine.groups import Columns, Group
from statefun.engine.program import Program
from statefun.protocol.runtime_pb2 import Outcome
from statefun.sdk.address import Address, TypeName
from statefun.sdk.context import PrepareMessage
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.invocation_batch import (
    CircuitReport,
    InvocationBatch,
    InvocationResult,
    Postponed,
    Trouble,
    Turn,
)
from statefun.sdk.stateful_function import StatefulFunction

SECOND = timedelta(seconds=1)


class Clock:
    """A clock that stands still."""

    def now(self) -> int:
        """Return the time."""
        return 1_000_000

    def monotonic(self) -> int:
        """Return the same."""
        return 1_000_000


@attrs.define
class Transport:
    """A transport that refuses each call, or sends its messages later, and reports one endpoint."""

    endpoint: str
    problem: str = ""
    reports: list[CircuitReport] = attrs.field(factory=list)

    async def admit(
        self, _target: Address, _trouble: Trouble, _turn: Turn | None
    ) -> Postponed | None:
        """Refuse a call, and make a report."""
        self.reports.append(CircuitReport(self.endpoint, "is down", SECOND))
        return Postponed(0, SECOND, problem=self.problem)

    async def invoke(
        self, batch: InvocationBatch, _prepare: PrepareMessage | None
    ) -> InvocationResult:
        """Fail: nothing was admitted."""
        raise AssertionError(f"{batch.target} is called although its call was refused")

    def server_of(self, _target: Address) -> str:
        """Return the server of all addresses."""
        return "server"

    def take_circuit_reports(self) -> Sequence[CircuitReport]:
        """Return the new reports."""
        reports, self.reports = self.reports, []
        return reports


def program(transport: Transport) -> Program:
    """Return a program with a function that the transport invokes."""
    functions = StatefulFunctions()
    functions.add(StatefulFunction(TypeName("t.fns", "f"), (), {}, transport=transport))
    return Program(functions, {})


def run(a_program: Program, *typenames: str) -> Outcome:
    """Dispatch a message to one address of each function type, as one task."""
    dispatcher = Dispatcher(
        a_program,
        BatchClock(Clock(), Clock().now()),
        batch=0,
        delivered_up_to=None,
        concurrency=1,
        immediate=0,
    )
    groups = [
        Group(
            f"Ada\0{typename}".encode(),
            Columns([b""], ["t/bytes"], [b"x"], [None], [0], cell=lambda *_: None),
            0,
            1,
            AddressValues(None),
        )
        for typename in typenames
    ]
    for _ in dispatcher.dispatch(groups, Effects()):
        pass
    return dispatcher.summary()


def test_a_task_reports_the_endpoints_of_its_own_program() -> None:
    """A process may run tasks of several applications; none gets the reports of another."""
    ours, theirs = Transport("http://ours"), Transport("http://theirs")
    run(program(theirs), "t.fns/f")
    theirs.reports.append(CircuitReport("http://theirs", None))

    (circuit,) = run(program(ours), "t.fns/f").circuits

    assert (circuit.endpoint, circuit.problem, circuit.wait) == ("http://ours", "is down", 1000)
    assert [each.endpoint for each in run(program(theirs), "t.fns/f").circuits] == [
        "http://theirs",
        "http://theirs",
    ]


def test_reports_of_a_failed_task_go_to_the_next_one() -> None:
    """An endpoint says only once that it can be reached again."""
    transport = Transport("http://it")
    ours = program(transport)
    with pytest.raises(DispatchError):
        run(ours, "t.fns/f", "t.fns/nobody")
    transport.reports.append(CircuitReport("http://it", None))

    circuits = run(ours, "t.fns/f").circuits

    assert [each.problem for each in circuits] == ["", "is down"]


def test_the_transport_says_why_a_call_is_repeated() -> None:
    """The log names the function and the address; the words after that are the transport's."""
    transport = Transport("http://it", "endpoint http://it has answered 500")

    (example,) = run(program(transport), "t.fns/f").examples

    assert example.what == "to be sent again"
    assert example.text == (
        "function t.fns/f at address t.fns/f/Ada: endpoint http://it has answered 500"
    )
