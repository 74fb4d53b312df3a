# SPDX-License-Identifier: Apache-2.0
"""Declarations of the values that a function stores per address."""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

import attrs

from statefun.sdk.errors import DefinitionError
from statefun.sdk.times import in_milliseconds
from statefun.sdk.types import Type


class Expiration(NamedTuple):
    """When a value expires."""

    name: str
    """The value's name."""
    after: timedelta
    """The time from the last write, or from the last call, until the value is deleted."""
    on_call: bool
    """Whether calls of the function renew the value, too, and not writes alone."""


@attrs.frozen
class ValueSpec:
    """Declares one value: ``ctx.storage.<name>``, encoded as ``type``.

    >>> from statefun import IntType
    >>> ValueSpec("visits", IntType).name
    'visits'

    Raises:
        DefinitionError: if the name is no lower-case identifier or one that Python reserves, the
            type is no :class:`~statefun.Type`, an expiration is not positive, or both expirations
            are given.
    """

    name: str
    type: Type[Any]
    expire_after_call: timedelta | None = None
    """Delete the value when its function was not called for this long."""
    expire_after_write: timedelta | None = None
    """Delete the value when it was not written for this long."""

    @property
    def after_call(self) -> bool:
        """Whether the value expires after a call."""
        return self.expire_after_call is not None

    @property
    def after_write(self) -> bool:
        """Whether the value expires after a write."""
        return self.expire_after_write is not None

    @property
    def duration(self) -> int:
        """The time until the value expires, in milliseconds; 0 if it does not expire."""
        expiration = self.expire_after_call or self.expire_after_write
        return in_milliseconds(expiration) if expiration else 0

    @property
    def expiration(self) -> Expiration | None:
        """When the value expires; None if it does not."""
        after = self.expire_after_call or self.expire_after_write
        return Expiration(self.name, after, self.after_call) if after else None

    def __attrs_post_init__(self) -> None:
        name = self.name
        if not (isinstance(name, str) and name.isidentifier() and name.islower()) or (
            keyword.iskeyword(name)
        ):
            raise DefinitionError(
                f"a value's name is a lower-case Python identifier, which {name!r} is not"
            )
        if name.startswith("__") and name.endswith("__"):  # an attribute could hide the value
            raise DefinitionError(
                f"a value's name cannot be {name!r}: Python reserves names with two underscores at "
                "both ends"
            )
        if not isinstance(self.type, Type):
            raise DefinitionError(
                f"value {name!r}: its type is a Type such as IntType, not {self.type!r}"
            )
        if self.expire_after_call is not None and self.expire_after_write is not None:
            raise DefinitionError(
                f"value {name!r} expires either after a call or after a write, not both"
            )
        for expiration in (self.expire_after_call, self.expire_after_write):
            if expiration is None:
                continue
            if not (isinstance(expiration, timedelta) and expiration > timedelta(0)):
                raise DefinitionError(
                    f"value {name!r} expires after a positive timedelta, not {expiration!r}"
                )


def value_specs(specs: Iterable[ValueSpec]) -> dict[str, ValueSpec]:
    """Index value specs by name.

    Raises:
        DefinitionError: if one is no :class:`ValueSpec` or a name occurs twice.
    """
    by_name: dict[str, ValueSpec] = {}
    for spec in specs:
        if not isinstance(spec, ValueSpec):
            raise DefinitionError(f"specs holds {spec!r}, which is no ValueSpec")
        if spec.name in by_name:
            raise DefinitionError(f"value {spec.name!r} is declared twice")
        by_name[spec.name] = spec
    return by_name
