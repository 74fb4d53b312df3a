# SPDX-License-Identifier: Apache-2.0
"""Names of function types and addresses of their instances."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, overload

import attrs

from statefun.sdk.errors import DefinitionError


@attrs.frozen(order=True)
class TypeName:
    """A ``namespace/name`` pair that names a function type, an egress or a value type.

    The last ``/`` separates namespace and name: ``type.googleapis.com/a.B`` has the namespace
    ``type.googleapis.com``.

    >>> TypeName.parse("com.example.fns/greeter")
    TypeName(namespace='com.example.fns', name='greeter')
    """

    namespace: str
    name: str

    @classmethod
    def parse(cls, typename: str) -> TypeName:
        """Split a typename, ``namespace/name``, into its namespace and its name.

        Raises:
            DefinitionError: if the namespace or the name is missing, if the typename contains a NUL
                character or cannot be encoded in UTF-8, or if it begins with ``statefun.`` or
                ``statefun/``, which the runtime reserves for its own functions and types.
        """
        if not isinstance(typename, str):
            raise DefinitionError(
                f"a typename must be a string such as 'com.example/greeter', not {typename!r}"
            )
        namespace, slash, name = typename.strip().rpartition("/")
        if not (slash and namespace and name) or "\0" in typename:
            raise DefinitionError(
                f"typename {typename!r} is not of the form <namespace>/<name>, "
                "such as 'com.example.fns/greeter'"
            )
        if not is_unicode(typename):
            raise DefinitionError(
                f"typename {typename!r} contains a lone surrogate, which UTF-8 cannot encode"
            )
        if is_reserved(namespace):
            raise DefinitionError(f"typename {typename!r} {RESERVED}")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@lru_cache
def checked_typename(typename: str) -> str:
    """Check a typename and return it; results are cached, as many messages have the same typename.

    Raises:
        DefinitionError: as for :meth:`TypeName.parse`.
    """
    return str(TypeName.parse(typename))


RESERVED = (
    "is in the namespace statefun or in a namespace below it, which the runtime reserves for itself; "
    "use another namespace, such as 'com.example.fns'"
)
"""The end of the error text about a typename for which :func:`is_reserved` returns True."""


def is_reserved(typename: str) -> bool:
    """Return whether the runtime reserves a typename or a namespace for itself.

    >>> is_reserved("statefun.timers/bucket"), is_reserved("statefun"), is_reserved("statefuns/f")
    (True, True, False)
    """
    return typename.startswith("statefun") and typename[8:9] in {"", ".", "/"}


def is_unicode(text: object) -> bool:
    """Return whether ``text`` is a string that UTF-8 can encode: a string without lone surrogates."""
    try:
        return isinstance(text, str) and (text.isascii() or text.encode() is not None)
    except UnicodeEncodeError:
        return False


class _AddressParts(NamedTuple):
    namespace: str
    name: str
    id: str
    typename: str
    """``namespace/name`` in one string."""


class Address(_AddressParts):
    """The address of one function instance: its type (``namespace/name``) and its ``id``.

    An address is a tuple, since Python creates tuples quickly: each micro-batch creates an
    ``Address`` for each of its groups.

    >>> Address("com.example.fns", "greeter", "Ada").typename
    'com.example.fns/greeter'
    >>> Address("com.example.fns/greeter", "Ada").name
    'greeter'
    """

    __slots__ = ()

    @overload
    def __new__(cls, namespace: str, name: str, /) -> Address: ...

    @overload
    def __new__(
        cls,
        namespace: str,
        name: str,
        id: str,
        typename: str | None = None,
    ) -> Address: ...

    def __new__(  # noqa: PYI034 - Python 3.10 has no Self
        cls,
        namespace: str,
        name: str,
        id: str | None = None,  # noqa: A002 - as above
        typename: str | None = None,
    ) -> Address:
        """Make an address from a typename and an id, or from a namespace, a name and an id.

        A typename is checked; a namespace and a name are not.

        Raises:
            DefinitionError: if the typename is ill-formed, or if namespace and name are given as
                well and differ from those of the typename.
        """
        if id is None:
            typename, id = checked_typename(namespace), name  # noqa: A001 - as above
            namespace, _, name = typename.rpartition("/")
        own = f"{namespace}/{name}"
        if typename is not None and typename != own:
            raise DefinitionError(
                f"an address of namespace {namespace!r} and name {name!r} has the typename {own!r}, not {typename!r}"
            )
        return cls._make((namespace, name, id, own))

    def __getnewargs__(self) -> tuple[str, str, str, str]:
        # The arguments of __new__, which differ from the tuple's items.
        return self[:3]  # type: ignore[return-value] # the same

    def __str__(self) -> str:
        return f"{self.typename}/{self.id}"

    def __repr__(self) -> str:
        return f"Address(namespace={self.namespace!r}, name={self.name!r}, id={self.id!r})"
