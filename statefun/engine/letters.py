# SPDX-License-Identifier: Apache-2.0
"""Encodes dead letters as records that fit into the dead-letter topic.

A dead letter is the original message or record. In addition to the original headers it has headers that
begin with ``statefun-`` and describe the failure. Long texts among these headers, such as the messages of
exceptions, are cut. If a letter is still too large for its egress, parts of the record are left out, and
a header of the letter names them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import attrs

from statefun.engine.sinks import EgressRecord, headers_size
from statefun.module.model import KafkaEgress
from statefun.sdk.address import Address
from statefun.sdk.annotations import is_secret_type
from statefun.sdk.errors import StatefunError

HEADER_PREFIX = "statefun-"
"""The prefix of the headers that describe the failure; all other headers are those of the original record."""
TARGET_TYPE_HEADER = f"{HEADER_PREFIX}target-type"
"""The header with the typename of a dead letter's target function."""
VALUE_TYPE_HEADER = f"{HEADER_PREFIX}type"
"""The header with the typename of a dead letter's value."""
ENCODED_HEADER = f"{HEADER_PREFIX}encoded"
"""The header that marks a letter whose value is that of a record that no deserializer has decoded."""
EVENT_TIME_HEADER = f"{HEADER_PREFIX}event-time"
"""The header with the event time of the message, in milliseconds since the epoch, which a replay has, too."""
SECRET_HEADER = f"{HEADER_PREFIX}secret"
"""The header that marks a letter whose value must not be shown."""
PROBLEM_HEADER = f"{HEADER_PREFIX}problem"
"""The header in which the reader of a connector says why a record has no key."""
CUT = "cut"
"""The header that lists the headers whose texts were cut."""
LEFT_OUT = "left-out"
"""The header that lists the parts of the record that were left out of a letter that was too large."""
_TEXT_BYTES = 2000
"""The largest size of a header's text, in bytes."""
_TRACEBACK = "traceback"
_TRACEBACK_BYTES = 8000
"""The largest size of a traceback, in bytes: larger than for other texts, as a traceback helps more."""
_MARK = b"..."
_RECORD_OVERHEAD = 200
_HEADER_OVERHEAD = 10

_PARTS: dict[str, Any] = {"value": None, "headers": (), "key": None}
"""The parts that are left out of a letter, one after another while it is too large, and their replacements."""

RecordHeaders = Sequence[tuple[str, bytes | None]]


class Original(NamedTuple):
    """The message or record that a letter carries."""

    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


@attrs.frozen
class DeadLetterTopic:
    """The topic of dead letters, and the egress that writes to it."""

    egress: str
    topic: str
    max_record_size: int
    """The size of the largest record that the egress accepts, in bytes."""

    @classmethod
    def of(cls, egress: KafkaEgress | None) -> DeadLetterTopic | None:
        """Return the dead-letter topic of an egress; None if it has none."""
        if egress is None or egress.dead_letter_topic is None:
            return None
        return cls(str(egress.id), egress.dead_letter_topic, egress.max_record_size)

    def too_large(self, text: str) -> str:
        """Return the error text for a failed message whose dead letter is too large; ``text`` is about the failure."""
        return (
            f"{text}; its dead letter would be larger than egress {self.egress} takes "
            f"({self.max_record_size:,} bytes): raise the egress's property max.request.size, and "
            f"max.message.bytes of topic {self.topic}"
        )

    def letter(
        self,
        original: Original,
        about: Iterable[tuple[str, str]],
        whole: Container[str] = (),
    ) -> tuple[EgressRecord, list[str]]:
        """Return a letter that the egress accepts, and the names of the parts that were left out of it.

        Args:
            original: the message or record; its headers of an earlier failure are dropped.
            about: the facts about the failure: names of headers, without their prefix, and texts.
            whole: the names of the facts whose texts are never cut.
        """
        texts, cut = [], []
        for name, text in about:
            content = _encoded(text)
            limit = _TRACEBACK_BYTES if name == _TRACEBACK else _TEXT_BYTES
            if len(content) > limit and name not in whole:
                content = content[:limit].decode(errors="ignore").encode() + _MARK
                cut.append(name)
            texts.append((name, content))
        texts += [(CUT, _encoded(",".join(cut)))] if cut else []
        own = [each for each in original.headers if not each[0].startswith(HEADER_PREFIX)]
        parts, left_out = original._replace(headers=own), list[str]()
        while True:
            more = [(LEFT_OUT, _encoded(",".join(left_out)))] if left_out else []
            headers = [(HEADER_PREFIX + name, content) for name, content in [*texts, *more]]
            letter = EgressRecord(self.topic, parts.key, parts.value, [*parts.headers, *headers])
            largest = next((name for name in _PARTS if getattr(parts, name)), None)
            if largest is None or _size(letter) <= self.max_record_size:
                return letter, left_out
            parts = parts._replace(**{largest: _PARTS[largest]})
            left_out.append(largest)


