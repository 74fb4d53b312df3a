# SPDX-License-Identifier: Apache-2.0
"""Declarations of the values that a function stores per address."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import attrs

from statefun.sdk.errors import DefinitionError
from statefun.sdk.times import in_milliseconds
from statefun.sdk.types import Type

IN_WINDOW = "@"
"""Separates the name of a value from the key of its window; other names do not have it."""


class Expiration(NamedTuple):
    """The time after which a value expires."""

    name: str
    """The value's name."""
    after: timedelta
    """The time from the last write, or from the last call, until the value is deleted."""
    on_call: bool
    """Whether ``after`` counts from the last call of the function, and not from the last write."""


def former_names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the former names in an argument ``renamed_from``, which is one name or several."""
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)


@attrs.frozen
class ValueSpec:
    """Declares one value: ``ctx.storage.<name>``, encoded as ``type``.

    >>> from statefun import IntType
    >>> ValueSpec("visits", IntType).name
    'visits'

    Raises:
        DefinitionError: if the name is not a lower-case identifier, or is reserved by Python, the
            type is not a :class:`~statefun.Type`, an expiration is not positive, both expirations
            are given, or ``renamed_from`` or ``upgrades`` is ill-formed.
    """

    name: str
    type: Type[Any]
    expire_after_call: timedelta | None = None
    """Delete the value when this time has passed since its function was last called for the address."""
    expire_after_write: timedelta | None = None
    """Delete the value when this time has passed since it was last written."""
    renamed_from: tuple[str, ...] = attrs.field(default=None, converter=former_names, kw_only=True)
    """The names that the value had before, the newest first.

    A value that is still stored under one of them gets its present name when its function is next called."""
    upgrades: Mapping[Type[Any], Callable[[Any], Any]] = attrs.field(
        factory=dict, eq=False, kw_only=True
    )
    """The types that the value had before, each with a function that converts such a value.

    A stored value keeps its type until it is next written. ``type`` is then a type with these upgrades."""
    secret: bool = attrs.field(default=False, kw_only=True)
    """Whether no command, error or log shows the value. ``type`` is then a secret type."""

    @property
    def after_call(self) -> bool:
        """Whether the value expires some time after the last call of its function."""
        return self.expire_after_call is not None

    @property
    def after_write(self) -> bool:
        """Whether the value expires some time after its last write."""
        return self.expire_after_write is not None

    @property
    def duration(self) -> int:
        """The time until the value expires, in milliseconds; 0 if it does not expire."""
        expiration = self.expire_after_call or self.expire_after_write
        return in_milliseconds(expiration) if expiration else 0

    @property
    def expiration(self) -> Expiration | None:
        """The time after which the value expires; None if the value does not expire."""
        after = self.expire_after_call or self.expire_after_write
        return Expiration(self.name, after, self.after_call) if after else None

    def __attrs_post_init__(self) -> None:
        name = self.name
        if not (isinstance(name, str) and name.isidentifier() and name.islower()) or (
            keyword.iskeyword(name)
        ):
            raise DefinitionError(
                f"the name of a value must be a lower-case Python identifier, which {name!r} is not"
            )
        if name.startswith("__") and name.endswith("__"):  # an attribute could hide the value
            raise DefinitionError(
                f"the name of a value must not be {name!r}: Python reserves names with two underscores at "
                "both ends"
            )
        if not isinstance(self.type, Type):
            raise DefinitionError(
                f"value {name!r}: its type must be a Type such as IntType, not {self.type!r}"
            )
        if self.expire_after_call is not None and self.expire_after_write is not None:
            raise DefinitionError(
                f"value {name!r} must not have both expire_after_call and expire_after_write"
            )
        for expiration in (self.expire_after_call, self.expire_after_write):
            if expiration is None:
                continue
            if not (isinstance(expiration, timedelta) and expiration > timedelta(0)):
                raise DefinitionError(
                    f"value {name!r}: the time to its expiration must be a positive timedelta, not "
                    f"{expiration!r}"
                )
        self._check_former_names()
        object.__setattr__(self, "type", self._complete_type())

    def _complete_type(self) -> Type[Any]:
        """Return the type with the ``upgrades`` of the spec, and as a secret type if the value is ``secret``."""
        type_ = self.type
        if self.upgrades:
            try:
                type_ = type_.with_upgrades(self.upgrades)
            except DefinitionError as error:
                raise DefinitionError(f"value {self.name!r}: {error.message}") from error
        return type_.as_secret() if self.secret else type_

    def _check_former_names(self) -> None:
        names = self.renamed_from
        if len({*names}) < len(names) or not all(isinstance(each, str) and each for each in names):
            raise DefinitionError(
                f"value {self.name!r}: renamed_from must be a former name of the value, or several "
                f"different ones, not {names!r}"
            )


def value_specs(specs: Iterable[ValueSpec]) -> dict[str, ValueSpec]:
    """Index value specs by name.

    Raises:
        DefinitionError: if an item is not a :class:`ValueSpec`, a name occurs twice, or two values have or
            had the same name.
    """
    by_name: dict[str, ValueSpec] = {}
    for spec in specs:
        if not isinstance(spec, ValueSpec):
            raise DefinitionError(f"specs must contain ValueSpecs, not {spec!r}")
        if spec.name in by_name:
            raise DefinitionError(f"value {spec.name!r} is declared twice")
        by_name[spec.name] = spec
    check_former_names(by_name)
    return by_name


def check_former_names(specs: Mapping[str, ValueSpec]) -> None:
    """Check that no two of a function's values have, or had, the same name.

    Raises:
        DefinitionError: naming the two values.
    """
    owners = dict.fromkeys(specs, "")
    for spec in specs.values():
        for former in spec.renamed_from:
            if former in owners:
                owner = owners[former]
                other = (
                    f"value {owner!r} is renamed from it as well" if owner else "is still declared"
                )
                raise DefinitionError(
                    f"value {spec.name!r} is renamed from {former!r}, but {other}; a stored value can have "
                    "only one present name"
                )
            owners[former] = spec.name


def present_names(specs: Mapping[str, ValueSpec]) -> dict[str, str]:
    """Return the present name of each value that was renamed, by its former names."""
    return {former: spec.name for spec in specs.values() for former in spec.renamed_from}
