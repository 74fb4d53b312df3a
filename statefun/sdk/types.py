# SPDX-License-Identifier: Apache-2.0
"""Typed values: how Python objects become bytes with a typename, and back."""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import attrs

from statefun.sdk.address import TypeName
from statefun.sdk.errors import DefinitionError
from statefun.sdk.executing_modules import executing_modules
from statefun.sdk.fields import are_equal

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class TypedValue(NamedTuple):
    """An encoded value and the name of its type: the form in which values travel and are stored."""

    typename: str
    value: bytes

    @property
    def has_value(self) -> bool:
        """Whether there is a value, which may be empty.

        SDKs of other languages can send messages without a value: then ``value`` is None.

        >>> TypedValue("com.example/Empty", b"").has_value
        True
        """
        return self.value is not None


@runtime_checkable
class TypeSerializer(Protocol[T]):
    """Turns values of one type into bytes and back; subclass it, or define methods with these names.

    >>> class Latin:
    ...     def serialize(self, value: str) -> bytes:
    ...         return value.encode("latin-1")
    ...     def deserialize(self, value: bytes) -> str:
    ...         return value.decode("latin-1")
    >>> isinstance(Latin(), TypeSerializer)
    True
    """

    @abstractmethod
    def serialize(self, value: T, /) -> bytes:
        """Encode ``value``."""

    @abstractmethod
    def deserialize(self, value: bytes, /) -> T:
        """Decode ``value``; any exception means that the bytes are not of this type."""


@attrs.frozen
class _Functions(Generic[T]):
    """A serializer made of two functions."""

    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]