class RecordPlace(Protocol):
    """The topic, partition and offset of a record in Kafka."""

    @property
    def topic(self) -> str:
        """The topic of the record."""

    @property
    def partition(self) -> int:
        """The partition of the record."""

    @property
    def offset(self) -> int:
        """The offset of the record."""


def origin_text(record: RecordPlace | None, caller: Address | None) -> str:
    """Describe where a message came from, for error texts.

    Args:
        record: the ingress record that became the message; None if a function has sent it.
        caller: the address that has sent the message, if it is known.
    """
    if record is not None:
        return f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
    return f"message from {caller}" if caller else "message"


def facts(  # noqa: PLR0913 - a failure has so many
    error: StatefunError,
    cause: str,
    *,
    attempts: int,
    time: int,
    caller: Address | None,
    origin: Mapping[str, object],
    typename: str,
    is_encoded: bool = False,
    target: Address | None,
    traceback: str,
    long_call_since: int = 0,
    event_time: int | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield the facts about a failure: names of headers, without their prefix, and texts.

    Args:
        error: the error.
        cause: the class name of the exception.
        attempts: how often the message was tried.
        time: the time of the failure, in milliseconds since the epoch.
        caller: the address that has sent the message; None if no function has.
        origin: topic, partition, offset, timestamp and route of the ingress record that became the
            message; empty for another message.
        typename: the type of the value.
        is_encoded: whether the value is that of a record that no deserializer has decoded.
        target: the address of the message; None if no function can receive it.
        traceback: the traceback of the exception; empty if no code of users has raised.
        long_call_since: when the call with the message left its micro-batch, in milliseconds since the
            epoch; 0 if it did not.
        event_time: the event time of the message, in milliseconds since the epoch; None if it has none.
    """
    fields: dict[str, object] = {
        "error-code": error.code,
        "error-type": cause,
        "error-message": error.message,
        "attempts": attempts,
        "time": time,
    }
    if long_call_since:
        fields["long-call-since"] = long_call_since
    if event_time is not None:
        fields[EVENT_TIME_HEADER.removeprefix(HEADER_PREFIX)] = event_time
    if caller is not None:
        fields["caller"] = caller
    fields |= origin
    fields["type"] = typename
    if is_secret_type(typename):
        fields[SECRET_HEADER.removeprefix(HEADER_PREFIX)] = "yes"
    if is_encoded:
        fields[ENCODED_HEADER.removeprefix(HEADER_PREFIX)] = "yes"
    if target is not None:
        fields |= {"target": target, "target-type": target.typename}
    if traceback:
        fields[_TRACEBACK] = traceback
    for name, value in fields.items():
        yield name, str(value)


def _size(record: EgressRecord) -> int:
    """Return an upper bound of a record's bytes on the wire."""
    headers = record.headers or ()
    size = len(record.key or b"") + len(record.value or b"") + headers_size(headers)
    return size + _RECORD_OVERHEAD + _HEADER_OVERHEAD * len(headers)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
