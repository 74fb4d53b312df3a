# SPDX-License-Identifier: Apache-2.0
"""The functions of an application: those of its program, and those behind endpoints."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from statefun.module.binding import Finding
from statefun.module.model import Module
from statefun.sdk.address import Address
from statefun.sdk.errors import BindingError, ConfigurationError, PlatformError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.stateful_function import StatefulFunction

if TYPE_CHECKING:
    from statefun.remote.remote_function import RemoteFunctions

_ID = "statefun-check"
"""The id of the address for which an endpoint is asked."""


def with_endpoints(functions: StatefulFunctions, module: Module) -> StatefulFunctions:
    """Return the functions of a program together with those of a module's endpoints.

    Raises:
        BindingError: if one is in both.
        ConfigurationError: if certificates of an endpoint cannot be used.
        PlatformError: if what endpoints need is not installed.
    """
    if not module.endpoints:
        return functions
    if importlib.util.find_spec("aiohttp") is None:
        raise PlatformError("endpoints need aiohttp; run: pip install 'statefun[remote]'")
    from statefun.remote.http_client import tls_context  # noqa: PLC0415 - an extra
    from statefun.remote.remote_function import RemoteFunctions  # noqa: PLC0415 - as above

    taken = [f"{location}: {text}" for location, text in taken_names(functions, module)]
    if taken:
        raise BindingError("\n  ".join(["module files and functions do not fit", *taken]))
    for endpoint in module.endpoints:
        try:
            tls_context(endpoint.tls)
        except ConfigurationError as error:
            raise ConfigurationError(f"{endpoint.location}: {error.message}") from error
    everything = functions.copy()
    for endpoint in module.endpoints:
        everything.add(
            StatefulFunction(
                endpoint.functions,
                (),
                {},
                endpoint.failure_policy,
                endpoint.timeouts.call,
                transport=RemoteFunctions(endpoint),
            )
        )
    return everything


async def check(function: StatefulFunction, names: Sequence[str]) -> list[str | None]:
    """Ask the endpoint of a function whether functions are there; return why not, or None, of each.

    Without names it is asked whether it answers at all.
    """
    remote = cast("RemoteFunctions", function.transport)
    somewhere = Address(f"{function.typename.namespace}/any", _ID)
    try:
        if not names:
            needs_name = remote.endpoint.has_host_of_function
            return [None if needs_name else await remote.probe(somewhere)]
        return [await remote.ask(Address(name, _ID)) for name in names]
    except ConfigurationError as error:
        return [error.message]
    finally:
        await remote.close()


def taken_names(functions: StatefulFunctions, module: Module) -> Iterator[Finding]:
    """Find the functions that are both registered and behind an endpoint."""
    registered = {function.typename for function in functions}
    for endpoint in module.endpoints:
        if endpoint.functions in registered:
            yield endpoint.location, f"{endpoint.functions} is registered in the program, too"