class Type(ABC, Generic[T]):
    """A named type of values; subclass it, or use :class:`SimpleType` for two functions.

    >>> class Upper(Type[str]):
    ...     def serializer(self) -> TypeSerializer[str]:
    ...         return SimpleType(self.typename, str.encode, lambda b: b.decode().upper()).serializer()
    >>> Upper("com.example/Upper").decode("com.example/Upper", b"ada")
    'ADA'
    """

    python_type: type[T] | None = None
    """The class of the values, with which handlers are annotated; None if no annotation names the type."""
    is_secret = False
    """Whether no command, error or log of statefun shows the values."""
    _older: Mapping[str, Callable[[bytes], T]] = MappingProxyType({})
    """Decoders of values of older types, by the typenames of the older types."""

    def __init__(
        self,
        typename: str,
        *,
        python_type: type[T] | None = None,
        upgrades: Mapping[Type[Any], Callable[[Any], T]] | None = None,
    ) -> None:
        self.typename = str(TypeName.parse(typename))
        self.python_type = python_type
        if upgrades:
            self._older = _decoding_older(typename, upgrades)

    def with_upgrades(self, upgrades: Mapping[Type[Any], Callable[[Any], T]]) -> Type[T]:
        """Return a copy of the type that also decodes values of the older types in ``upgrades``.

        Args:
            upgrades: older types, each with a function that converts a value of the older type to a value of
                this type; they take precedence over upgrades that the type already has.

        Raises:
            DefinitionError: if ``upgrades`` is ill-formed, or contains the type's own typename.
        """
        upgraded = copy.copy(self)
        upgraded.__dict__["_older"] = {**self._older, **_decoding_older(self.typename, upgrades)}
        return upgraded

    def as_secret(self) -> Self:
        """Return a copy of the type whose values are secret; :func:`secret_type` registers it as well."""
        secret = copy.copy(self)
        secret.is_secret = True
        return secret

    @abstractmethod
    def serializer(self) -> TypeSerializer[T]:
        """Return the serializer of this type."""

    def reads(self, typename: str) -> bool:
        """Return whether the type decodes values with a typename: its own, or that of an older type."""
        return typename == self.typename or typename in self._older

    def readers(self) -> Mapping[str, Callable[[bytes], T]]:
        """Return decoders by typename: for values of this type and of the older types that it upgrades."""
        return {self.typename: self.serializer().deserialize, **self._older}

    def decode(self, typename: str, value: bytes) -> T:
        """Decode a value of an older type, if ``typename`` names one, or else of this type.

        Any exception means that the bytes cannot be decoded.
        """
        if typename in self._older:
            return self._older[typename](value)
        return self.serializer().deserialize(value)

    def shape(self) -> str:
        """Return a text that changes with the values' form, such as a schema digest; empty if unknown."""
        return ""

    def origin(self) -> str:
        """Return where the type is defined; the text stays equal if a module or notebook cell runs again."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.typename!r})"


@attrs.frozen
class _Upgrade(Generic[T]):
    """Decodes a value of an older type, and converts it to one of the newer type."""

    older: Type[Any]
    typename: str
    convert: Callable[[Any], T]

    def __call__(self, value: bytes) -> T:
        return self.convert(self.older.decode(self.typename, value))


def _decoding_older(
    typename: str, upgrades: Mapping[Type[Any], Callable[[Any], T]]
) -> dict[str, Callable[[bytes], T]]:
    """Return, by typename, decoders for all older types whose values can be upgraded, also in several steps."""
    decoders: dict[str, Callable[[bytes], T]] = {}
    for older, convert in upgrades.items():
        if not (isinstance(older, Type) and callable(convert)):
            raise DefinitionError(
                f"type {typename}: upgrades must map an older Type to a function that converts values, "
                f"not {older!r} to {convert!r}"
            )
        for each in older.readers():
            decoders.setdefault(each, _Upgrade(older, each, convert))
    if typename in decoders:
        raise DefinitionError(
            f"type {typename}: upgrades must not contain the type's own typename; give the new version "
            "another typename"
        )
    return decoders


class SimpleType(Type[T]):
    """A type made of two functions, one that serializes values, and one that deserializes them.

    >>> point = SimpleType.simple_immutable_type_from(
    ...     "com.example/Point", serialize_fn=lambda p: bytes(p), deserialize_fn=tuple
    ... )
    >>> point.serializer().deserialize(point.serializer().serialize((1, 2)))
    (1, 2)
    """

    def __init__(
        self,
        typename: str,
        serialize_fn: Callable[[T], bytes],
        deserialize_fn: Callable[[bytes], T],
        *,
        python_type: type[T] | None = None,
        upgrades: Mapping[Type[Any], Callable[[Any], T]] | None = None,
    ) -> None:
        super().__init__(typename, python_type=python_type, upgrades=upgrades)
        for name, fn in (("serialize_fn", serialize_fn), ("deserialize_fn", deserialize_fn)):
            if not callable(fn):
                raise DefinitionError(f"type {typename}: {name} must be a function, not {fn!r}")
        self.serialize_fn = serialize_fn
        self.deserialize_fn = deserialize_fn
        self._serializer = _Functions(serialize_fn, deserialize_fn)

    def serializer(self) -> TypeSerializer[T]:
        """Return the serializer of this type."""
        return self._serializer

    def origin(self) -> str:
        """Return where the type is defined: by its function for decoding."""
        fn = self.deserialize_fn
        owner = getattr(fn, "__self__", None)
        if attrs.has(type(owner)):  # the difference is in its fields
            return repr(owner)
        return f"{getattr(fn, '__module__', None)}.{getattr(fn, '__qualname__', fn)}"

    @staticmethod
    def simple_immutable_type_from(
        typename: str,
        serialize_fn: Callable[[T], bytes],
        deserialize_fn: Callable[[bytes], T],
        *,
        python_type: type[T] | None = None,
        upgrades: Mapping[Type[Any], Callable[[Any], T]] | None = None,
    ) -> SimpleType[T]:
        """Make and register a type whose values are immutable.

        Args:
            typename: ``namespace/name``, as ``valueType`` in module.yaml names it.
            serialize_fn: converts a value to bytes.
            deserialize_fn: converts bytes to a value; it may raise on bytes of other types.
            python_type: the class of the values, with which handlers of such values are annotated.
            upgrades: older types, each with a function that converts a value of the older type to a
                value of this type.

        Raises:
            DefinitionError: if the typename is ill-formed or belongs to another type.

        >>> euros = simple_type("com.example/Euros", lambda n: b"%d" % n, int)
        >>> cents = simple_type(
        ...     "com.example/Cents", lambda n: b"%d" % n, int, upgrades={euros: lambda n: n * 100}
        ... )
        >>> cents.decode("com.example/Cents", b"5"), cents.decode("com.example/Euros", b"5")
        (5, 500)
        """
        type_ = SimpleType(
            typename, serialize_fn, deserialize_fn, python_type=python_type, upgrades=upgrades
        )
        return default_types.add(type_)


class TypeRegistry:
    """Maps typenames to types, so that values can be decoded by their typenames.

    >>> default_types.find("io.statefun.types/int")
    SimpleType('io.statefun.types/int')
    """

    def __init__(self, types: Iterable[Type[Any]] = ()) -> None:
        self._types = {type_.typename: type_ for type_ in types}
        self._by_class: dict[type, tuple[Type[Any], ...]] = {}
        self._modules: dict[str, tuple[str, ...]] = {}

    def add(self, type_: Type_) -> Type_:
        """Register ``type_`` and return it; the same definition may be registered again.

        A type that was registered as secret stays secret: then the result is a secret copy.

        Raises:
            DefinitionError: if the typename already belongs to a different type.
        """
        present = self._types.get(type_.typename)
        if present is not None and present.origin() != type_.origin():
            raise DefinitionError(
                f"typename {type_.typename!r} already belongs to another type ({present.origin()}); "
                "give one of the two another name"
            )
        if present is not None and present.is_secret and not type_.is_secret:
            type_ = type_.as_secret()
        if present is None:
            self._modules[type_.typename] = executing_modules()
        self._types[type_.typename] = type_
        self._by_class.clear()
        return type_

    def added_by(self, modules: Iterable[str]) -> TypeRegistry:
        """Return the types that code of some modules, which are given by their names, has added."""
        own = set(modules)
        names = [name for name in self._types if not own.isdisjoint(self._modules.get(name, ()))]
        added = TypeRegistry(self._types[name] for name in names)
        added._modules = {name: self._modules[name] for name in names}
        return added

    def find(self, typename: str) -> Type[Any] | None:
        """Return the type with a typename, or None."""
        return self._types.get(typename)

    def of_class(self, python_type: type) -> tuple[Type[Any], ...]:
        """Return the types whose values are of a class; the first of them encodes values of the class."""
        try:
            types = self._by_class.get(python_type)
        except TypeError:  # a note within the annotation has no hash
            return self._found(python_type)
        if types is None:
            types = self._by_class[python_type] = self._found(python_type)
        return types

    def _found(self, python_type: type) -> tuple[Type[Any], ...]:
        return tuple(e for e in self._types.values() if are_equal(e.python_type, python_type))

    def forget(self, module: str) -> None:
        """Remove the types that a module has defined, and those whose values contain instances of its classes."""
        own = re.compile(rf"(?<![\w.]){re.escape(module)}\.")  # list[module.Order] has it as well
        for typename, type_ in list(self._types.items()):
            if own.search(type_.origin()):
                del self._types[typename]
        self._by_class.clear()

    def remove(self, typename: str) -> None:
        """Remove the type that is registered as ``typename``."""
        del self._types[typename]
        self._by_class.clear()

    def update(self, other: TypeRegistry) -> None:
        """Add all types of ``other``; they replace types with equal typenames."""
        self._types.update(other._types)
        self._modules.update(other._modules)
        self._by_class.clear()

    def list(self) -> Sequence[Type[Any]]:
        """Return all types, in the order of their names."""
        return sorted(self._types.values(), key=lambda type_: type_.typename)


Type_ = TypeVar("Type_", bound=Type[Any])


default_types = TypeRegistry()
"""The process's registry of types, to which :func:`simple_type` and similar functions add types."""


