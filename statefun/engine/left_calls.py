# SPDX-License-Identifier: Apache-2.0
"""Handles long calls: calls that have left their micro-batches, and the results of such calls.

The messages of a long call are kept in the state of its address, and all later messages of the address wait.
The result comes to the address as one of the engine's own messages, and has the effects that it would have
had in the micro-batch that the call has left. If the process or the run in which the call was made ends
before the result has come, the call is made again from the state: so a function may be called twice with a
message, but only the effects of one call count.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from statefun.engine.address_keys import typename_of
from statefun.engine.call_limits import GROUP_SIZES
from statefun.engine.call_results import decoded_result, encoded_result
from statefun.engine.calls import Call, call_of_long, failed_again, postponed_messages
from statefun.engine.clock import BatchClock
from statefun.engine.effects import Effects
from statefun.engine.failures import FailedMessage
from statefun.engine.groups import Group, own_value
from statefun.engine.running_calls import AbandonedError, CallRunner, Left, RunningCall
from statefun.engine.transports import TransportCalls
from statefun.engine.under_way import UnderWay
from statefun.protocol.runtime_pb2 import CallLoss, CallResult, Outcome
from statefun.sdk.address import Address
from statefun.sdk.errors import FunctionError
from statefun.sdk.invocation_batch import FailedInvocation, InvocationBatch, InvocationResult
from statefun.sdk.stateful_function import StatefulFunction

logger = logging.getLogger("statefun")

CALLS_NAMESPACE = "statefun.calls"
RESULT = f"{CALLS_NAMESPACE}/result"
"""The type of the message that brings the result of a long call to its address; its value is a ``CallResult``."""
LOST = f"{CALLS_NAMESPACE}/lost"
"""The type of the message to an address whose long call has no result; its value is a ``CallLoss``."""
MOST_RESULT_BYTES = 32 * 1024 * 1024
"""The largest encoded result of a long call, in bytes.

