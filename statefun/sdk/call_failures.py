# SPDX-License-Identifier: Apache-2.0
"""Describes the failures of calls.

The module is not compiled: compiled code expects each attribute to have its declared class, but the attributes of
users' exceptions can have any class.
"""

from __future__ import annotations

from collections.abc import Sequence

from statefun.sdk.address import Address
from statefun.sdk.deadline import CallTimeoutError
from statefun.sdk.errors import (
    FunctionError,
    InvocationError,
    LateMessageError,
    StateDecodeError,
    UnexpectedValueError,
    UnknownEgressError,
    UnknownFunctionError,
    ValueDecodeError,
)
from statefun.sdk.handlers import Handlers
from statefun.sdk.invocation_batch import FailedInvocation
from statefun.sdk.raised import class_name, line_of, text_of, traceback_of
from statefun.sdk.stateful_function import StatefulFunction

_PLACED: Sequence[type[InvocationError]] = (
    FunctionError,
    InvocationError,
    LateMessageError,
    UnexpectedValueError,
    UnknownEgressError,
    UnknownFunctionError,
    ValueDecodeError,
)
"""The errors whose texts already name the address."""


def failed_invocation(
    function: StatefulFunction, target: Address, index: int, error: BaseException
) -> FailedInvocation:
    """Return the FailedInvocation of a message, with the error for users and the traceback of their code.

    Args:
        function: the function.
        target: the address.
        index: the index of the invocation in its batch.
        error: the exception that the function has raised, of any class.
    """
    # The first frames are those of this module and of the dispatch to handlers.
    text = traceback_of(error, skip=1 + isinstance(function.call, Handlers))
    if type(error) is CallTimeoutError:  # isinstance would ask users' classes
        error = timeout_error(function)
    if type(error) is StateDecodeError:  # its text names the value, but not the address
        where = f"function {target.typename} at address {target}: {text_of(error.message)}"
        return FailedInvocation(index, StateDecodeError(where), StateDecodeError.__name__, text)
    for placed in _PLACED:
        if type(error) is placed:
            return FailedInvocation(index, placed(text_of(error.message)), placed.__name__, text)
    place = f"function {target.typename} failed at address {target}"
    failure = FunctionError(f"{place}: {line_of(error)}")
    return FailedInvocation(index, failure, class_name(error), text)


def timeout_error(function: StatefulFunction) -> TimeoutError:
    """Return the error for a call that took longer than the timeout of its function."""
    return TimeoutError(f"the call took longer than its timeout of {function.timeout}")
