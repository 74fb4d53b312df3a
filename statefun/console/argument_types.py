# SPDX-License-Identifier: Apache-2.0
"""Types of the command line's arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a type for argparse that calls ``parse``; if ``parse`` raises a ValueError, its text is the usage error.

    >>> argument(int)("8")
    8
    """

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed
