# SPDX-License-Identifier: Apache-2.0
"""The values of a state class: descriptors that read, write and delete them."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import attrs

from statefun.sdk.annotations import alternatives, types_of
from statefun.sdk.errors import DefinitionError
from statefun.sdk.fields import is_immutable
from statefun.sdk.types import Type, TypedValue
from statefun.sdk.value_spec import ValueSpec
from statefun.sdk.values import UNSET, Values, decoded, encoded_as


class _Missing:
    """Stands for a default that was not given."""

    def __repr__(self) -> str:
        return "(none)"


MISSING = _Missing()


@attrs.frozen
class _Options:
    """The arguments of :func:`state_value`."""

    default: Any
    default_factory: Callable[[], Any] | None
    expire_after_call: timedelta | None
    expire_after_write: timedelta | None
    renamed_from: str | Iterable[str] | None
    upgrades: Mapping[Any, Callable[[Any], Any]]
    secret: bool


def state_value(  # noqa: PLR0913 - each is a property of a value
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    expire_after_call: timedelta | None = None,
    expire_after_write: timedelta | None = None,
    renamed_from: str | Iterable[str] | None = None,
    upgrades: Mapping[Any, Callable[[Any], Any]] | None = None,
    secret: bool = False,
) -> Any:
    """Declare a value of a :class:`State` with further properties than its type and a plain default.

    Args:
        default: the value while nothing is stored.
        default_factory: a function that makes the default, such as ``list``: a new object in each
            call, until a value is assigned or changed in place.
        expire_after_call: delete the value when this time has passed since its function was last called.
        expire_after_write: delete the value when this time has passed since it was last written.
        renamed_from: the name that the value had before, or several, the newest first. A value that is still
            stored under one of them gets its present name when its function is next called.
        upgrades: the types that the value had before, as annotations such as ``int``, each with a function
            that converts such a value. A stored value keeps its type until it is next written.
        secret: whether no command, error or log shows the value.

    >>> from datetime import timedelta
    >>> from statefun import State
    >>> class Session(State):
    ...     token: str = state_value(default="", expire_after_write=timedelta(hours=1))
    ...     pages: list[str] = state_value(default_factory=list)
    ...     balance: float = state_value(default=0.0, renamed_from="cents", upgrades={int: lambda n: n / 100})
    >>> Session().pages
    []
    """
    return _Options(
        default,
        default_factory,
        expire_after_call,
        expire_after_write,
        renamed_from,
        upgrades or {},
        secret,
    )


class Watched(NamedTuple):
    """A decoded value, and the encoded form that it had when the state last read or wrote it.

    If the value's encoded form is another one now, the function has changed the value in place.
    """

    current: TypedValue | None
    """The value's encoded form when the state last read or wrote it; see :meth:`Values.current`."""
    value: Any
    """The decoded value: the object that the function has, and may change in place."""
    encoded: TypedValue | None
    """The encoded form that ``value`` had when the state last read or wrote it; None for the value None.

    Unlike ``current``, it is also set for a default, which is not stored."""


