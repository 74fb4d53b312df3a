# SPDX-License-Identifier: Apache-2.0
"""The values of an address while its function runs: the stored values and their changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from statefun.sdk.encoding import encoded
from statefun.sdk.errors import DefinitionError, StateDecodeError, caused
from statefun.sdk.secrecy import reason, shown_cause
from statefun.sdk.types import SimpleType, TypedValue
from statefun.sdk.value_spec import ValueSpec

UNSET: Final = TypedValue("", b"")
"""Stands for a value that is neither stored nor changed."""


class Values:
    """The stored values of an address, and the changes of an invocation batch, encoded.

    Functions read and change them through ``ctx.storage`` (:class:`~statefun.sdk.storage.Storage`)
    and through a :class:`~statefun.State`.

    >>> from statefun import IntType
    >>> from statefun.sdk.value_spec import value_specs
    >>> values = Values(value_specs([ValueSpec("visits", IntType)]), {})
    >>> values.write("visits", 1)
    >>> values.read("visits")
    1
    """

    __slots__ = ("changed", "specs", "stored")

    specs: Mapping[str, ValueSpec]
    """The declared values, by name."""
    stored: Mapping[str, TypedValue]
    """The values that were stored before the invocation batch, by name."""
    changed: dict[str, TypedValue | None]
    """The values that the invocation batch has assigned or deleted (None), by name."""

    def __init__(self, specs: Mapping[str, ValueSpec], stored: Mapping[str, TypedValue]) -> None:
        self.specs = specs
        self.stored = stored
        self.changed = {}

    def current(self, name: str) -> TypedValue | None:
        """Return the encoded form of a value; None if it was deleted, ``UNSET`` if it is not set."""
        changed = self.changed
        return changed[name] if name in changed else self.stored.get(name, UNSET)

    def read(self, name: str) -> Any:
        """Decode a value; None if it is not set.

        Raises:
            AttributeError: if the value is not declared.
            StateDecodeError: if the value has another type than declared, or cannot be decoded.
        """
        spec = self.specs.get(name)
        if spec is None:
            raise self._undeclared(name)
        changed = self.changed
        current = changed[name] if name in changed else self.stored.get(name)
        return None if current is None else decoded(spec, current)

    def write(self, name: str, value: Any) -> None:
        """Encode a value and keep it as a change.

        Raises:
            AttributeError: if the value is not declared.
            DefinitionError: if the value is None or not of the declared type.
        """
        spec = self.specs.get(name)
        if spec is None:
            raise self._undeclared(name)
        self.changed[name] = encoded_as(spec, value)

    def delete(self, name: str) -> None:
        """Delete a value.

        Raises:
            AttributeError: if the value is not declared.
        """
        if name not in self.specs:
            raise self._undeclared(name)
        self.changed[name] = None

    def rename(self, present_names: Mapping[str, str]) -> None:
        """Give values that are stored under former names their present names, as changes.

        A value that is stored under its present name as well takes precedence over one under a former name.

        Args:
            present_names: the present names of values by their former names; of several former names of a
                value, the newest comes first.
        """
        for former, name in present_names.items():
            value = self.stored.get(former)
            if value is not None:
                self.changed[former] = None
                if name not in self.stored:
                    self.changed.setdefault(name, value)

    def restore(self, changed: Mapping[str, TypedValue | None]) -> None:
        """Replace all changes by ``changed``, an earlier copy of the changes."""
        self.changed = dict(changed)

    def copy(self) -> Values:
        """Return a copy of the values and changes; later changes of the copy do not change this object."""
        copied = Values(self.specs, self.stored)
        copied.changed = self.changed.copy()
        return copied

    def _undeclared(self, name: str) -> AttributeError:
        declared = ", ".join(sorted(self.specs)) or "none"
        return AttributeError(f"no value {name!r} is declared in specs (declared: {declared})")


def encoded_as(spec: ValueSpec, value: Any) -> TypedValue:
    """Encode a value in the form in which it is stored.

    Raises:
        DefinitionError: naming the value, if it is None or not of the declared type.
    """
    if value is None:
        raise DefinitionError(f"value {spec.name!r} cannot be set to None; delete it with 'del'")
    try:
        return encoded(value, spec.type)
    except DefinitionError as error:
        text = f"value {spec.name!r}: {error.message}"
        cause = shown_cause(error, spec.type)
        raise caused(DefinitionError(text), cause) from cause


def decoded(spec: ValueSpec, current: TypedValue) -> Any:
    """Decode a stored value.

    Raises:
        StateDecodeError: naming the value, if it has another type than declared, or cannot be decoded.
    """
    stored: Any = current
    type_: Any = spec.type  # the user's, which may return anything
    typename, content = stored
    try:
        if typename == type_.typename:
            if type(type_) is SimpleType:  # it saves a call in Python
                return type_.deserialize_fn(content)
            return type_.serializer().deserialize(content)
        if type_.reads(typename):
            return type_.decode(typename, content)
    except Exception as error:  # noqa: BLE001 - as below, it may be left out
        text = (
            f"value {spec.name!r} ({len(content)} bytes) does not decode as "
            f"{typename}: {reason(error, type_)}"
        )
        cause = shown_cause(error, type_)
        raise caused(StateDecodeError(text), cause) from cause
    raise StateDecodeError(
        f"value {spec.name!r} is stored as {typename}, but declared as {type_.typename}, which "
        f"cannot decode it: use another name for the value, or list the type {typename} in the upgrades of "
        f"{type_.typename}"
    )
