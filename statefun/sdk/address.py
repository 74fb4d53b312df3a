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

    The last ``/`` separates: ``type.googleapis.com/a.B`` has the namespace ``type.googleapis.com``.

    >>> TypeName.parse("com.example.fns/greeter")
    TypeName(namespace='com.example.fns', name='greeter')
    """

    namespace: str
    name: str

    @classmethod
    def parse(cls, typename: str) -> TypeName:
        """Split ``namespace/name``.

        Raises:
            DefinitionError: if either half is missing or holds a NUL character, or the name cannot
                be encoded in UTF-8, or begins with ``statefun.`` or ``statefun/``, which names the
                runtime's own functions and types.
        """
        if not isinstance(typename, str):
            raise DefinitionError(
                f"a typename is a string such as 'com.example/greeter', not {typename!r}"
            )
        namespace, slash, name = typename.strip().rpartition("/")
        if not (slash and namespace and name) or "\0" in typename:
            raise DefinitionError(
                f"typename {typename!r} is not of the form <namespace>/<name>, "
                "such as 'com.example.fns/greeter'"
            )
        if not is_unicode(typename):
            raise DefinitionError(f"typename {typename!r} holds a lone surrogate")
        if is_reserved(namespace):
            raise DefinitionError(f"typename {typename!r} {RESERVED}")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@lru_cache
def checked_typename(typename: str) -> str:
    """Check a typename and return it; the results are cached, as messages repeat typenames.

    Raises:
        DefinitionError: as for :meth:`TypeName.parse`.
    """
    return str(TypeName.parse(typename))


RESERVED = (
    "is in the namespace statefun, or in one below it, which the runtime reserves; use another "
    "one, such as 'com.example.fns'"
)
"""The error text for a typename that :func:`is_reserved`."""


def is_reserved(typename: str) -> bool:
    """Return whether the runtime reserves a typename or a namespace for itself.

    >>> is_reserved("statefun.timers/bucket"), is_reserved("statefun"), is_reserved("statefuns/f")
    (True, True, False)
    """
    return typename.startswith("statefun") and typename[8:9] in {"", ".", "/"}


def is_unicode(text: object) -> bool:
    """Return whether ``text`` is a string that UTF-8 can encode: no lone surrogates."""
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
    """Where one function instance lives: its type (``namespace/name``) and its ``id``.

    It is a tuple, which is quick to make: each micro-batch makes one for each of its addresses.

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
        """Make the address, of a typename and an id, or of namespace, name and id.

        Only a typename is checked.

        Raises:
            DefinitionError: if the typename is ill-formed, or of another function.
        """
        if id is None:
            typename, id = checked_typename(namespace), name  # noqa: A001 - as above
            namespace, _, name = typename.rpartition("/")
        own = f"{namespace}/{name}"
        if typename is not None and typename != own:
            raise DefinitionError(f"an address of {own} has this typename, and not {typename!r}")
        return cls._make((namespace, name, id, own))

    def __getnewargs__(self) -> tuple[str, str, str, str]:
        # The arguments of __new__, which differ from the tuple's items.
        return self[:3]  # type: ignore[return-value] # the same

    def __str__(self) -> str:
        return f"{self.typename}/{self.id}"

    def __repr__(self) -> str:
        return f"Address(namespace={self.namespace!r}, name={self.name!r}, id={self.id!r})"
