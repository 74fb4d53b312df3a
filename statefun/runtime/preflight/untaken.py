# SPDX-License-Identifier: Apache-2.0
"""Finds waiting messages of types that no handler of their function takes any more, such as those of a renamed class.

The value of a message keeps the typename with which it was sent. If no type is declared for a class, this typename is
made from the name of the class: after a rename, earlier messages have a type that the program does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from statefun.engine.groups import OWN_PREFIX
from statefun.runtime.preflight.waiting_messages import WaitingMessages
from statefun.sdk.errors import DefinitionError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.handlers import Handlers


def untaken(
    waiting: Mapping[tuple[str, str], WaitingMessages], functions: StatefulFunctions
) -> Iterator[str]:
    """Yield a text for each function and type of waiting messages that the function's handlers do not take.

    It yields nothing for functions that are not registered, and for functions that take any message, such as those of
    endpoints.

    Args:
        waiting: the messages by the stored name of their function and the typename of their values.
        functions: the registered functions, with their names in the checkpoint.
    """
    for (typename, value_type), messages in sorted(waiting.items()):
        function = functions.find(typename)
        call = None if function is None else function.call
        if not isinstance(call, Handlers) or value_type.startswith(OWN_PREFIX):
            continue
        if function is not None and not _takes(call, value_type):
            what = f"of type {value_type}" if value_type else "without a value"
            yield (
                f"no handler of function {function.typename} takes messages {what}, of which the checkpoint holds "
                f"{messages.text}: each of them fails when its turn comes; the handlers take {call.taken}: "
                f"{call.cure(value_type)}"
            )


def _takes(handlers: Handlers, typename: str) -> bool:
    try:
        return handlers.takes(typename)
    except DefinitionError:  # two of them take the same type, which another check reports
        return True
