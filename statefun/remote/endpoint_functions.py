# SPDX-License-Identifier: Apache-2.0
"""The functions of an application: those of its program, and those behind endpoints."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from statefun.module.binding import Finding
from statefun.module.model import Module
from statefun.sdk.address import Address
from statefun.sdk.errors import BindingError, ConfigurationError, EndpointError, PlatformError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.stateful_function import StatefulFunction

if TYPE_CHECKING:
    from statefun.remote.remote_function import RemoteFunctions

_ID = "statefun-check"
"""The id of the addresses to which requests that check an endpoint are sent."""


def with_endpoints(functions: StatefulFunctions, module: Module) -> StatefulFunctions:
    """Return the functions of a program together with those of a module's endpoints.

    Raises:
        BindingError: if a function is both in the program and behind an endpoint.
        ConfigurationError: if certificates of an endpoint cannot be used.
        PlatformError: if aiohttp is not installed, which endpoints need.
    """
    conflicts = [f"{location}: {text}" for location, text in taken_names(functions, module)]
    if conflicts:
        raise BindingError("\n  ".join(["module files and functions do not fit", *conflicts]))
    return with_free_endpoints(functions, module)


def with_free_endpoints(functions: StatefulFunctions, module: Module) -> StatefulFunctions:
    """Return the functions of a program together with those of a module's endpoints that it does not register itself.

    Raises:
        ConfigurationError: if certificates of an endpoint cannot be used.
        PlatformError: if aiohttp is not installed, which endpoints need.
    """
    if not module.endpoints:
        return functions
    if importlib.util.find_spec("aiohttp") is None:
        raise PlatformError("endpoints need aiohttp; run: pip install 'statefun[remote]'")
    from statefun.remote.http_client import tls_context  # noqa: PLC0415 - an extra
    from statefun.remote.remote_function import RemoteFunctions  # noqa: PLC0415 - as above

    for endpoint in module.endpoints:
        try:
            tls_context(endpoint.tls)
        except ConfigurationError as error:
            raise ConfigurationError(f"{endpoint.location}: {error.message}") from error
    registered = {function.typename for function in functions}
    all_functions = functions.copy()
    for endpoint in (each for each in module.endpoints if each.functions not in registered):
        all_functions.add(
            StatefulFunction(
                endpoint.functions,
                (),
                {},
                endpoint.failure_policy,
                endpoint.timeouts.call,
                detach_after=endpoint.detach_after,
                max_in_flight=endpoint.max_in_flight,
                rate_limit=endpoint.rate_limit,
                transport=RemoteFunctions(endpoint),
            )
        )
    return all_functions


class Checked(NamedTuple):
    """What a check of an endpoint has found: functions that cannot be called, and suspicious answers."""

    problems: Sequence[str]
    """Why functions of the endpoint cannot be called; empty if all can be called."""
    warning: str | None = None
    """The answer for a function that does not exist, if it has the status of a success; else None."""


async def check(function: StatefulFunction, names: Sequence[str]) -> Checked:
    """Check by requests without messages that an endpoint has functions.

    If it has them, another request asks for a function that does not exist. The endpoint should answer this
    request with an error; if it answers with success instead, the result has a warning.

    Args:
        function: the function that represents the endpoint.
        names: the typenames of the functions; if empty, check only that the endpoint can be reached.
    """
    remote = cast("RemoteFunctions", function.transport).client
    targets = [Address(name, _ID) for name in names]
    somewhere = Address(f"{function.typename.namespace}/any", _ID)
    try:
        if names:
            problems = [await remote.ask(target) for target in targets]
        elif remote.endpoint.has_host_of_function:
            return Checked(())
        else:
            problems = [await remote.probe(somewhere)]
        actual_problems = [*filter(None, problems)]
        warning = None if actual_problems else await remote.false_success((*targets, somewhere)[0])
    except ConfigurationError as error:
        return Checked([error.message])
    else:
        return Checked(actual_problems, warning)
    finally:
        await remote.close()


async def confirms(function: StatefulFunction, typename: str) -> bool:
    """Ask the endpoint of a namespace whether it has a function.

    Args:
        function: the function that represents the endpoint.
        typename: the typename of the function.

    Returns:
        Whether the endpoint has the function; False if the endpoint cannot be reached now.

    Raises:
        StatefunError: if the endpoint answers, but not as one that has the function, or cannot be asked.
    """
    from statefun.remote.attempts import (  # noqa: PLC0415 - an extra
        CallFailedError,
        LaterError,
    )
    from statefun.remote.circuit import EndpointDownError  # noqa: PLC0415 - as above
    from statefun.remote.endpoint_client import EndpointClient  # noqa: PLC0415 - as above

    client = EndpointClient(cast("RemoteFunctions", function.transport).client.endpoint)
    try:
        await client.request(Address(typename, _ID))
    except CallFailedError as error:
        if error.is_final:
            text = f"the endpoint of {typename} does not seem to have it: it {error}"
            raise EndpointError(text) from error
        return False
    except (EndpointDownError, LaterError):
        return False
    else:
        return True
    finally:
        await client.close()


def taken_names(functions: StatefulFunctions, module: Module) -> Iterator[Finding]:
    """Yield a problem for each function that is both registered in the program and behind an endpoint."""
    registered = {function.typename for function in functions}
    for endpoint in module.endpoints:
        if endpoint.functions in registered:
            yield endpoint.location, f"{endpoint.functions} is registered in the program, too"
