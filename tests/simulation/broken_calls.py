# SPDX-License-Identifier: Apache-2.0
"""Broken replacements for code that keeps a rule of calls that leave their micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import attrs

from statefun.engine.address_values import AddressValues
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.left_calls import RESULT, LeftCalls, Reactions
from statefun.engine.under_way import UnderWay
from statefun.protocol.runtime_pb2 import CallLoss, CallReport, CallResult
from statefun.runtime.calls import call_register
from statefun.runtime.calls.call_register import CallRegister
from statefun.runtime.checkpoint.call_log import Addresses, CallLog, Losses
from statefun.sdk.address import Address
from statefun.sdk.stateful_function import StatefulFunction

_settle, _settled, _has_to_wait = LeftCalls.settle, Dispatcher._settled, Dispatcher._has_to_wait
_report, _close, _lose, _add = (
    CallRegister.report,
    CallRegister.close,
    LeftCalls._lose,
    CallLog.add,
)


def any_result_counts(
    calls: LeftCalls, group: Group, address: Address, *arguments: Any
) -> Sequence[int]:
    """Apply a result to whichever call is under way."""
    values, results = group.values, _results(group, arguments[1])
    if values.under_way is not None and results:
        values.under_way = attrs.evolve(values.under_way, attempt=results[-1].attempt)
    return _settle(calls, group, address, *arguments)


def takes_any_report(
    register: CallRegister, worker: str, report: CallReport, has_ended: Callable[[], bool]
) -> None:
    """Pass on reports about unknown calls."""
    if not (report.begun or report.attempt in register._under_way):
        register._detached[report.attempt] = call_register._Detached("", 0, "")
        register._under_way[report.attempt] = report.address
    _report(register, worker, report, has_ended)


def takes_no_early_report(
    register: CallRegister, worker: str, report: CallReport, has_ended: Callable[[], bool]
) -> None:
    """Drop reports of calls whose micro-batch is not staged yet."""
    if report.attempt in register._detached:
        _report(register, worker, report, has_ended)


def takes_no_news(
    register: CallRegister, worker: str, report: CallReport, has_ended: Callable[[], bool]
) -> None:
    """Drop reports that calls run again."""
    if not report.begun:
        _report(register, worker, report, has_ended)


def blames_anyway(
    calls: LeftCalls, group: Group, function: StatefulFunction, loss: CallLoss, reactions: Reactions
) -> None:
    """Count each loss of a call, also if the call has only waited for its place."""
    _lose(
        calls,
        group,
        function,
        CallLoss(attempt=loss.attempt, begun=True, ended=loss.ended),
        reactions,
    )


def logs_nothing(log: CallLog, batch: int, calls: Addresses, under_way: Addresses) -> None:
    """Keep calls under way in memory only."""


def logs_new_ones(log: CallLog, batch: int, calls: Addresses, under_way: Addresses) -> None:
    """Write a snapshot of the newest calls only."""
    _add(log, batch, calls, calls)


def forgets_losses(log: CallLog, losses: Losses, under_way: Addresses) -> None:
    """Let the next run begin without the losses of this one."""


def blames_all_ends(register: CallRegister, *, has_failed: bool = False) -> None:
    """Keep the losses of all workers that have ended."""
    losses = {name: loss for own in register._ends.values() for name, loss in own.items()}
    register._ends = {"all of them": losses}
    _close(register, has_failed=has_failed)


def hears_of_no_end(register: CallRegister, worker: str) -> None:
    """Take an orderly end for a crash."""


def loses_nothing(register: CallRegister, worker: str) -> None:
    """Wait for the reports of a worker that has ended."""


def calls_meanwhile(dispatcher: Dispatcher, values: AddressValues) -> bool:
    """Call an address while a call is under way."""
    if values.under_way is not None:
        return values.is_held_back
    return _has_to_wait(dispatcher, values)


class _Late(NamedTuple):
    """A result that is put off."""

    calls: LeftCalls
    under_way: UnderWay
    address: Address
    function: StatefulFunction
    result: CallResult
    reactions: Reactions


_late: dict[int, _Late] = {}


def result_put_off(
    calls: LeftCalls, group: Group, address: Address, *arguments: Any
) -> Sequence[int]:
    """Call the function first with the messages that wait for a result."""
    values, call = group.values, group.values.under_way
    function, rows, reactions = arguments
    if call is not None and function is not None and values.waiting:
        for result in _results(group, rows):
            if result.attempt == call.attempt:
                _late[id(values)] = _Late(calls, call, address, function, result, reactions)
                values.under_way, values.waiting_until = None, 0
    return _settle(calls, group, address, *arguments)


def result_at_last(dispatcher: Dispatcher, group: Group, effects: Effects) -> Group:
    """Apply a result that was put off."""
    values, late = group.values, _late.pop(id(group.values), None)
    if late is not None:
        before = values.under_way, values.later
        values.under_way = late.under_way
        late.calls._apply(group, late.address, late.function, late.result, late.reactions)
        values.under_way, values.later = before
    return _settled(dispatcher, group, effects)


def _results(group: Group, rows: Sequence[int]) -> list[CallResult]:
    columns = group.columns
    return [
        CallResult.FromString(columns.value[row]) for row in rows if columns.typename[row] == RESULT
    ]
