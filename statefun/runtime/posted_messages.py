# SPDX-License-Identifier: Apache-2.0
"""Checks messages that clients send to functions over HTTP."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from datetime import timedelta
from http import HTTPStatus

from statefun.remote.endpoint_functions import confirms
from statefun.runtime.http_server import RefusedError
from statefun.sdk.address import Address, TypeName
from statefun.sdk.errors import DefinitionError, FunctionError, StatefunError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.primitives import StringType
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.types import default_types

TARGET = "/<namespace>/<type>/<id>"
"""The form of a message's path."""
_ASK_AGAIN = timedelta(seconds=10)
"""How long messages are accepted unasked after an endpoint could not be reached, as a question takes seconds then."""
_MOST_KNOWN = 10_000
"""For how many functions the answers of endpoints are known: clients may invent names while an endpoint is down."""
_VENDOR = "application/vnd."
_WELL_KNOWN = "io.statefun.types/"


class PostedMessages:
    """Checks the messages that clients send to functions.

    Args:
        functions: the functions of the application.
    """

    def __init__(self, functions: StatefulFunctions) -> None:
        self._functions = functions
        self._ask_again: dict[str, float] = {}
        """When to ask an endpoint again whether it has a function, by typename, on the clock ``time.monotonic``.

        Never, if the endpoint has confirmed it.
        """

    def checked(
        self, path: Sequence[str], content_type: str | None, body: bytes
    ) -> tuple[Address, str, bytes]:
        """Return a message's target, and the typename and bytes of its value.

        Args:
            path: the parts of the address.
            content_type: the header that names the value's type.
            body: the value.

        Raises:
            RefusedError: if no function accepts such a message.
        """
        try:
            namespace, name, id_ = path
            address = Address(f"{namespace}/{name}", id_)
            # A name has neither a slash nor blanks at its ends.
            if not id_ or address[:2] != (namespace, name):
                raise ValueError("the path is not exactly that of an address")
        except (ValueError, DefinitionError):
            text = f"the path of a message must be {TARGET}, but is /{'/'.join(path)}"
            raise RefusedError(HTTPStatus.NOT_FOUND, text) from None
        function = self._functions.find(address.typename)
        if function is None:
            hint = self._functions.hint(address.typename)
            text = f"no function {address.typename} is registered{hint}"
            raise RefusedError(HTTPStatus.NOT_FOUND, text)
        typename, value = _typed(content_type, body)
        if not function.takes(typename):
            advice = function.advice(typename)
            text = f"no handler of {address.typename} takes values of type {typename}: {advice}"
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
        _check_value(function, typename, value)
        self._check_answer(function, address)
        return address, typename, value

    def _check_answer(self, function: StatefulFunction, address: Address) -> None:
        """Refuse a message if the endpoint of its function does not have the function.

        Raises:
            RefusedError: if the endpoint has no such function.
        """
        typename, now = address.typename, time.monotonic()
        if function.transport is None or now < self._ask_again.get(typename, 0):
            return
        try:
            is_confirmed = asyncio.run(confirms(function, typename))
        except StatefunError as error:
            raise RefusedError(HTTPStatus.NOT_FOUND, error.message) from error
        pause = math.inf if is_confirmed else _ASK_AGAIN.total_seconds()
        if len(self._ask_again) >= _MOST_KNOWN:
            oldest, *_ = self._ask_again
            self._ask_again.pop(oldest, None)
        self._ask_again[typename] = time.monotonic() + pause


def _typed(content_type: str | None, body: bytes) -> tuple[str, bytes]:
    """Return the typename and the bytes of a message's value; a UTF-8 text without a type is a string."""
    media = (content_type or "").partition(";")[0].strip()
    if not media.lower().startswith(_VENDOR):
        try:
            return StringType.typename, StringType.serializer().serialize(body.decode())
        except UnicodeDecodeError:
            text = (
                f"a value that is no UTF-8 text must have a type: Content-Type: {_VENDOR}<typename>"
            )
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text) from None
    try:
        return str(TypeName.parse(media[len(_VENDOR) :])), body
    except DefinitionError as error:
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, error.message) from None


def _check_value(function: StatefulFunction, typename: str, value: bytes) -> None:
    """Check that a value can be decoded as its type, and by the function's handler.

    Raises:
        RefusedError: if the value cannot be decoded.
    """
    well_known = default_types.find(typename) if typename.startswith(_WELL_KNOWN) else None
    try:
        if well_known is not None:
            well_known.serializer().deserialize(value)
        function.decode(typename, value)
    except FunctionError:  # the value may be right, but cannot be decoded at present
        return
    except Exception as error:
        text = f"the value cannot be decoded as {typename}: {type(error).__name__}: {error}"
        raise RefusedError(HTTPStatus.BAD_REQUEST, text) from error