It comes to the address through Spark's plan of a micro-batch, of which the driver's JVM has several copies: with its
default heap of 1 GiB, 100 MiB were too much."""
_FIRST_REQUEST = 16
"""The largest number of messages in a call behind an endpoint while the time per message is unknown."""
MOST_LOST = len(GROUP_SIZES) + 1
"""A call that has been lost this many times in a row is not made again: its first message fails."""

Invoke = Callable[[StatefulFunction, InvocationBatch], Awaitable[InvocationResult]]
"""Calls a function with the messages of a batch."""


class Reactions(NamedTuple):
    """Functions of the dispatcher for the results and failures of long calls."""

    apply: Callable[[Call, InvocationResult], None]
    """Applies the result of a call to the state of its address, and collects its effects."""
    fail: Callable[[FailedMessage, StatefulFunction], None]
    """Applies the failure policy of a function to a failed message."""


class LeftCalls:
    """Handles the long calls of one task's addresses: calls that leave now, and results of earlier ones.

    Args:
        clock: the present time.
        runner: runs the calls of this task.
        transports: the calls of this task, which keep the messages that wait at their addresses.
    """

    def __init__(self, clock: BatchClock, runner: CallRunner, transports: TransportCalls) -> None:
        self._clock = clock
        self._runner = runner
        self._transports = transports
        self._new: list[Outcome.Detached] = []
        """The calls that have left the micro-batch in this task."""

    def limited(
        self, group: Group, function: StatefulFunction, rows: Sequence[int]
    ) -> Sequence[int]:
        """Limit the next call of a group to as many messages as it can handle in ``REQUEST_TIME``.

        A call that was lost before gets one message only. Further messages wait for the next micro-batch.

        Returns:
            The rows whose messages the call gets after the waiting messages of the address.
        """
        values = group.values
        most = 1 if values.lost else self._runner.most(_pace_name(group.key, function))
        if most is None:
            # A function of this process is not called with further messages when the call's time is over.
            # A request to an endpoint has been sent by then, with all of its messages.
            most = sys.maxsize if function.transport is None else _FIRST_REQUEST
        if len(values.waiting) + len(rows) <= most:
            return rows
        self._transports.divide(group, rows, most)
        return ()

    async def run(
        self, call: Call, batch: InvocationBatch, invoke: Invoke, running: RunningCall
    ) -> tuple[Call, InvocationResult] | None:
        """Run a call to its end; if it has left its micro-batch by then, report its result to the driver.

        Returns:
            The call with its result; None if the call has left its micro-batch.
        """
        function, key = call.function, call.key
        running.take(call)
        running.losses = 0 if function.transport is not None else call.group.values.lost
        running.is_alone = batch.is_alone
        # In a turn, the server must be called for no other address until the call ends.
        if not batch.is_alone:
            self._runner.begin(running, _pace_name(key, function), function.detach_after)
        batch = batch._replace(record=running.records_of(batch))
        del call  # a call that has left needs no rows and no state
        try:
            async with self._runner.place(function, running):
                batch = batch._replace(is_over=self._runner.started(running))
                result = await invoke(function, batch)
                # If encoding ended the process, for want of memory, this call has to be blamed as well.
                attempt = running.attempt
                content = self._encoded(attempt, batch, result) if attempt else None
        except AbandonedError:
            self._runner.end(running, 0)
            return None
        except BaseException:
            self._runner.end(running, 0)
            if running.attempt:
                self._runner.report(key, running.attempt, None)
                logger.exception(
                    "a long call of %s has ended with an exception instead of a result; the call is made "
                    "again, unless this has happened too often",
                    batch.target,
                )
                return None
            raise
        self._runner.end(running, _handled(batch, result))
        if running.attempt:
            if not attempt:  # it has left since
                content = self._encoded(running.attempt, batch, result)
            self._runner.report(key, running.attempt, content)
            return None
        return running.call, result

    def _encoded(
        self, attempt: str, batch: InvocationBatch, result: InvocationResult
    ) -> bytes | None:
        return _reported(attempt, batch, result, self._clock.now())

    def leave(self, left: Left, effects: Effects) -> None:
        """When a call leaves its micro-batch, keep its messages in the state of its address."""
        group = left.call.group
        values, now = group.values, self._clock.now()
        messages = (*postponed_messages(left.call, 0),)
        # The call goes on with the present dictionary, which must not change any more.
        values.values = dict(values.values)
        values.under_way = UnderWay(left.attempt, messages, now)
        self._transports.count_waiting(group, len(values.under_way.messages), values.under_way.size)
        self._transports.leave_own(group)  # after the messages that are left to later calls
        self._transports.wait(group, (), 0, effects)
        transport, target = left.call.function.transport, left.call.batch.target
        server = "" if transport is None else transport.server_of(target)
        self._new.append(
            Outcome.Detached(
                address=group.key, attempt=left.attempt, worker=left.worker, server=server
            )
        )

    def settle(
        self,
        group: Group,
        address: Address,
        function: StatefulFunction | None,
        rows: Sequence[int],
        reactions: Reactions,
    ) -> Sequence[int]:
        """Handle the rows with the result or the loss of an address's long call, and return the other rows.

        If the function of the call is gone, the messages of the call wait again.
        """
        results: dict[str, CallResult] = {}
        losses: dict[str, CallLoss] = {}
        others = []
        for row in rows:
            typename, value = group.columns.typename[row], group.columns.value[row]
            if typename == RESULT:
                result = own_value(group.key, typename, value, CallResult.FromString)
                results[result.attempt] = result
            elif typename == LOST:
                loss = own_value(group.key, typename, value, CallLoss.FromString)
                losses[loss.attempt] = loss
            else:
                others.append(row)
        values = group.values
        under_way = values.under_way
        if under_way is None:
            return others
        if function is None:
            values.call_again()
        elif under_way.attempt in results:
            self._apply(group, address, function, results[under_way.attempt], reactions)
        elif under_way.attempt in losses:
            self._lose(group, function, losses[under_way.attempt], reactions)
        return others

    def _apply(
        self,
        group: Group,
        address: Address,
        function: StatefulFunction,
        stored: CallResult,
        reactions: Reactions,
    ) -> None:
        """Apply the result of a long call as if it had ended in this micro-batch, before all other messages."""
        values = group.values
        long_call = values.end_call()
        self._transports.count_waiting(group, -len(long_call.messages), -long_call.size)
        queued = [*values.take_waiting()]
        values.waiting_until = 0
        values.is_not_admitted = function.transport is not None
        call = call_of_long(group, address, function, long_call)
        reactions.apply(call, decoded_result(stored, self._clock.now()))
        values.expire(self._clock)
        if queued:  # they come after messages that the call has not handled
            values.keep_waiting([*values.waiting, *queued])

    def _lose(
        self, group: Group, function: StatefulFunction, loss: CallLoss, reactions: Reactions
    ) -> None:
        """Make a lost long call again; if it was lost too often, fail its first message instead.

        A loss counts only if the process or the call itself has ended, and not if only the run or a connection has.
        The first such loss always counts; a later one counts only if the call was already running again: a call
        that still waits for other calls cannot end its process.
        """
        values = group.values
        if loss.ended and (loss.begun or not values.lost):
            values.lost += 1
        if function.transport is not None or values.lost < MOST_LOST:
            values.call_again()
            return
        long_call = values.end_call()
        [message, *rest] = long_call.messages
        self._transports.count_waiting(group, -1, -len(message))
        values.lost = 0
        values.keep_waiting([*rest, *values.waiting])
        values.waiting_until = 0
        place = f"function {function.typename} failed"
        error = FunctionError(
            f"{place}: the worker process has ended during the call each of the {MOST_LOST} times that the "
            "call was made, the last time while no other call ran in the process"
        )
        failed = failed_again(group, message, error)
        reactions.fail(failed._replace(long_call_since=long_call.since), function)

    def report(self, counts: Outcome) -> None:
        """Add the calls that have left their micro-batch in this task to the outcome of the task."""
        counts.detached.extend(self._new)


def encoded_loss(attempt: str, *, has_begun: bool, has_ended: bool = True) -> bytes:
    """Return the value of a ``LOST`` message, by which an address learns that its long call has no result.

    Args:
        attempt: the name of the call.
        has_begun: whether the call was lost earlier, and is known to have been running again when it was lost now.
        has_ended: True if the process of the call has ended, or the call has ended without a result. False if only
            the run or the connection is known to have ended, for which no call is to blame.
    """
    return CallLoss(attempt=attempt, begun=has_begun, ended=has_ended).SerializeToString()


def _reported(
    attempt: str, batch: InvocationBatch, result: InvocationResult, now: int
) -> bytes | None:
    """Return the encoded result of a long call, or an encoded failure if the result cannot be reported.

    The result is None if it cannot be reported and the call has several messages. The call is then made again with
    one message at a time, so that only the message at fault fails.
    """
    try:
        content = encoded_result(attempt, result, now)
        if len(content) <= MOST_RESULT_BYTES:
            return content
        problem = (
            f"has effects of {len(content):,} bytes, more than {MOST_RESULT_BYTES:,}; let it send and store less in a call, "
            "or give the function a longer detach_after"
        )
    except Exception as error:  # noqa: BLE001 - without any report, the address would wait for ever
        problem = f"has effects that cannot be encoded ({type(error).__name__}: {error})"
    place = f"function {batch.target.typename} failed at address {batch.target}"
    text = f"{place}: a call that has left its micro-batch {problem}"
    if len(batch.invocations) > 1:
        logger.warning("%s; the call is made again, with one message at a time", text)
        return None
    failed = FailedInvocation(0, FunctionError(text), FunctionError.__name__, "")
    return encoded_result(attempt, InvocationResult({}, [], [], [], [failed]), now)


def _handled(batch: InvocationBatch, result: InvocationResult) -> int:
    count = len(batch.invocations) if result.postponed is None else result.postponed.first
    return max(count, 1)


def _pace_name(key: bytes, function: StatefulFunction) -> str:
    """Return the name under which the runner measures how long a function's calls take."""
    return typename_of(key) if function.transport is not None else str(function.typename)
