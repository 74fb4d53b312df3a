# SPDX-License-Identifier: Apache-2.0
"""State as a class: the values of an address with their types and defaults."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import attrs

from statefun.sdk.annotations import alternatives, types_of
from statefun.sdk.errors import DefinitionError
from statefun.sdk.fields import class_hints, is_immutable, text_of_annotation
from statefun.sdk.storage import (
    Storage,
    ValueSpec,
    changes,
    decoded,
    encoded_as,
    stored,
)
from statefun.sdk.types import Type, TypedValue

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
elif sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """Do what Python 3.11 does while a program runs: nothing."""
        return lambda class_: class_


S = TypeVar("S", bound="State")


class _Missing:
    """Stands for a default that was not given."""

    def __repr__(self) -> str:
        return "(none)"


_MISSING = _Missing()
_UNSET: Any = ()
"""The encoded form of a value that nobody has written or deleted."""


@attrs.frozen
class _Options:
    """What :func:`state_value` was told."""

    default: Any
    default_factory: Callable[[], Any] | None
    expire_after_call: timedelta | None
    expire_after_write: timedelta | None


def state_value(
    *,
    default: Any = _MISSING,
    default_factory: Callable[[], Any] | None = None,
    expire_after_call: timedelta | None = None,
    expire_after_write: timedelta | None = None,
) -> Any:
    """Declare a value of a :class:`State` that expires, or whose default is made anew each time.

    Args:
        default: what the value is while nothing is stored.
        default_factory: makes the default, such as ``list``: another one in each call, until
            a value is assigned or changed inside.
        expire_after_call: delete the value when its function was not called for this long.
        expire_after_write: delete the value when it was not written for this long.

    >>> from datetime import timedelta
    >>> class Session(State):
    ...     token: str = state_value(default="", expire_after_write=timedelta(hours=1))
    ...     pages: list[str] = state_value(default_factory=list)
    >>> Session().pages
    []
    """
    return _Options(default, default_factory, expire_after_call, expire_after_write)


class _Value:
    """One value of a state class: reads, writes and deletes it, as an attribute does."""

    def __init__(self, name: str, annotation: Any, default: Any) -> None:
        if name.startswith("_"):
            raise DefinitionError(f"a value's name does not begin with an underscore, as {name!r}")
        options = default if isinstance(default, _Options) else state_value(default=default)
        members = alternatives(annotation)
        self.name = name
        self.is_optional = type(None) in members or Any in members
        self.spec = ValueSpec(
            name, _type_of(members), options.expire_after_call, options.expire_after_write
        )
        self._factory = options.default_factory
        self.is_watched = self._factory is not None or not is_immutable(annotation)
        self._default = self._checked_default(options)
        self._fresh = self._encoded(self._default)

    def _checked_default(self, options: _Options) -> Any:
        default, factory = options.default, options.default_factory
        if factory is not None:
            if default is not _MISSING:
                raise DefinitionError("it has a default or a default_factory, not both")
            default = factory()
        if default is _MISSING:
            raise DefinitionError(
                "it needs a default, such as None, since nothing is stored for a new address"
            )
        if default is None:
            if not self.is_optional:
                raise DefinitionError("its default is None, which its annotation does not allow")
        elif self.is_optional:
            raise DefinitionError("a value that may be None has the default None, and no other")
        return default

    def __get__(self, state: Any, owner: type | None = None) -> Any:
        if state is None:
            return self
        view: _View = state._State__view  # noqa: SLF001 - a slot of the class that it belongs to
        name = self.name
        current = view.current(name)
        if not self.is_watched:
            return decoded(self.spec, current) if current else self._default
        seen = view.seen.get(name)
        if seen is not None:
            if seen.current is current:
                return seen.value
            self.check_unchanged(seen)
        value = decoded(self.spec, current) if current else self.default()
        view.seen[name] = _Seen(current, value, current or self._encoded(value))
        return value

    def __set__(self, state: Any, value: Any) -> None:
        view: _View = state._State__view  # noqa: SLF001 - as above
        if value is None and self.is_optional:
            view.delete(self.name)
            return
        content = view.changed[self.name] = encoded_as(self.spec, value)
        if self.is_watched:
            view.seen[self.name] = _Seen(content, value, content)

    def __delete__(self, state: Any) -> None:
        view: _View = state._State__view  # noqa: SLF001 - as above
        view.delete(self.name)

    def default(self) -> Any:
        """Return the value that an address begins with: another one each time if it can change."""
        if self._factory is not None:
            return self._factory()
        return decoded(self.spec, self._fresh) if self._fresh else self._default

    def _encoded(self, value: Any) -> TypedValue | None:
        return None if value is None else encoded_as(self.spec, value)

    def change(self, seen: _Seen) -> TypedValue | None:
        """Return a watched value as it is to be stored; None if it was not changed inside."""
        now = self._encoded(seen.value)
        if now is None or now == seen.encoded:
            return None
        # The same value may be encoded in another way: by an older version, with other fields.
        if seen.current and now == self._encoded(decoded(self.spec, seen.current)):
            return None
        return now

    def check_unchanged(self, seen: _Seen) -> None:
        """Refuse a change inside of a value that ``ctx.storage`` has changed meanwhile.

        Raises:
            DefinitionError: if there is one.
        """
        if self.change(seen) is not None:
            raise DefinitionError(
                f"value {self.name!r} was changed by ctx.storage, and inside by the state; which "
                "of the two counts?"
            )


def _type_of(members: tuple[Any, ...]) -> Type[Any]:
    """Return the type of a value with these alternatives: one, or what JSON keeps apart."""
    present = [each for each in members if each is not type(None)]
    if len(present) == 1:
        return types_of(present[0])[0]
    return types_of(typing.Union[tuple(present)])[0]  # noqa: UP007 - made of a tuple


class _Seen(NamedTuple):
    """A watched value that was read or written."""

    current: TypedValue | None
    """Its encoded form at that time: ``_UNSET`` or None if it has none."""
    value: Any
    encoded: TypedValue | None
    """The same, or that of a default."""


class _View:
    """What a state reads and writes: the values of an address, in one invocation."""

    __slots__ = ("changed", "seen", "stored")

    def __init__(self, storage: Storage) -> None:
        self.changed = changes(storage)
        self.stored = stored(storage)
        self.seen: dict[str, _Seen] = {}
        """Watched values that were read or written."""

    def current(self, name: str) -> TypedValue | None:
        """Return the encoded form of a value; ``_UNSET`` or None if it has none."""
        if name in self.changed:
            return self.changed[name]
        found: TypedValue | None = self.stored.get(name, _UNSET)
        return found

    def delete(self, name: str) -> None:
        """Go back to the default."""
        self.changed[name] = None
        self.seen.pop(name, None)


class _StateClass(type):
    """Makes the annotations of a state class into values."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _StateClass:
        """Make the class; its objects have its values and no other attributes."""
        return super().__new__(cls, name, bases, {"__slots__": (), **namespace})

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        values: dict[str, _Value] = {}
        for base in reversed(cls.__mro__[1:]):
            values |= getattr(base, "_values", {})
        if bases:
            values |= cls._own_values()
        cls._values: Mapping[str, _Value] = values

    def _own_values(cls) -> dict[str, _Value]:
        place = f"state {cls.__module__}.{cls.__qualname__}"
        for base in cls.__mro__:
            if not isinstance(base, _StateClass) and "__dict__" in vars(base):
                raise DefinitionError(
                    f"{place}: its base {text_of_annotation(base)} is no State, so that nothing of "
                    "it would be stored; let it be one, or have __slots__ = ()"
                )
        try:
            hints = class_hints(cls)
        except Exception as error:
            raise DefinitionError(
                f"{place}: an annotation cannot be read: {type(error).__name__}: {error}"
            ) from error
        found = {}
        for name in inspect.get_annotations(cls):
            annotation = hints[name]
            if ClassVar in {annotation, typing.get_origin(annotation)}:
                continue
            try:
                value = _Value(name, annotation, cls.__dict__.get(name, _MISSING))
            except DefinitionError as error:
                text = text_of_annotation(annotation)
                raise DefinitionError(f"{place}: {name}: {text}: {error.message}") from error
            found[name] = value
            setattr(cls, name, value)
        return found


