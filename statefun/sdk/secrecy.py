# SPDX-License-Identifier: Apache-2.0
"""Makes error texts that do not quote values of secret types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statefun.sdk.annotations import type_of_value
from statefun.sdk.errors import DefinitionError
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


def contains_secret(value: object) -> bool:
    """Return whether a value is of a secret type, or an item of its collections is, at any depth.

    A value whose items cannot be looked at is taken for a secret.

    >>> contains_secret([{"pin": 1234}])
    False
    """
    try:
        return _contains_secret(value)
    except Exception:  # noqa: BLE001 - a user's collection may raise any exception
        return True


def _contains_secret(value: object) -> bool:
    pending, visited = [value], dict[int, object]()
    while pending:
        each = pending.pop()
        if id(each) in visited:
            continue
        visited[id(each)] = each  # an id belongs to another object as soon as its object is gone
        if _is_of_secret_type(each):
            return True
        if isinstance(each, Mapping):
            pending += (*each.keys(), *each.values())
        elif isinstance(each, (list, tuple, set, frozenset)):
            pending += each
    return False


def _is_of_secret_type(value: object) -> bool:
    try:
        return type_of_value(value).is_secret
    except DefinitionError:  # no type encodes it
        return False
