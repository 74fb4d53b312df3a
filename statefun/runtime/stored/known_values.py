# SPDX-License-Identifier: Apache-2.0
"""The functions with state that a checkpoint names, and the types of their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import attrs

from statefun.runtime.checkpoint.declarations import newest_declaration
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.known_functions import (
    KnownFunctions,
    all_of_namespace,
    known_functions,
)
from statefun.runtime.checkpoint.renamed_functions import continued
from statefun.runtime.stored.typed_values import PRIMITIVE_TYPES, ValueDecoder, primitive_type
from statefun.sdk.address import Address
from statefun.sdk.annotations import automatic_types, known_types
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.nearest_names import suggestion
from statefun.sdk.types import Type, default_types


@attrs.frozen
class Secrets:
    """The values of a function that must not be shown."""

    names: frozenset[str] = frozenset()
    """The present and former names of the secret values."""
    types: frozenset[str] = frozenset()
    """The typenames of the secret types, also for messages."""

    def hides(self, name: str, value_type: str) -> bool:
        """Return whether a value must not be shown, given its name and its typename."""
        return name in self.names or value_type in self.types


@attrs.frozen
class KnownValues:
    """The functions of a checkpoint's application, and how they declare their values."""

    typenames: Sequence[str]
    """The present typenames of all functions that are known, sorted."""
    _functions: StatefulFunctions | None
    _known: KnownFunctions = attrs.field(factory=KnownFunctions)

    @classmethod
    def of(cls, checkpoint: Folder, functions: StatefulFunctions | None) -> KnownValues:
        """Return the functions and values that a checkpoint knows, or that a program declares.

        Args:
            checkpoint: the checkpoint.
            functions: the functions; None if no program was given.

        Raises:
            ConfigurationError: if the program and the checkpoint have no function in common.
            CheckpointError: if the checkpoint's list of functions is damaged, or the functions cannot
                continue with the checkpoint.
        """
        known = known_functions(checkpoint) or KnownFunctions()
        names = set(map(known.present_name, known.stored_names))
        own = {str(function.typename) for function in functions or ()}
        if functions is not None and own and names and not any(map(functions.find, names)):
            raise ConfigurationError(
                f"the program's functions ({', '.join(sorted(own))}) are not those of the application of "
                f"checkpoint {checkpoint.shown} ({', '.join(sorted(names))}); give its own program"
            )
        if functions is not None:
            functions = continued(functions, checkpoint)
            names = {name for name in names if functions.find(name) is None}
        return cls(sorted(names | own), functions, known)

    def stored_name(self, typename: str) -> str:
        """Return the typename with which the checkpoint stores the function that has, or had, a typename."""
        if self._functions is not None and self._functions.find(typename) is not None:
            return self._functions.stored_name(typename)
        return self._known.stored_name(typename)

    def present_name(self, typename: str) -> str:
        """Return the present typename of the function that has, or had, a typename."""
        function = self._functions.find(typename) if self._functions is not None else None
        if function is not None:
            return typename if function.typename.name == "*" else str(function.typename)
        return self._known.present_name(self._known.stored_name(typename))

    def present(self, address: Address) -> Address:
        """Return an address with the present name of its function."""
        name = self.present_name(address.typename)
        return address if name == address.typename else Address(name, address.id)

    def former_names(self) -> Iterator[str]:
        """Yield the names that renamed functions had."""
        for stored, names in self._known.names.items():
            yield from (name for name in (stored, *names) if name not in self.typenames)
        for function in self._functions or ():
            yield from function.renamed_from

    def has(self, typename: str) -> bool:
        """Return whether a function is known, by its typename or as one of ``namespace/*`` behind an endpoint."""
        name = self.present_name(typename)
        return name in self.typenames or all_of_namespace(name) in self.typenames

    def check(self, typename: str) -> None:
        """Check that a function is known, as :meth:`has` says.

        Raises:
            ConfigurationError: if it is not; the error has the most similar name.
        """
        if not self.has(typename):
            raise ConfigurationError(f"there is no function {typename}{self.hint(typename)}")

    def types(self, typename: str) -> dict[str, Type[Any] | None]:
        """Return the type of each value that a function is known to have, by name; None for an unknown type."""
        found: dict[str, Type[Any] | None] = {
            name: primitive_type(value_type)
            for name, value_type in self._declared(self.stored_name(typename)).items()
        }
        function = self._functions.find(typename) if self._functions is not None else None
        if function is not None:
            found = {n: t for n, t in found.items() if n not in function.renamed_values}
            found |= {name: spec.type for name, spec in function.specs.items()}
        return found

    def typename(self, typename: str, name: str) -> str:
        """Return the typename of a value as a start declared it; empty if none did.

        Args:
            typename: the stored name of the function.
            name: the name of the value.
        """
        return self._declared(typename).get(name, "")

    def _declared(self, stored: str) -> dict[str, str]:
        """Return the typename of each value of a function as the newest start declared it, by the value's name."""
        newest = {n: newest_declaration(own) for n, own in self._known.declared(stored).items()}
        return {name: each.typename for name, each in newest.items() if each is not None}

    def expires_after(self, typename: str, name: str) -> timedelta | None:
        """Return how long after a write a value expires; None if it does not expire, or if no program declares it."""
        function = self._functions.find(typename) if self._functions is not None else None
        spec = function.specs.get(name) if function is not None else None
        return None if spec is None else spec.expire_after_write or spec.expire_after_call

    def present_values(self, typename: str) -> Mapping[str, str]:
        """Return the present names of a function's values that were renamed, by their former names."""
        function = self._functions.find(typename) if self._functions is not None else None
        return {} if function is None else function.renamed_values

    def message_type(self, function: str, typename: str) -> Type[Any] | None:
        """Return the type of a message's value; None if no type is known for its typename.

        If a handler takes a class for which no type is declared, it takes every typename that ends in the class's
        name, in whatever namespace. The result is then the type of that class, and may have another typename.

        Args:
            function: the typename of the function that gets the message.
            typename: the typename of the message's value.
        """
        own = primitive_type(typename) or default_types.find(typename)
        if own is not None or self._functions is None:
            return own
        target = self._functions.find(function)
        taken = target.type_of(typename) if target is not None else None
        if taken is not None and (taken.typename == typename or not taken.reads(typename)):
            return taken
        # A class of a state, of another function, or of an older type that the target's handlers upgrade.
        return next(automatic_types(typename), None)

    def message_typenames(self) -> Sequence[str]:
        """Return the typenames of values that may be sent: first the program's, then those that every program has."""
        if self._functions is None:
            return PRIMITIVE_TYPES
        own = {name for function in self._functions for name in function.typenames()}
        own.update(each.typename for each in default_types.list())
        return [*sorted(own.difference(PRIMITIVE_TYPES)), *PRIMITIVE_TYPES]

    def secret_types(self) -> frozenset[str]:
        """Return the typenames of the secret types, as the program or the checkpoint says."""
        own = {each.typename for each in known_types() if each.is_secret}
        return self._known.secret_types | own

    def secrets(self, typename: str) -> Secrets:
        """Return which values of a function must not be shown, as the program or the checkpoint says."""
        names = self._known.secret_values(self.stored_name(typename))
        function = self._functions.find(typename) if self._functions is not None else None
        if function is not None:
            own = {name for name, spec in function.specs.items() if spec.type.is_secret}
            renamed = {former for former, name in function.renamed_values.items() if name in own}
            names = names | own | renamed
        return Secrets(names, self.secret_types())

    def decoder(self, typename: str, name: str, value_type: str) -> ValueDecoder:
        """Return the decoder for a stored value.

        Args:
            typename: the typename of the function.
            name: the name of the value.
            value_type: the typename with which the value is stored.
        """
        name = self.present_values(typename).get(name, name)
        return ValueDecoder(self.types(typename).get(name) or primitive_type(value_type))

    def hint(self, typename: str) -> str:
        """Return the end of an error text about an unknown function: the most similar name, or all names."""
        return nearest(typename, self.typenames, "known functions")


def nearest(name: str, names: Iterable[str], what: str) -> str:
    """Return a hint for an error text: the name most similar to ``name``, or the first names.

    >>> nearest("com.example/gretter", ["com.example/greeter"], "functions")
    '; did you mean com.example/greeter?'
    >>> nearest("x", ["com.example/greeter"], "functions")
    ' (functions: com.example/greeter)'
    """
    candidates = list(names)
    if meant := suggestion(name, candidates):
        return f"; {meant}"
    listed = ", ".join(candidates[:10]) + (", ..." if len(candidates) > 10 else "")  # noqa: PLR2004
    return f" ({what}: {listed or 'none'})"
