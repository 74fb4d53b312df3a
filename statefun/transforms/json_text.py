# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes JSON with msgspec, which is imported only where transforms are used."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any, Literal, NamedTuple


class Envelope(NamedTuple):
    """The schema and the payload of a JSON object, both still encoded as JSON."""

    schema: bytes
    payload: bytes


def decode(content: bytes) -> Any:
    """Decode JSON.

    Raises:
        msgspec.DecodeError: if ``content`` is not JSON.
    """
    import msgspec  # noqa: PLC0415 - see above

    return msgspec.json.decode(content)


def decode_exactly(content: bytes) -> Any:
    """Decode JSON; numbers with a fraction become decimal numbers with all of their digits.

    >>> decode_exactly(b"[0.10, 1]")
    [Decimal('0.10'), 1]

    Raises:
        msgspec.DecodeError: if ``content`` is not JSON.
    """
    return _exact()(content)


def encode(
    value: Any, hook: Callable[[Any], Any] | None = None, order: Literal["sorted"] | None = None
) -> bytes:
    """Encode a value in JSON.

    Args:
        value: the value; floats that are infinite or not a number become null.
        hook: converts a value of a class that msgspec does not know to a value that it knows.
        order: ``"sorted"`` to sort the fields of objects by name.
    """
    import msgspec  # noqa: PLC0415 - see above

    return msgspec.json.encode(value, enc_hook=hook, order=order)


def read_envelope(content: bytes) -> Envelope:
    """Split a JSON object into its schema and its payload, without decoding them.

    >>> read_envelope(b'{"schema": null, "payload": [1]}')
    Envelope(schema=b'null', payload=b'[1]')

    Raises:
        msgspec.DecodeError: if ``content`` is not a JSON object with just the fields schema and payload.
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
    struct = msgspec.defstruct("Envelope", fields, forbid_unknown_fields=True)
    decoder = msgspec.json.Decoder(struct)
    return lambda content: msgspec.structs.astuple(decoder.decode(content))
