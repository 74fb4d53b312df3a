# SPDX-License-Identifier: Apache-2.0
"""What replaces the parts of a context when its call has ended: using them is an error.

Otherwise, what a task, a thread or a kept context does later would be lost, or would become an effect of the
message that the address handles by then.
"""

from __future__ import annotations

from typing import Any, Final

from statefun.sdk.current import current_address
from statefun.sdk.errors import FunctionError

_ADVICE = (
    "await all tasks and threads that use it before the function returns, also if one of them "
    "fails, and keep no context or state for later calls"
)


def refuse_sending(_message: Any) -> Any:
    """Raise the error for a message that is sent after the call; the context adds the name of its address.

    Raises:
        FunctionError: always.
    """
    raise FunctionError(f"its context is used after the call has ended: {_ADVICE}")


class _EndedValues(dict[str, Any]):
    """Stands for the values of an address after a call, and for their changes: each use is an error."""

    def __setitem__(self, name: str, _value: Any) -> None:
        raise _used(name)

    def get(self, name: str, _default: Any = None) -> Any:
        raise _used(name)


ENDED_VALUES: Final[dict[str, Any]] = _EndedValues()
"""Replaces the stored values and the changes of a call that has ended."""


def _used(name: str) -> FunctionError:
    address = current_address.get()
    place = "" if address is None else f"function {address.typename} at address {address}: "
    return FunctionError(
        f"{place}the value {name!r} of a state is used after the call has ended: {_ADVICE}"
    )