@dataclass_transform(kw_only_default=True, field_specifiers=(state_value,))
class State(metaclass=_StateClass):
    """The values of an address, declared as a class.

    Each annotated name is a value: of a primitive type, of a class with fields (a dataclass, an
    attrs class, a Pydantic model, a Protobuf message), or of what else JSON can hold. It reads as
    its default while nothing is stored, ``del`` deletes it, and so does None where the annotation
    allows it. Values are decoded when they are read, and only those are written that have
    changed: by an assignment, or inside, such as a list to which something was appended.

    A function that names such a class as its third parameter gets the values of its address.
    Objects that tests make hold their values themselves:

    >>> class Profile(State):
    ...     visits: int = 0
    ...     name: str | None = None
    >>> profile = Profile(visits=3)
    >>> profile.visits += 1
    >>> profile
    Profile(visits=4, name=None)

    Raises:
        DefinitionError: if a value has no default, or an annotation that cannot be encoded; and
            if a value is assigned that is not what the annotation says.
    """

    __slots__ = ("__view",)
    __view: _View

    def __init__(self, **values: Any) -> None:
        known = type(self)._values  # noqa: SLF001 - of its own class
        self.__view = _View(Storage({}, {}))
        for name, value in values.items():
            if name not in known:
                raise TypeError(f"{type(self).__name__} has no value {name!r}; it has {set(known)}")
            setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__all() == other.__all()

    __hash__ = None  # type: ignore[assignment] # it can change

    def __all(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self)._values}  # noqa: SLF001 - as above

    def __repr__(self) -> str:
        content = ", ".join(f"{name}={value!r}" for name, value in self.__all().items())
        return f"{type(self).__name__}({content})"


def state_specs(class_: type[State]) -> list[ValueSpec]:
    """Return the values that a state class declares."""
    return [value.spec for value in class_._values.values()]  # noqa: SLF001 - of this module


def state_values(state: State) -> dict[str, Any]:
    """Return the values of a state that differ from its defaults, by name."""
    write_changes(state)
    view: _View = state._State__view  # type: ignore[attr-defined] # noqa: SLF001 - as above
    return {name: getattr(state, name) for name, value in view.changed.items() if value is not None}


def attached(class_: type[S], storage: Storage) -> S:
    """Return a state that reads and writes the values of an address."""
    state = object.__new__(class_)
    state._State__view = _View(storage)  # type: ignore[attr-defined]
    return state


def write_changes(state: State) -> None:
    """Write the watched values that have changed inside.

    Raises:
        DefinitionError: if one cannot be encoded, or was also changed by ``ctx.storage``.
    """
    view: _View = state._State__view  # type: ignore[attr-defined] # noqa: SLF001 - as above
    for name, seen in view.seen.items():
        value = type(state)._values[name]  # noqa: SLF001 - as above
        if view.current(name) is not seen.current:
            value.check_unchanged(seen)
            continue
        now = value.change(seen)
        if now is not None:
            view.changed[name] = now
