# SPDX-License-Identifier: Apache-2.0
"""Converts, parses and formats numbers as Java does.

See "Narrowing Primitive Conversion" in the Java Language Specification, and ``parseInt``,
``parseFloat`` and ``toString`` of the classes of ``java.lang``.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal

_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(
    r"""
    (?P<sign>[+-]?)
    (?: (?P<name>NaN|Infinity)
      | (?P<decimal> (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+) (?:[eE][+-]?[0-9]+)? ) [fFdD]?
      | (?P<hex> 0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+) [pP][+-]?[0-9]+ ) [fFdD]?
    )
    """,
    re.VERBOSE,
)
_WHITESPACE = "".join(map(chr, range(33)))
_PLAIN = (-3, 7)
"""The range of decimal exponents: -3 to 6. Java writes numbers in this range without an exponent."""
_INT, _LONG = 32, 64


def wrapped(number: int, bits: int) -> int:
    """Return the lowest ``bits`` bits of a number, as a signed number.

    >>> wrapped(200, 8)
    -56
    """
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def truncated(number: float, bits: int) -> int:
    """Convert a float as Java does: limit it to the range of int or long, then keep the lowest bits.

    >>> truncated(3.9, 8), truncated(1e20, 64) == 2**63 - 1, truncated(float("nan"), 32)
    (3, True, 0)
    """
    if math.isnan(number):
        return 0
    half = 1 << ((_LONG if bits == _LONG else _INT) - 1)
    if math.isinf(number):
        number = math.copysign(2.0**_LONG, number)
    return wrapped(max(-half, min(half - 1, int(number))), bits)


def single(number: float) -> float:
    """Return the nearest float of 32 bits to a number."""
    try:
        nearest: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return nearest


def shortest(number: float) -> float:
    """Return the number with the fewest digits whose nearest float of 32 bits is ``number``.

    >>> single(0.1), shortest(single(0.1))
    (0.10000000149011612, 0.1)
    """
    return float(_shortest(number, is_single=True)) if math.isfinite(number) else number


def parsed_integer(text: str, bits: int) -> int:
    """Parse a whole number that fits into ``bits`` bits, one of them for the sign.

    Raises:
        ValueError: if the text is not a whole number, or the number does not fit.
    """
    if not _INTEGER.fullmatch(text):
        raise ValueError("the value is not a whole number")
    number = int(text)
    if number != wrapped(number, bits):
        raise ValueError(f"the value has more than {bits} bits")
    return number


def parsed_float(text: str) -> float:
    """Parse a floating-point number as Java does.

    Raises:
        ValueError: if the text is not a float.
    """
    match = _FLOAT.fullmatch(text.strip(_WHITESPACE))
    if match is None:
        raise ValueError("the value is not a number")
    if match["hex"]:
        try:
            number = float.fromhex(match["hex"])
        except OverflowError:
            number = math.inf
    else:
        number = float(match["name"] or match["decimal"])
    return -number if match["sign"] == "-" else number


def text_of_float(number: float, *, is_single: bool = False) -> str:
    """Return a floating-point number as Java writes it.

    >>> text_of_float(0.1), text_of_float(1e10), text_of_float(100.0)
    ('0.1', '1.0E10', '100.0')
    """
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    sign = "-" if math.copysign(1, number) < 0 else ""
    if not number:
        return f"{sign}0.0"
    _, digits, exponent = Decimal(_shortest(abs(number), is_single=is_single)).as_tuple()
    significant = "".join(map(str, digits)).rstrip("0")
    first = len(digits) - 1 + int(exponent)  # the exponent of the first digit
    if not _PLAIN[0] <= first < _PLAIN[1]:
        return f"{sign}{significant[0]}.{significant[1:] or '0'}E{first}"
    if first < 0:
        return f"{sign}0.{'0' * (-first - 1)}{significant}"
    whole = significant[: first + 1].ljust(first + 1, "0")
    return f"{sign}{whole}.{significant[first + 1 :] or '0'}"


def _shortest(number: float, *, is_single: bool) -> str:
    """Return the shortest decimal text that is parsed as ``number``."""
    if not is_single:
        return repr(number)
    texts = (f"{number:.{digits}g}" for digits in range(1, 10))
    return next(text for text in texts if single(float(text)) == number)
