# SPDX-License-Identifier: Apache-2.0
"""Applies failure policies to messages that were not handled.

A dead letter is the original message in the dead-letter topic: key, value and headers of the
record it came from, and further headers that begin with ``statefun-`` and describe the
failure. It is published like all egress records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from statefun.engine import delays
from statefun.engine.address_keys import SEPARATOR, address_of, typename_of
from statefun.engine.clock import Clock
from statefun.engine.effects import Effects
from statefun.engine.letters import Original, facts, origin_text
from statefun.engine.origin import facts_of, key_of
from statefun.engine.policies import Policies
from statefun.engine.record_keys import REJECTION_NAMESPACE
from statefun.engine.row import Row
from statefun.protocol.runtime_pb2 import Failure, Outcome, RecordOrigin
from statefun.protocol.runtime_pb2 import Retry as RetriedMessage
from statefun.sdk.errors import StatefunError
from statefun.sdk.failure import FailurePolicy, OnFailure, Retry
from statefun.sdk.printable import printable
from statefun.sdk.times import in_milliseconds

RETRY = "statefun.failures/retry"
"""The type of a retry envelope, which carries the original message."""

_MESSAGE_LENGTH = 10_000
"""Characters of an error's text; longer texts are cut, as an exception may quote a record."""
_MOST_KINDS = 100
"""How many kinds of failures a task distinguishes; all further kinds count as one."""
_OTHERS = "others"
_PLACE = re.compile(r'^ +File (".*", line \d+)', re.MULTILINE)


class DispatchError(Exception):
    """Dispatching stopped at a message; the driver reports ``error``."""

    def __init__(self, error: StatefunError, traceback: str = "") -> None:
        super().__init__(str(error))
        self.error = error
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
    is_encoded: bool = False
    """Whether the value is that of a record, which no deserializer has decoded yet."""

    @property
    def kind(self) -> str:
        """The function, the type of error and the place where it was raised."""
        places = _PLACE.findall(self.traceback)
        return f"{typename_of(self.target)} {self.cause} {places[-1] if places else ''}"

    @property
    def text(self) -> str:
        """Why it was not handled, and where it came from."""
        origin = origin_text(self.record, address_of(self.caller) if self.caller else None)
        return f"{self.error.message} ({origin})"


class FailureCounts:
    """Counts messages that were not handled, and keeps an example of each kind for the log."""

    def __init__(self) -> None:
        self._counts = Outcome()
        self._examples: dict[tuple[str, str], Outcome.Example] = {}
        """By the kind of the failure, and by what happened to the messages."""

    def retried(self, failed: FailedMessage) -> None:
        """Count a message that is tried again."""
        self._counts.retries += 1
        self._note(failed, "to be tried again")

    def skipped(self, failed: FailedMessage) -> None:
        """Count a message that was dropped."""
        self._counts.skipped += 1
        self._note(failed, "skipped")

    def buried(self, failed: FailedMessage) -> None:
        """Count a message that has become a dead letter."""
        self._counts.dead_letters += 1
        self._note(failed, "to the dead-letter topic")

    def note(self, kind: str, what: str, text: str) -> None:
        """Keep an example for the log.

        Args:
            kind: the function, the type of error and the place where it was raised.
            what: what happened to the message.
            text: about the message; the first text of each kind is logged.
        """
        example = self._examples.get((kind, what))
        if example is None:
            kind = kind if len(self._examples) < _MOST_KINDS else _OTHERS
            example = self._examples.setdefault((kind, what), Outcome.Example(kind=kind, what=what))
            example.text = example.text or printable(text, _MESSAGE_LENGTH)
        example.count += 1

    def summary(self) -> Outcome:
        """Return the counts, with the examples."""
        self._counts.examples.extend(self._examples.values())
        return self._counts

    def _note(self, failed: FailedMessage, what: str) -> None:
        self.note(failed.kind, what, f"[{failed.error.code}] {failed.text}")


class Failures:
    """Applies policies to failed messages.

    Args:
        policies: the policies.
        clock: the present time, from which a retry's pause counts.
        sequence: numbers delayed messages in their order.
        counts: counts the messages by what happened to them.
    """

    def __init__(
        self, policies: Policies, clock: Clock, sequence: Iterator[int], counts: FailureCounts
    ) -> None:
        self.policies = policies
        self._clock = clock
        self._sequence = sequence
        self._counts = counts

    def handle(self, failed: FailedMessage, policy: FailurePolicy | None, effects: Effects) -> None:
        """Apply a policy to a failed message.

        Raises:
            DispatchError: if the policy is to fail.
        """
        if isinstance(policy, Retry) and failed.attempts < policy.attempts:
            self._try_later(failed, policy, effects)
            self._counts.retried(failed)
            return
        match self.policies.last_resort(policy):
            case OnFailure.FAIL:
                error = failed.error
                raise DispatchError(type(error)(failed.text + error.way_out), failed.traceback)
            case OnFailure.SKIP:
                self._counts.skipped(failed)
            case OnFailure.DEAD_LETTER:
                self._bury(failed, effects)
                self._counts.buried(failed)

    def _try_later(self, failed: FailedMessage, policy: Retry, effects: Effects) -> None:
        message = RetriedMessage(
            attempts=failed.attempts,
            caller=failed.caller or b"",
            typename=failed.typename,
            value=failed.value,
            record=failed.record,
            trace=failed.trace,
            encoded=failed.is_encoded,
        )
        wait = in_milliseconds(policy.backoff) * 2 ** (failed.attempts - 1)
        row = Row(failed.target, failed.caller or b"", RETRY, message.SerializeToString())
        now = self._clock.now()
        delays.send_at(delays.Due(now + wait, now, next(self._sequence)), row, effects)

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
            # The message is nowhere else, while a record still is in its topic.
            text = place.too_large(failed.text)
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
            is_encoded=failed.is_encoded,
            target=None if target.namespace == REJECTION_NAMESPACE else target,
            traceback=failed.traceback,
        )


def _key(failed: FailedMessage) -> bytes | None:
    """Return the key of the message's record, or else the target's id."""
    id_, _, typename = failed.target.rpartition(SEPARATOR)
    key = None if typename == f"{REJECTION_NAMESPACE}/null-key".encode() else id_
    return key if failed.record is None else key_of(failed.record, key)
