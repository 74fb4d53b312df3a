# SPDX-License-Identifier: Apache-2.0
"""Applies failure policies to messages on which functions fail, and to records that no function can receive.

A dead letter is a record of the dead-letter topic that holds the original message: the key, value and
headers of the ingress record that became the message, and further headers that begin with ``statefun-``
and describe the failure. A dead letter is published like all egress records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

from statefun.engine import delays
from statefun.engine.address_keys import SEPARATOR, address_of, typename_of
from statefun.engine.clock import Clock
from statefun.engine.effects import Effects
from statefun.engine.letters import Original, facts, origin_text
from statefun.engine.origin import facts_of, key_of
from statefun.engine.policies import Policies
from statefun.engine.record_keys import REJECTION_NAMESPACE
from statefun.engine.renamed import PresentNames
from statefun.engine.row import Row
from statefun.protocol.runtime_pb2 import Failure, Outcome, RecordOrigin
from statefun.protocol.runtime_pb2 import Retry as RetriedMessage
from statefun.sdk.errors import StatefunError
from statefun.sdk.failure import FailurePolicy, OnFailure, Retry
from statefun.sdk.printable import printable
from statefun.sdk.times import in_milliseconds
from statefun.sdk.tracebacks import is_of_statefun
from statefun.sdk.tracing import with_trace

RETRY = "statefun.failures/retry"
"""The type of a retry envelope: a message that waits or is tried again, with the number of its attempts."""

_MESSAGE_LENGTH = 10_000
"""The largest number of characters of an error's text; an exception may quote a record, so texts are cut."""
_MOST_KINDS = 100
"""How many kinds of failures a task counts separately; all further kinds count as one."""
_OTHERS = "others"
_PLACE = re.compile(r'^ +File "(.*)", line (\d+)', re.MULTILINE)


class DispatchError(Exception):
    """A failure policy stops the application, because of ``error``; the driver reports this error."""

    def __init__(self, error: StatefunError, traceback: str = "") -> None:
        super().__init__(str(error))
        self.error = error
        self.failure = Failure(
            code=error.code,
            message=printable(error.message, _MESSAGE_LENGTH),
            traceback=printable(traceback, keep="\n"),
        )


class FailedMessage(NamedTuple):
    """A message on which a function has failed, or that no function can receive."""

    target: bytes
    caller: bytes | None
    typename: str
    value: bytes | None
    record: RecordOrigin | None
    """The origin of the ingress record that became the message; None for a message of a function."""
    error: StatefunError
    cause: str
    """The class name of the exception."""
    attempts: int = 1
    traceback: str = ""
    trace: str | None = None
    is_encoded: bool = False
    """Whether the value is that of a record that no deserializer has decoded yet."""
    long_call_since: int = 0
    """When the call with the message left its micro-batch, in milliseconds since the epoch; 0 if it did not."""
    event_time: int | None = None
    """The event time of the message, in milliseconds since the epoch; None if it has none."""

    @property
    def kind(self) -> str:
        """The kind of failure, by which failures are counted: function, exception and line of code, as text.

        A value that cannot be decoded, for example, has no line of code outside of statefun.
        """
        kind = f"{typename_of(self.target)} {self.cause}"
        for file, line in reversed(_PLACE.findall(self.traceback)):
            path = PurePath(file)
            if not is_of_statefun(path):
                return f"{kind} in {path.name}, line {line}"
        return kind

    @property
    def text(self) -> str:
        """The error's text, and where the message came from."""
        origin = origin_text(self.record, address_of(self.caller) if self.caller else None)
        return f"{self.error.message} ({origin})"


class FailureCounts:
    """Counts failed messages, and keeps the first failure of each kind as an example for the log."""

    def __init__(self) -> None:
        self._counts = Outcome()
        self._examples: dict[tuple[str, str], Outcome.Example] = {}
        """The first failure of each kind, by its kind and by what has become of its message."""
        self._failed: dict[tuple[str, str, bool], int] = {}
        """The number of failed messages by function, code, and whether they are tried again."""

    def retried(self, failed: FailedMessage) -> None:
        """Count a message that is tried again."""
        self._counts.retries += 1
        self._note(failed, "to be tried again", is_retried=True)

    def skipped(self, failed: FailedMessage) -> None:
        """Count a message that was dropped."""
        self._counts.skipped += 1
        self._note(failed, "skipped")

    def buried(self, failed: FailedMessage) -> None:
        """Count a message that has become a dead letter."""
        self._counts.dead_letters += 1
        self._note(failed, "to the dead-letter topic")

    def note(self, kind: str, what: str, text: str) -> None:
        """Count a failure by its kind, and keep the first failure of each kind as an example for the log.

        Args:
            kind: the kind of failure: function, exception and line of code.
            what: what has become of the message, such as "skipped".
            text: describes the failure; the first text of each kind is logged.
        """
        example = self._examples.get((kind, what))
        if example is None:
            kind = kind if len(self._examples) < _MOST_KINDS else _OTHERS
            example = self._examples.setdefault((kind, what), Outcome.Example(kind=kind, what=what))
            example.text = example.text or printable(text, _MESSAGE_LENGTH)
        example.count += 1

    def summary(self) -> Outcome:
        """Return the counts of failed messages, with an example of each kind of failure."""
        self._counts.examples.extend(self._examples.values())
        for (typename, code, is_retried), count in self._failed.items():
            self._counts.failed.add(typename=typename, code=code, retried=is_retried, count=count)
        return self._counts

    def _note(self, failed: FailedMessage, what: str, *, is_retried: bool = False) -> None:
        key = typename_of(failed.target), failed.error.code, is_retried
        self._failed[key] = self._failed.get(key, 0) + 1
        self.note(failed.kind, what, f"[{failed.error.code}] {failed.text}")