def simple_type(
    typename: str,
    serialize_fn: Callable[[T], bytes],
    deserialize_fn: Callable[[bytes], T],
    *,
    python_type: type[T] | None = None,
    upgrades: Mapping[Type[Any], Callable[[Any], T]] | None = None,
) -> SimpleType[T]:
    """Make and register a :class:`SimpleType`; see :meth:`SimpleType.simple_immutable_type_from`.

    >>> text = simple_type("com.example/Text", str.encode, bytes.decode)
    >>> text.decode("com.example/Text", text.serializer().serialize("hello"))
    'hello'
    """
    return SimpleType.simple_immutable_type_from(
        typename, serialize_fn, deserialize_fn, python_type=python_type, upgrades=upgrades
    )


def secret_type(type_: Type[T]) -> Type[T]:
    """Register a type as secret: no command, error or log of statefun shows its values, in states and messages.

    It stays secret if the program, or the value format of a topic, registers the same definition again. What functions log and
    raise themselves is not checked.

    Args:
        type_: a type of any kind that the program has made.

    Raises:
        DefinitionError: if the type belongs to statefun, such as that of all strings.

    >>> pin = secret_type(simple_type("com.example/Pin", str.encode, bytes.decode))
    >>> pin.is_secret
    True
    """
    if type_.typename.startswith("io.statefun."):
        raise DefinitionError(
            f"type {type_.typename} cannot be secret, since it has many other values: declare the values of functions "
            "with secret=True, and make a type of your own for messages"
        )
    return default_types.add(type_.as_secret())
