# SPDX-License-Identifier: Apache-2.0
"""Names of function types and addresses of their instances."""

from __future__ import annotations

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
            DefinitionError: if either half is missing or holds a NUL character.
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
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@attrs.frozen
class Address:
    """Where one function instance lives: its type (``namespace/name``) and its ``id``.

    >>> Address("com.example.fns", "greeter", "Ada").typename
    'com.example.fns/greeter'
    """

    namespace: str
    name: str
    id: str
    typename: str = attrs.field(eq=False, repr=False, init=False)
    """``namespace/name`` in one string."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "typename", f"{self.namespace}/{self.name}")

    def __str__(self) -> str:
        return f"{self.typename}/{self.id}"
