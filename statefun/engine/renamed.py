# SPDX-License-Identifier: Apache-2.0
"""The present and the stored names of renamed functions.

A checkpoint stores the state and the messages of a function with the typename that the function had first, its
*stored name*: so a renamed function goes on with all of them, without any being read or written. In the engine,
keys have stored names. Functions, errors and logs get present names.
"""

from __future__ import annotations

from statefun.engine.address_keys import address_key, address_of
from statefun.sdk.address import Address
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.invocation_batch import InvocationBatch


def stored_names(functions: StatefulFunctions) -> dict[str, str]:
    """Return the stored names of renamed functions, by each of their other names."""
    return {
        name: function.stored_name
        for function in functions
        for name in (str(function.typename), *function.renamed_from)
        if name != function.stored_name
    }


class PresentNames:
    """Replaces former names of functions with their present names, for functions, errors and logs.

    Args:
        functions: the functions of the application.
    """

    def __init__(self, functions: StatefulFunctions) -> None:
        self._renamed = {
            former: function for function in functions for former in function.renamed_from
        }
        self.are_renamed = bool(self._renamed)
        """Whether any function was renamed."""

    def typename(self, typename: str) -> str:
        """Return the present name of a function."""
        function = self._renamed.get(typename)
        return typename if function is None else str(function.typename)

    def address(self, address: Address) -> Address:
        """Return an address with the present name of its function."""
        function = self._renamed.get(address.typename)
        return address if function is None else function.address(address.id)

    def batch(self, batch: InvocationBatch) -> InvocationBatch:
        """Return an invocation batch whose callers have their present names."""
        if not self._renamed:
            return batch
        return batch._replace(
            invocations=[
                each if each.caller is None else each._replace(caller=self.address(each.caller))
                for each in batch.invocations
            ]
        )

    def key(self, key: bytes) -> bytes:
        """Return the key of an address, in which the present name of the function replaces its stored name."""
        if not self._renamed:
            return key
        return address_key(self.address(address_of(key)))
