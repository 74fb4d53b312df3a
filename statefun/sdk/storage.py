# SPDX-License-Identifier: Apache-2.0
"""The durable values that a function keeps per address."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import attrs

from statefun.sdk.errors import DefinitionError, StateDecodeError
from statefun.sdk.types import Type, TypedValue, encoded


class Expiration(NamedTuple):
    """When a value expires."""

    name: str
    """The value's name."""
    after: timedelta
    """How long after the last write, or the last call."""
    on_call: bool
    """Whether a call renews it, and not a write alone."""


@attrs.frozen
class ValueSpec:
    """Declares one value: ``ctx.storage.<name>``, encoded as ``type``.

    >>> from statefun import IntType
    >>> ValueSpec("visits", IntType).name
    'visits'

    Raises:
        DefinitionError: if the name is no lower-case identifier or one of Python's own, the type
            is no :class:`~statefun.Type`, an expiration is not positive, or both are given.
    """

    name: str
    type: Type[Any]
    expire_after_call: timedelta | None = None
    """Delete the value when its function was not called for this long."""
    expire_after_write: timedelta | None = None
    """Delete the value when it was not written for this long."""

    @property
    def after_call(self) -> bool:
        """Whether it expires after a call."""
        return self.expire_after_call is not None

    @property
    def after_write(self) -> bool:
        """Whether it expires after a write."""
        return self.expire_after_write is not None

    @property
    def duration(self) -> int:
        """After how many milliseconds it expires; 0 if it does not."""
        expiration = self.expire_after_call or self.expire_after_write
        return expiration // timedelta(milliseconds=1) if expiration else 0

    @property
    def expiration(self) -> Expiration | None:
        """When it expires; None if it does not."""
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
        if hasattr(Storage, name):  # such as __class__: an attribute that would hide the value
            raise DefinitionError(f"a value's name cannot be {name!r}, which Python uses itself")
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


class Storage:
    """The values of one address, by attribute.

    An unset value reads as None, ``del`` deletes it, and a value is encoded when it is assigned:
    later changes inside the object are not stored.

    >>> from statefun import IntType
    >>> storage = Storage(value_specs([ValueSpec("visits", IntType)]), {})
    >>> storage.visits = (storage.visits or 0) + 1
    >>> storage.visits
    1
    >>> del storage.visits
    >>> storage.visits is None
    True
    """

    # Two leading underscores: mangled, and so never the name of a user's value.
    __slots__ = ("__changed", "__specs", "__stored")

    def __init__(self, specs: Mapping[str, ValueSpec], stored: Mapping[str, TypedValue]) -> None:
        set_slot = object.__setattr__
        set_slot(self, "_Storage__specs", specs)
        set_slot(self, "_Storage__stored", stored)
        set_slot(self, "_Storage__changed", {})

    def __getattr__(self, name: str) -> Any:
        changed = self.__changed
        current = changed[name] if name in changed else self.__stored.get(name)
        spec = self.__specs.get(name)
        if spec is None:
            raise AttributeError(self.__unknown(name))
        return None if current is None else decoded(spec, current)

    def __setattr__(self, name: str, value: Any) -> None:
        spec = self.__specs.get(name)
        if spec is None:
            raise AttributeError(self.__unknown(name))
        self.__changed[name] = encoded_as(spec, value)

    def __delattr__(self, name: str) -> None:
        if name not in self.__specs:
            raise AttributeError(self.__unknown(name))
        self.__changed[name] = None

    def __dir__(self) -> list[str]:
        return sorted(self.__specs)

    def __unknown(self, name: str) -> str:
        declared = ", ".join(sorted(self.__specs)) or "none"
        return f"no value {name!r} is declared in specs (declared: {declared})"


def encoded_as(spec: ValueSpec, value: Any) -> TypedValue:
    """Encode a value that is to be stored.

    Raises:
        DefinitionError: naming the value, if it is None or not of its type.
    """
    if value is None:
        raise DefinitionError(f"value {spec.name!r} cannot be set to None; delete it with 'del'")
    try:
        return encoded(value, spec.type)
    except DefinitionError as error:
        raise DefinitionError(f"value {spec.name!r}: {error.message}") from error


def decoded(spec: ValueSpec, current: TypedValue) -> Any:
    """Decode a stored value.

    Raises:
        StateDecodeError: naming the value, if it is of another type, or its bytes are of none.
    """
    typename, content = current
    type_ = spec.type
    try:
        if typename == type_.typename:
            return type_.serializer().deserialize(content)
        if type_.reads(typename):
            return type_.decode(typename, content)
    except Exception as error:
        raise StateDecodeError(
            f"value {spec.name!r} ({len(content)} bytes) does not decode as "
            f"{typename}: {type(error).__name__}: {error}"
        ) from error
    raise StateDecodeError(
        f"value {spec.name!r} is stored as {typename}, but declared as {type_.typename}, which "
        "does not read it: use another name, or list the former type in the upgrades of the new one"
    )


def stored(storage: Storage) -> Mapping[str, TypedValue]:
    """Return the values that the storage began with."""
    values: Mapping[str, TypedValue] = object.__getattribute__(storage, "_Storage__stored")
    return values


def changes(storage: Storage) -> dict[str, TypedValue | None]:
    """Return the values that were assigned, or deleted (None), since the storage was made."""
    changed: dict[str, TypedValue | None] = object.__getattribute__(storage, "_Storage__changed")
    return changed


def restore(storage: Storage, changed: Mapping[str, TypedValue | None]) -> None:
    """Go back to earlier changes: a copy of the result of :func:`changes`."""
    object.__setattr__(storage, "_Storage__changed", dict(changed))


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
