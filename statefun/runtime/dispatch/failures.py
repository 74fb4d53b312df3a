# SPDX-License-Identifier: Apache-2.0
"""Applies failure policies to messages that were not handled.

A dead letter is the original message in the dead-letter topic: key, value and headers of the
record it came from, and further headers that begin with ``statefun-`` and describe the
failure. It is published like all egress records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from statefun.module.letters import Original, facts, origin_text
from statefun.module.policies import Policies
from statefun.protocol.runtime_pb2 import Failure, Outcome, RecordOrigin
from statefun.protocol.runtime_pb2 import Retry as RetriedMessage
from statefun.runtime.dispatch import delays
from statefun.runtime.dispatch.groups import Row
from statefun.runtime.printable import printable
from statefun.runtime.rows.effects import Effects
from statefun.runtime.rows.envelope import REJECTION_NAMESPACE, SEPARATOR, address_of
from statefun.runtime.rows.origin import facts_of, key_of
from statefun.runtime.timers.clock import Clock, in_milliseconds
from statefun.sdk.errors import StatefunError
from statefun.sdk.failure import FailurePolicy, OnFailure, Retry

RETRY = "statefun.failures/retry"
"""The type of a retry envelope, which carries the original message."""


_MESSAGE_LENGTH = 10_000
"""Characters of an error's text; longer texts are cut, as an exception may quote a record."""


class DispatchError(Exception):
    """Dispatching stopped at a message; carries the error that the driver reports."""

    def __init__(self, error: StatefunError, traceback: str = "") -> None:
        super().__init__(str(error))
        self.failure = Failure(
            code=error.code,
            message=printable(error.message, _MESSAGE_LENGTH),
            traceback=printable(traceback, keep="\n"),
        )


class FailedMessage(NamedTuple):
    """A message that was not handled."""

    target: bytes
    caller: bytes | None
    typename: str
    value: bytes | None
    record: RecordOrigin | None
    """The origin of the message, if it is an ingress record."""
    error: StatefunError
    cause: str
    """The class name of the exception."""
    attempts: int = 1
    traceback: str = ""
    trace: str | None = None

    @property
    def origin(self) -> str:
        """The source of the message, for error texts."""
        return origin_text(self.record, address_of(self.caller) if self.caller else None)


class Failures:
    """Applies policies to failed messages, and counts them."""

    def __init__(self, policies: Policies, clock: Clock) -> None:
        self.policies = policies
        self._clock = clock
        self._counts = Outcome()

    def handle(self, failed: FailedMessage, policy: FailurePolicy | None, effects: Effects) -> None:
        """Apply a policy to a failed message.

        Raises:
            DispatchError: if the policy is to fail.
        """
        text = f"{failed.error.message} ({failed.origin})"
        if isinstance(policy, Retry) and failed.attempts < policy.attempts:
            self._counts.retries += 1
            self._try_later(failed, policy, effects)
        else:
            match self.policies.last_resort(policy):
                case OnFailure.FAIL:
                    raise DispatchError(type(failed.error)(text), failed.traceback)
                case OnFailure.SKIP:
                    self._counts.skipped += 1
                case OnFailure.DEAD_LETTER:
                    self._counts.dead_letters += 1
                    self._bury(failed, effects)
        if not self._counts.example:
            self._counts.example = printable(f"[{failed.error.code}] {text}", _MESSAGE_LENGTH)

    def summary(self) -> Outcome:
        """Return the counts of failed messages."""
        return self._counts

    def _try_later(self, failed: FailedMessage, policy: Retry, effects: Effects) -> None:
        message = RetriedMessage(
            attempts=failed.attempts,
            caller=failed.caller or b"",
            typename=failed.typename,
            value=failed.value,
            record=failed.record,
            trace=failed.trace,
        )
        wait = in_milliseconds(policy.backoff) * 2 ** (failed.attempts - 1)
        row = Row(failed.target, failed.caller or b"", RETRY, message.SerializeToString())
        delays.send_at(self._clock.now() + wait, row, effects)

    def _bury(self, failed: FailedMessage, effects: Effects) -> None:
        if self.policies.dead_letters is None:
            raise AssertionError("a policy without its topic does not pass the binding check")
        place = self.policies.dead_letters
        headers = [
            (header.key, header.value if header.HasField("value") else None)
            for header in (failed.record.headers if failed.record else ())
        ]
        key, (id_, _, _) = _key(failed), failed.target.rpartition(SEPARATOR)
        original = Original(key, failed.value, headers)
        # A replay goes to the id that the target has, unless that is the key.
        whole = () if key == id_ else ("target",)
        letter, left_out = place.letter(original, self._facts(failed), whole)
        if left_out and failed.record is None:
            # No other header has it.
            text = place.too_large(f"{failed.error.message} ({failed.origin})")
            raise DispatchError(type(failed.error)(text), failed.traceback)
        effects.egress[place.egress].append(letter)

    def _facts(self, failed: FailedMessage) -> Iterator[tuple[str, str]]:
        """Yield the facts about a failure, by header names without their prefix."""
        target, record = address_of(failed.target), failed.record
        return facts(
            failed.error,
            failed.cause,
            attempts=failed.attempts,
            time=self._clock.now(),
            caller=address_of(failed.caller) if failed.caller else None,
            origin={} if record is None else facts_of(record),
            typename=failed.typename,
            target=None if target.namespace == REJECTION_NAMESPACE else target,
        )


def _key(failed: FailedMessage) -> bytes | None:
    """Return the key of the message's record, or else the target's id."""
    id_, _, typename = failed.target.rpartition(SEPARATOR)
    key = None if typename == f"{REJECTION_NAMESPACE}/null-key".encode() else id_
    return key if failed.record is None else key_of(failed.record, key)
