# SPDX-License-Identifier: Apache-2.0
"""State as a class: the values of an address with their types and defaults."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from statefun.sdk.errors import DefinitionError
from statefun.sdk.fields import class_hints, text_of_annotation
from statefun.sdk.secrecy import SECRET
from statefun.sdk.state_fields import MISSING, StateField, Watched, state_value
from statefun.sdk.value_spec import ValueSpec
from statefun.sdk.values import Values

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
elif sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """Return a decorator without effect: ``typing.dataclass_transform`` is for type checkers alone."""
        return lambda class_: class_


S = TypeVar("S", bound="State")


class _StateClass(type):
    """The metaclass of state classes: each annotation of a state class declares a value."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _StateClass:
        """Make a state class, whose objects have the declared values and no other attributes."""
        return super().__new__(cls, name, bases, {"__slots__": (), **namespace})

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        fields: dict[str, StateField] = {}
        for base in reversed(cls.__mro__[1:]):
            if isinstance(base, _StateClass):
                fields |= base.__statefun_fields__
        if bases:
            fields |= cls._own_fields()
        cls.__statefun_fields__: Mapping[str, StateField] = fields

    def _own_fields(cls) -> dict[str, StateField]:
        place = f"state {cls.__module__}.{cls.__qualname__}"
        for base in cls.__mro__:
            if not isinstance(base, _StateClass) and "__dict__" in vars(base):
                raise DefinitionError(
                    f"{place}: its base class {text_of_annotation(base)} is not a State, so that attributes "
                    "of the base class would not be stored; make the base class a State, or give it "
                    "__slots__ = ()"
                )
        try:
            hints = class_hints(cls)
        except Exception as error:
            raise DefinitionError(
                f"{place}: an annotation cannot be read: {type(error).__name__}: {error}"
            ) from error
        fields = {}
        for name in inspect.get_annotations(cls):
            annotation = hints[name]
            if annotation is ClassVar or typing.get_origin(annotation) is ClassVar:
                continue
            try:
                field = StateField(name, annotation, cls.__dict__.get(name, MISSING))
            except DefinitionError as error:
                text = text_of_annotation(annotation)
                raise DefinitionError(f"{place}: {name}: {text}: {error.message}") from error
            fields[name] = field
            setattr(cls, name, field)
        return fields


@dataclass_transform(kw_only_default=True, field_specifiers=(state_value,))
class State(metaclass=_StateClass):
    """The values of an address, declared as a class.

    Each annotated name is a value: of a primitive type, of a class with fields (a dataclass, an
    attrs class, a Pydantic model, a Protobuf message), or of another type that JSON can hold. A value
    reads as its default while nothing is stored. ``del`` deletes a value, and so does the assignment
    of None where the annotation allows None. Values are decoded when they are read. Only changed
    values are written: assigned values, and values changed in place, such as a list with a new item.

    A function whose third parameter is annotated with a state class gets the values of its address.
    Tests can make objects of a state class, which hold their values themselves:

    >>> class Profile(State):
    ...     visits: int = 0
    ...     name: str | None = None
    >>> profile = Profile(visits=3)
    >>> profile.visits += 1
    >>> profile
    Profile(visits=4, name=None)

    Raises:
        DefinitionError: if a value has no default, or has an annotation whose values cannot be encoded;
            and if a value is assigned that its annotation does not allow.
    """

    # Two underscores at both ends: names that users neither give to values nor to methods.
    __slots__ = ("__statefun_values__", "__statefun_watched__")

    __statefun_is_window__: ClassVar[bool] = False
    """Whether there is a state for each window of an address, and not only one."""

    __statefun_values__: Values
    __statefun_watched__: dict[str, Watched]
    """The values that this object has read or written, and that can be changed in place."""

    def __init__(self, **values: Any) -> None:
        self.__statefun_values__ = Values({}, {})
        self.__statefun_watched__ = {}
        fields = type(self).__statefun_fields__
        for name, value in values.items():
            if name not in fields:
                raise TypeError(
                    f"{type(self).__name__} has no value {name!r}; its values are {set(fields)}"
                )
            setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _all_values(self) == _all_values(other)

    __hash__ = None  # type: ignore[assignment] # it can change

    def __repr__(self) -> str:
        fields = type(self).__statefun_fields__
        content = ", ".join(
            f"{name}={SECRET if fields[name].spec.type.is_secret else repr(value)}"
            for name, value in _all_values(self).items()
        )
        return f"{type(self).__name__}({content})"


def _all_values(state: State) -> dict[str, Any]:
    return {name: getattr(state, name) for name in type(state).__statefun_fields__}


def state_specs(class_: type[State]) -> list[ValueSpec]:
    """Return the specs of the values that a state class declares."""
    return [field.spec for field in class_.__statefun_fields__.values()]


def plain_state_specs(class_: type[State]) -> list[ValueSpec]:
    """Return the specs of the values that a state class declares, for a function without windows.

    Raises:
        DefinitionError: if the class is a ``Window``, which only functions with windows can have.
    """
    if class_.__statefun_is_window__:
        raise DefinitionError(
            f"{class_.__name__} is a Window, of which there is one for each stretch of time: decorate the function "
            "with windowed, or make the class a State"
        )
    return state_specs(class_)


def state_values(state: State) -> dict[str, Any]:
    """Return, by name, the values that were assigned or changed in a state that a test has made."""
    write_changes(state)
    changed = state.__statefun_values__.changed
    return {name: getattr(state, name) for name, value in changed.items() if value is not None}


def attached(class_: type[S], values: Values) -> S:
    """Return a state that reads and writes the values of an address."""
    state = object.__new__(class_)
    state.__statefun_values__ = values
    state.__statefun_watched__ = {}
    return state


def write_changes(state: State) -> None:
    """Store the values of a state that were changed in place.

    Raises:
        DefinitionError: if such a value cannot be encoded, or was also changed through ``ctx.storage``.
    """
    values = state.__statefun_values__
    for name, watched in state.__statefun_watched__.items():
        field = type(state).__statefun_fields__[name]
        if values.current(name) is not watched.current:
            field.check_unchanged(watched)
            continue
        change = field.change(watched)
        if change is not None:
            values.changed[name] = change
