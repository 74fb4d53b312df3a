# SPDX-License-Identifier: Apache-2.0
"""JSON as bytes, by msgspec: workers of programs without transforms do not import it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any, Literal, NamedTuple


class Envelope(NamedTuple):
    """A payload with its schema, both in JSON."""

    schema: bytes
    payload: bytes


def decode(content: bytes) -> Any:
    """Read JSON.

    Raises:
        msgspec.DecodeError: if it is none.
    """
    import msgspec  # noqa: PLC0415 - see above

    return msgspec.json.decode(content)


def decode_exactly(content: bytes) -> Any:
    """Read JSON; fractions are decimal numbers, with all of their digits.

    >>> decode_exactly(b"[0.10, 1]")
    [Decimal('0.10'), 1]

    Raises:
        msgspec.DecodeError: if it is none.
    """
    return _exact()(content)


def encode(
    value: Any, hook: Callable[[Any], Any] | None = None, order: Literal["sorted"] | None = None
) -> bytes:
    """Write JSON.

    Args:
        value: what to write; a float that is no number becomes null.
        hook: makes something else of values that msgspec does not know.
        order: whether the names of objects are sorted.
    """
    import msgspec  # noqa: PLC0415 - see above

    return msgspec.json.encode(value, enc_hook=hook, order=order)


def read_envelope(content: bytes) -> Envelope:
    """Read a payload with its schema, neither of them further than where they end.

    >>> read_envelope(b'{"schema": null, "payload": [1]}')
    Envelope(schema=b'null', payload=b'[1]')

    Raises:
        msgspec.DecodeError: if it is none, or has other fields.
    """
    return Envelope(*map(bytes, _envelope()(content)))


@cache
def _exact() -> Callable[[bytes], Any]:
    import msgspec  # noqa: PLC0415 - see above

    return msgspec.json.Decoder(float_hook=Decimal).decode


@cache
def _envelope() -> Callable[[bytes], tuple[Any, Any]]:
    import msgspec  # noqa: PLC0415 - see above

    fields = [("schema", msgspec.Raw), ("payload", msgspec.Raw)]
    made = msgspec.defstruct("Envelope", fields, forbid_unknown_fields=True)
    decoder = msgspec.json.Decoder(made)
    return lambda content: msgspec.structs.astuple(decoder.decode(content))