class Failures:
    """Applies failure policies to failed messages.

    Args:
        policies: the failure policies that apply where a function or route declares none.
        clock: the present time, at which the pause before a retry begins.
        sequence: ascending numbers for delayed messages.
        counts: counts the messages by what has become of them.
        names: the present names of functions, for dead letters and error texts.
    """

    def __init__(
        self,
        policies: Policies,
        clock: Clock,
        sequence: Iterator[int],
        counts: FailureCounts,
        names: PresentNames,
    ) -> None:
        self.policies = policies
        self._clock = clock
        self._sequence = sequence
        self._counts = counts
        self._names = names

    def handle(self, failed: FailedMessage, policy: FailurePolicy | None, effects: Effects) -> None:
        """Retry or skip a failed message, make it a dead letter, or stop the application, as a policy says.

        Args:
            failed: the message.
            policy: the policy; None for the application's default.
            effects: collects the retried message, or the dead letter.

        Raises:
            DispatchError: if the policy is to stop the application, or if a function's message is too large
                for a dead letter.
        """
        if isinstance(policy, Retry) and failed.attempts < policy.attempts:
            self._try_later(failed, policy, effects)
            self._counts.retried(self._with_present_names(failed))
            return
        failed = self._with_present_names(failed)
        match self.policies.last_resort(policy):
            case OnFailure.FAIL:
                error = failed.error
                raise DispatchError(type(error)(failed.text + error.way_out), failed.traceback)
            case OnFailure.SKIP:
                self._counts.skipped(failed)
            case OnFailure.DEAD_LETTER:
                self._bury(failed, effects)
                self._counts.buried(failed)

    def _with_present_names(self, failed: FailedMessage) -> FailedMessage:
        caller = self._names.key(failed.caller) if failed.caller else failed.caller
        return failed._replace(target=self._names.key(failed.target), caller=caller)

    def _try_later(self, failed: FailedMessage, policy: Retry, effects: Effects) -> None:
        message = RetriedMessage(
            attempts=failed.attempts,
            caller=failed.caller or b"",
            typename=failed.typename,
            value=failed.value,
            record=failed.record,
            trace=failed.trace,
            encoded=failed.is_encoded,
            event_time=failed.event_time,
        )
        wait = in_milliseconds(policy.backoff) * 2 ** (failed.attempts - 1)
        row = Row(failed.target, failed.caller or b"", RETRY, message.SerializeToString())
        now = self._clock.now()
        delays.send_at(delays.Due(now + wait, now, next(self._sequence)), row, effects)

    def _bury(self, failed: FailedMessage, effects: Effects) -> None:
        if self.policies.dead_letters is None:
            raise AssertionError(
                "a dead letter needs a topic, but no dead-letter topic is declared"
            )
        place = self.policies.dead_letters
        headers = [
            (header.key, header.value if header.HasField("value") else None)
            for header in (failed.record.headers if failed.record else ())
        ]
        if failed.trace is not None:
            headers = with_trace(headers, failed.trace)
        key, (id_, _, _) = _key(failed), failed.target.rpartition(SEPARATOR)
        original = Original(key, failed.value, headers)
        # A replay needs the whole target, unless the key of the letter is the target's id.
        whole = () if key == id_ else ("target",)
        letter, left_out = place.letter(original, self._facts(failed), whole)
        if left_out and failed.record is None:
            # A record is still in its topic, but a message of a function would be lost.
            text = place.too_large(failed.text)
            raise DispatchError(type(failed.error)(text), failed.traceback)
        effects.egress[place.egress].append(letter)

    def _facts(self, failed: FailedMessage) -> Iterator[tuple[str, str]]:
        """Yield the facts about a failure: names (of headers, without ``statefun-``) and values."""
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
            long_call_since=failed.long_call_since,
            event_time=failed.event_time,
        )


def _key(failed: FailedMessage) -> bytes | None:
    """Return the key of the dead letter: that of the message's record, or else the target's id."""
    id_, _, typename = failed.target.rpartition(SEPARATOR)
    key = None if typename == f"{REJECTION_NAMESPACE}/null-key".encode() else id_
    return key if failed.record is None else key_of(failed.record, key)
