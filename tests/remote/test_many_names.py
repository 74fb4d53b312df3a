# SPDX-License-Identifier: Apache-2.0
"""The client of an endpoint whose functions have names without end, as clients of the application may invent them."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from aiohttp import web
from local_servers import free_port
from remote_servers import TARGET, answer, batch_of, endpoint, seen, serving

from statefun.protocol.request_reply_pb2 import ToFunction
from statefun.remote.circuit import Circuit, EndpointDownError
from statefun.remote.endpoint_client import EndpointClient
from statefun.sdk.address import Address
from statefun.sdk.bounded_map import MOST_NAMES

NAMES = [f"remote.fns/name-{number}" for number in range(MOST_NAMES + 2000)]


async def admit(client: EndpointClient, *typenames: str, is_asked: bool = False) -> None:
    """Let calls of functions pass, or raise an error."""
    for typename in typenames:
        url = client.url_of(Address(typename, "Ada"))
        await client.caller().admit(url, bytes, is_asked=is_asked)


def circuits() -> int:
    """Return how many circuits there are in this process."""
    return sum(isinstance(each, Circuit) for each in gc.get_objects())


def test_facts_about_the_functions_that_were_called_last_are_known() -> None:
    """All others are forgotten."""
    client = EndpointClient(endpoint("http://127.0.0.1:1/{function.name}"))

    facts = [weakref.ref(client.facts_of(Address(name, "Ada"))) for name in NAMES]

    known = [each() is not None for each in facts]
    assert known == [False] * 2000 + [True] * MOST_NAMES


def test_a_server_that_is_down_is_known_however_many_others_are_called() -> None:
    """The circuits of servers that can be reached are dropped, and the report about the one that is down is there."""
    client = EndpointClient(endpoint(f"http://127.0.0.1:{free_port()}/{{function.name}}"))

    async def scenario() -> None:
        before = circuits()
        with pytest.raises(EndpointDownError):
            await admit(client, "remote.fns/down", is_asked=True)
        await admit(client, *NAMES)
        with pytest.raises(EndpointDownError):
            await admit(client, "remote.fns/down")
        assert circuits() - before <= MOST_NAMES + 1
        await client.close()

    asyncio.run(scenario())
    (report,) = client.take_circuit_reports()
    assert report.endpoint.endswith("/down")
    assert client.take_circuit_reports() == []


def test_an_answer_of_a_long_call_counts_for_the_calls_after_it() -> None:
    """Also if very many other functions are called meanwhile."""
    is_called, goes_on = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        if not ToFunction.FromString(await request.read()).invocation.invocations:
            return web.Response(status=503)
        is_called.set()
        await goes_on.wait()
        return await answer(request)

    async def scenario() -> None:
        async with serving(handler) as served:
            client = served.remote.client
            call = asyncio.ensure_future(served.remote.invoke(batch_of(TARGET, "a"), None))
            await is_called.wait()
            await admit(client, *NAMES)
            with pytest.raises(EndpointDownError):
                await admit(client, TARGET.typename, is_asked=True)
            goes_on.set()
            assert seen(await call) == "a"
            await admit(client, TARGET.typename)

    asyncio.run(scenario())