class StateField:
    """One value of a state class: reads, writes and deletes it as an attribute of the state."""

    def __init__(self, name: str, annotation: Any, default: Any) -> None:
        if name.startswith("_"):
            raise DefinitionError(
                f"the name of a value must not begin with an underscore, as {name!r} does"
            )
        options = default if isinstance(default, _Options) else state_value(default=default)
        members = alternatives(annotation)
        self.name = name
        self.is_optional = type(None) in members or Any in members
        self.spec = ValueSpec(
            name,
            _type_of(members),
            options.expire_after_call,
            options.expire_after_write,
            renamed_from=options.renamed_from,
            upgrades={
                older: convert
                for each, convert in options.upgrades.items()
                for older in ([each] if isinstance(each, Type) else _types_of(alternatives(each)))
            },
            secret=options.secret,
        )
        self._factory = options.default_factory
        self.is_watched = self._factory is not None or not is_immutable(annotation)
        """Whether the value can be changed in place."""
        self._default = self._checked_default(options)
        self._encoded_default = self._encoded(self._default)

    def _checked_default(self, options: _Options) -> Any:
        default, factory = options.default, options.default_factory
        if factory is not None:
            if default is not MISSING:
                raise DefinitionError(
                    "the value must not have both a default and a default_factory"
                )
            default = factory()
        if default is MISSING:
            if not self.is_optional:
                raise DefinitionError(
                    "the value needs a default, such as None, since nothing is stored for a new address"
                )
            return None
        if default is None:
            if not self.is_optional:
                raise DefinitionError(
                    "the default is None, but the annotation does not allow None: annotate the value with `| None`"
                )
        elif self.is_optional:
            raise DefinitionError("the default must be None, since the annotation allows None")
        return default

    def __get__(self, state: Any, owner: type | None = None) -> Any:
        if state is None:
            return self
        values: Values = state.__statefun_values__
        name = self.name
        current = values.current(name)
        content = None if current is UNSET else current
        if not self.is_watched:
            return self._default if content is None else decoded(self.spec, content)
        all_watched: dict[str, Watched] = state.__statefun_watched__
        watched = all_watched.get(name)
        if watched is not None:
            if watched.current is current:
                return watched.value
            self.check_unchanged(watched)
        if content is None:
            value = self.default()
            content = self._encoded(value)
        else:
            value = decoded(self.spec, content)
        all_watched[name] = Watched(current, value, content)
        return value

    def __set__(self, state: Any, value: Any) -> None:
        if value is None and self.is_optional:
            self.__delete__(state)
            return
        values: Values = state.__statefun_values__
        content = values.changed[self.name] = encoded_as(self.spec, value)
        if self.is_watched:
            state.__statefun_watched__[self.name] = Watched(content, value, content)

    def __delete__(self, state: Any) -> None:
        values: Values = state.__statefun_values__
        values.changed[self.name] = None
        state.__statefun_watched__.pop(self.name, None)

    def default(self) -> Any:
        """Return the default; a new object if the default can be changed in place."""
        if self._factory is not None:
            return self._factory()
        fresh = self._encoded_default
        return self._default if fresh is None else decoded(self.spec, fresh)

    def _encoded(self, value: Any) -> TypedValue | None:
        return None if value is None else encoded_as(self.spec, value)

    def change(self, watched: Watched) -> TypedValue | None:
        """Return the new encoded form of a watched value; None if it was not changed in place.

        Raises:
            DefinitionError: if the value cannot be encoded any more.
        """
        now = self._encoded(watched.value)
        if now is None or now == watched.encoded:
            return None
        # The same value may be encoded in another way: by an older version, with other fields.
        before = None if watched.current is UNSET else watched.current
        if before is not None and now == self._encoded(decoded(self.spec, before)):
            return None
        return now

    def check_unchanged(self, watched: Watched) -> None:
        """Check that a value which was changed through ``ctx.storage`` was not changed in place as well.

        Raises:
            DefinitionError: if the value was changed in both ways.
        """
        if self.change(watched) is not None:
            raise DefinitionError(
                f"value {self.name!r} was changed both through ctx.storage and in place, as an "
                "attribute of the state; use only one of these two ways"
            )


def _type_of(members: tuple[Any, ...]) -> Type[Any]:
    """Return the type that encodes the values of a union with these ``members``, except None."""
    return _types_of(members)[0]


def _types_of(members: tuple[Any, ...]) -> tuple[Type[Any], ...]:
    """Return the types that decode values of a union with these ``members``, except None; the first one encodes."""
    present = [each for each in members if each is not type(None)]
    if not present:
        raise DefinitionError(
            "a value that can only be None needs no state; annotate it with what it can be, too"
        )
    if len(present) == 1:
        return types_of(present[0])
    return types_of(typing.Union[tuple(present)])  # noqa: UP007 - made of a tuple
