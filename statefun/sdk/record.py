# SPDX-License-Identifier: Apache-2.0
"""Records of ingresses, as functions and deserializers see them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class IngressRecord(NamedTuple):
    """The topic, partition, offset, time and headers of the ingress record that became a message.

    >>> from datetime import timezone
    >>> record = IngressRecord(
    ...     "users", 0, 42, datetime(2026, 1, 1, tzinfo=timezone.utc), (("origin", b"web"),)
    ... )
    >>> record.offset, dict(record.headers)["origin"]
    (42, b'web')
    """

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    """The time when the record was written, or the time that its producer has set; in UTC."""
    headers: tuple[tuple[str, bytes | None], ...]
    """The names and values of the headers, in order; a name may occur more than once."""


class EncodedRecord(NamedTuple):
    """A record of a topic, without its headers; the offset is None if the record has not been written yet."""

    topic: str
    partition: int | None
    offset: int | None
    timestamp: int | None
    """The timestamp in milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None


class KafkaRecord(NamedTuple):
    """A whole record of an ingress, as a deserializer gets it.

    >>> from datetime import timezone
    >>> def read(record: KafkaRecord) -> str | None:
    ...     return None if record.value is None else record.value.decode().upper()
    >>> now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    >>> read(KafkaRecord(b"Ada", b"hello", "users", 0, 42, now, ()))
    'HELLO'
    """

    key: bytes | None
    value: bytes | None
    """The value; None in a tombstone."""
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    """The time when the record was written, or the time that its producer has set; in UTC."""
    headers: tuple[tuple[str, bytes | None], ...]
    """The names and values of the headers, in order; a name may occur more than once."""
