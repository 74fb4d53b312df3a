# SPDX-License-Identifier: Apache-2.0
"""Chooses the failure policy for each message that fails, or that no function can receive."""

from __future__ import annotations

from statefun.engine.address_keys import address_of
from statefun.engine.calls import failed_row
from statefun.engine.effects import Effects
from statefun.engine.failures import FailedMessage, Failures
from statefun.engine.groups import Group
from statefun.engine.program import Program
from statefun.engine.rejections import rejected
from statefun.engine.renamed import PresentNames
from statefun.engine.row import Row
from statefun.sdk.errors import LateMessageError, RecordError, ValueDecodeError
from statefun.sdk.failure import OnFailure
from statefun.sdk.sent import token_in_use
from statefun.sdk.stateful_function import StatefulFunction


class FailedMessages:
    """Applies failure policies: that of the function or of the route, depending on what has failed.

    Args:
        program: the functions, the routes and the policies of the application.
        failures: applies a policy to a message.
        names: the present names of functions.
    """

    def __init__(self, program: Program, failures: Failures, names: PresentNames) -> None:
        self._functions = program.functions
        self._routes = program.routes
        self._failures = failures
        self._names = names

    def handle(self, failed: FailedMessage, function: StatefulFunction, effects: Effects) -> None:
        """Apply the failure policy to a message on which its function has failed."""
        policy = function.on_failure
        if isinstance(failed.error, LateMessageError):
            policy = function.on_late
        if failed.record is not None and isinstance(failed.error, ValueDecodeError | RecordError):
            # Whether a function can receive a record at all is the business of its route.
            policy = self._route_policy(failed)
        self._failures.handle(failed, policy, effects)

    def without_function(self, failed: FailedMessage, effects: Effects) -> None:
        """Apply the failure policy to a message whose function is not registered."""
        policy = self._route_policy(failed)
        if failed.record is None:  # no message between functions is lost silently
            policy = self._failures.policies.unregistered
        self._failures.handle(failed, policy, effects)

    def without_untimed(self, group: Group, effects: Effects) -> list[int]:
        """Apply a failure policy to records whose event time cannot be read; return the other rows of a group.

        It is the policy of the route, or that of the function if only a service does not answer.
        """
        address = self._names.address(address_of(group.key))
        function = self._functions.find(address.typename)
        others = []
        for row in range(group.start, group.end):
            error = group.columns.untimed.get(row)
            if error is None:
                others.append(row)
            else:
                failed = failed_row(group, row, error)
                if function is None:
                    self.without_function(failed, effects)
                else:
                    self.handle(failed, function, effects)
        return others

    def rejected(self, name: str, group: Group, effects: Effects) -> None:
        """Apply the failure policy to the records of a group, which no function can receive.

        Args:
            name: the name of the rejection, which says why.
            group: the rows of a reserved address for rejected records.
            effects: collects the effects of the policies.
        """
        for row in range(group.start, group.end):
            record, value = group.columns.record(row), group.columns.value[row]
            failed = failed_row(group, row, rejected(name, record, value, self._routes))
            self._failures.handle(failed, self._route_policy(failed), effects)

    def token_in_use(self, message: Row, token: str, effects: Effects) -> None:
        """Apply the failure policy to a delayed message whose token is in use."""
        sender = self._names.address(address_of(message.caller))
        error = token_in_use(sender, token)
        function = self._functions.find(sender.typename)
        policies = self._failures.policies
        target, caller, typename, value, trace, event_time = message
        cause = type(error).__name__
        failed = FailedMessage(
            target, caller, typename, value, None, error, cause, trace=trace, event_time=event_time
        )
        policy = policies.last_resort(function.on_failure if function else None)
        self._failures.handle(failed, policy, effects)

    def _route_policy(self, failed: FailedMessage) -> OnFailure | None:
        route = None if failed.record is None else self._routes.route_of(failed.record)
        return None if route is None else route.failure_policy
