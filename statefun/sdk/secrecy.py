# SPDX-License-Identifier: Apache-2.0
"""Makes error texts that do not quote values of secret types."""

from __future__ import annotations

from typing import Any

from statefun.sdk.types import Type

SECRET = "(secret)"  # noqa: S105 - it is shown instead of one
"""Stands for a secret value wherever other values are shown."""


def reason(error: BaseException, type_: Type[Any]) -> str:
    """Return the class and the text of an exception about a value; its class alone if the type is secret.

    >>> from statefun import StringType
    >>> reason(ValueError("bad PIN 1234"), StringType)
    'ValueError: bad PIN 1234'
    >>> reason(ValueError("bad PIN 1234"), StringType.as_secret())
    'ValueError (its text is not shown, since the value is secret)'
    """
    name = type(error).__name__
    if type_.is_secret:
        return f"{name} (its text is not shown, since the value is secret)"
    return f"{name}: {error}"


def shown_cause(error: Exception, type_: Type[Any]) -> Exception | None:
    """Return an exception about a value as the cause of an error; None if it may quote a secret value."""
    return None if type_.is_secret else error
