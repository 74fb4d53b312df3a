# SPDX-License-Identifier: Apache-2.0
"""Asks the endpoints of an application whether their functions are there, before its start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from statefun.inspect.validation import Finding
from statefun.module.model import Module
from statefun.remote.endpoint_functions import Checked, check, with_endpoints
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.stateful_function import StatefulFunction


def endpoint_findings(
    module: Module, registered: StatefulFunctions | None = None
) -> Iterator[Finding]:
    """Ask each endpoint with a request that has no messages, so that no function is called.

    An endpoint of a whole namespace is asked for the functions that ingresses send to, and without
    any whether it answers at all.

    Args:
        module: the endpoints and ingresses.
        registered: the functions of the program, which go before the endpoint of a namespace.
    """
    functions = with_endpoints(StatefulFunctions(), module)
    local = registered or StatefulFunctions()
    routes = [route for ingress in module.routed for route in ingress.topics]
    targets = sorted({str(target) for route in routes for target in route.targets})

    async def asked(function: StatefulFunction) -> Checked:
        found = [target for target in targets if functions.find(target) is function]
        names = [target for target in found if not _is_local(local, target)]
        if function.typename.name != "*":
            names = [str(function.typename)]
        return await check(function, names)

    async def all_asked() -> list[Checked]:
        return await asyncio.gather(*map(asked, functions))

    for endpoint, checked in zip(module.endpoints, asyncio.run(all_asked()), strict=True):
        for text in dict.fromkeys(checked.problems):
            yield Finding.at(endpoint.location, text)
        if checked.warning is not None:
            text = f"{checked.warning} to a request that it cannot answer; let it answer 500"
            yield Finding.at(endpoint.location, text, is_error=False)


def _is_local(functions: StatefulFunctions, target: str) -> bool:
    found = functions.find(target)
    return found is not None and found.transport is None
