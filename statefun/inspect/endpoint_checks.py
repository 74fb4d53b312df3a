# SPDX-License-Identifier: Apache-2.0
"""Checks, before a start, that the endpoints of an application answer and have the needed functions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from statefun.module.findings import Finding
from statefun.module.model import Module
from statefun.remote.endpoint_functions import Checked, check, with_endpoints
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.stateful_function import StatefulFunction


def endpoint_findings(
    module: Module, registered: StatefulFunctions | None = None
) -> Iterator[Finding]:
    """Yield the problems of all endpoints, found by requests without messages, so that no function is called.

    An endpoint that serves a whole namespace gets one request for each of its functions that is a target
    of an ingress. If no function is a target, the endpoint gets one request that checks whether it answers.

    Args:
        module: the module that declares the endpoints and the ingresses.
        registered: the functions that the program registers; an endpoint that serves their namespace need
            not have them.
    """
    remote = with_endpoints(StatefulFunctions(), module)
    local = registered or StatefulFunctions()
    routes = [route for ingress in module.routed for route in ingress.topics]
    targets = sorted({str(target) for route in routes for target in route.targets})

    async def check_endpoint(function: StatefulFunction) -> Checked:
        own_targets = [target for target in targets if remote.find(target) is function]
        names = [target for target in own_targets if not _is_local(local, target)]
        if function.typename.name != "*":
            names = [str(function.typename)]
        return await check(function, names)

    async def check_all() -> list[Checked]:
        return await asyncio.gather(*map(check_endpoint, remote))

    for endpoint, result in zip(module.endpoints, asyncio.run(check_all()), strict=True):
        for text in dict.fromkeys(result.problems):
            yield Finding.at(endpoint.location, text)
        if result.warning is not None:
            text = f"{result.warning} to a request that it cannot handle; the endpoint should answer with status 500"
            yield Finding.at(endpoint.location, text, is_error=False)


def _is_local(functions: StatefulFunctions, target: str) -> bool:
    function = functions.find(target)
    return function is not None and function.transport is None
