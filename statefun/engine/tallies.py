# SPDX-License-Identifier: Apache-2.0
"""Counts what each function does in one task: its messages, what it sends, and how long its calls take."""

from __future__ import annotations

from bisect import bisect_left
from time import perf_counter
from typing import Final

from statefun.engine.invoker import Invoker
from statefun.engine.renamed import PresentNames
from statefun.protocol.runtime_pb2 import Outcome
from statefun.sdk.address import Address
from statefun.sdk.context import PrepareMessage
from statefun.sdk.invocation_batch import InvocationBatch, InvocationResult
from statefun.sdk.sent import DelayedMessage
from statefun.sdk.stateful_function import StatefulFunction

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The upper bounds of a histogram of durations, in seconds, as OpenTelemetry's conventions have them."""
_STEP: Final = 16
"""The first calls of a function in a task are all measured, then one of so many, which counts for all of them."""


class FunctionTally:
    """The counts of one function.

    Args:
        typename: the typename of the function.
    """

    def __init__(self, typename: str) -> None:
        self.typename = typename
        self.calls = 0
        """The number of calls that were not awaited."""
        self.invocations = 0
        self.messages: dict[str, int] = {}
        """The number of sent messages, by the typename of their target."""
        self.records: dict[str, int] = {}
        """The number of sent records, by the id of their egress."""
        self.durations = [0] * (len(BOUNDS) + 1)
        """The number of calls by duration: up to each of ``BOUNDS``, and longer."""
        self.seconds = 0.0

    def count(self, invocations: int, result: InvocationResult) -> None:
        """Count handled messages, and what they have sent; delayed messages count when they are sent."""
        self.invocations += invocations
        messages = self.messages
        for message in result.messages:
            name = message.target_typename
            messages[name] = messages.get(name, 0) + 1
        for delayed in result.delayed:
            if isinstance(delayed, DelayedMessage):
                name = delayed.message.target_typename
                messages[name] = messages.get(name, 0) + 1
        records = self.records
        for record in result.egress_messages:
            name = record.typename
            records[name] = records.get(name, 0) + 1

    def took(self, seconds: float, weight: int) -> None:
        """Count a call that has ended, given how long it took, and for how many calls it counts."""
        self.durations[bisect_left(BOUNDS, seconds)] += weight
        self.seconds += seconds * weight


class Tallies:
    """Calls functions, and counts what each of them does in one task.

    Args:
        invoker: calls the functions.
        check: checks what functions send.
    """

    def __init__(self, invoker: Invoker, check: PrepareMessage) -> None:
        self._invoker = invoker
        self._check = check
        self._of_functions: dict[int, FunctionTally] = {}
        """By the identity of the function, which lives longer than the task."""
        self._of_names: dict[str, FunctionTally] = {}
        self._newest: StatefulFunction | None = None
        """The function of the newest call that was not awaited; None if it is one for a whole namespace."""
        self._of_newest = FunctionTally("")
        """The counts of that call's function, which :meth:`count` needs next."""

    def invoke(self, function: StatefulFunction, batch: InvocationBatch) -> InvocationResult:
        """Call a function that is not awaited."""
        # Functions may take turns in a task, as addresses with equal ids do, so that each one counts its own calls.
        if function is not self._newest:
            self._of_newest = self._of(function, batch.target)
            self._newest = None if function.typename.name == "*" else function
        tally = self._of_newest
        tally.calls = calls = tally.calls + 1
        if calls > _STEP and calls % _STEP:
            return self._invoker.invoke(function, batch, self._check)
        begun = perf_counter()
        result = self._invoker.invoke(function, batch, self._check)
        tally.took(perf_counter() - begun, 1 if calls <= _STEP else _STEP)
        return result

    async def invoke_async(
        self, function: StatefulFunction, batch: InvocationBatch
    ) -> InvocationResult:
        """Call a function that is awaited; a call that outlives its task is not measured."""
        begun = perf_counter()
        result = await self._invoker.invoke_async(function, batch, self._check)
        self._of(function, batch.target).took(perf_counter() - begun, 1)
        return result

    def count(
        self, function: StatefulFunction, address: Address, handled: int, result: InvocationResult
    ) -> None:
        """Count the messages that a function has handled at an address, and what it has sent."""
        tally = self._of_newest if function is self._newest else self._of(function, address)
        tally.count(handled, result)

    def _of(self, function: StatefulFunction, address: Address) -> FunctionTally:
        """Return the counts of the function at an address."""
        tally = self._of_functions.get(id(function))
        if tally is not None:
            return tally
        is_any = function.typename.name == "*"  # one of many functions behind an endpoint
        name = address.typename if is_any else str(function.typename)
        tally = self._of_names.get(name)
        if tally is None:
            tally = self._of_names[name] = FunctionTally(name)
        if not is_any:
            self._of_functions[id(function)] = tally
        return tally

    def report(self, outcome: Outcome, names: PresentNames) -> None:
        """Add the counts to the outcome of the task, with present names of functions."""
        for tally in list(self._of_names.values()):  # a call that has left may end meanwhile
            outcome.invocations += tally.invocations
            counts = outcome.functions.add(
                typename=tally.typename,
                invocations=tally.invocations,
                records=tally.records,
                durations=tally.durations,
                seconds=tally.seconds,
            )
            for name, count in tally.messages.items():
                counts.messages[names.typename(name)] += count
