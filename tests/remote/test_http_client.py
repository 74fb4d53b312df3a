# SPDX-License-Identifier: Apache-2.0
"""Answers of real servers that end, or begin, where no server should."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from remote_servers import answer, seen, serving, texts_of

from statefun.protocol.request_reply_pb2 import ToFunction
from statefun.remote.http_client import BYTES


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_answer_that_breaks_off_before_its_content_is_no_reply(version: str) -> None:
    """If only the connection's end ends the content, no content is a connection that broke, and no empty reply."""
    refused = [1, 2]

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        if refused and ToFunction.FromString(await request.read()).invocation.state:
            refused.pop()
            head = f"HTTP/{version} 200 OK\r\nContent-Type: {BYTES}\r\n\r\n"
            request.transport.write(head.encode())
            request.transport.close()
            return web.Response()
        return await answer(request)

    async def scenario() -> None:
        async with serving(handler) as served:
            assert seen(await served.invoke("a")) == "a"
            assert not refused

    asyncio.run(scenario())


def test_a_server_that_never_declares_the_length_of_no_content_is_told_so() -> None:
    """The failure of the message names the header that the server has to send."""

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(f"HTTP/1.0 200 OK\r\nContent-Type: {BYTES}\r\n\r\n".encode())
        request.transport.close()
        return web.Response()

    async def scenario() -> None:
        async with serving(handler) as served:
            result = await served.invoke("a")
            shown = [*texts_of(result), str(result.postponed), str(served.trouble)]
            shown += map(str, served.remote.take_circuit_reports())
            assert any("a server has to send Content-Length" in text for text in shown), shown

    asyncio.run(scenario())
