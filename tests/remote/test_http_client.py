# SPDX-License-Identifier: Apache-2.0
"""Answers of real servers that end, or begin, where no server should."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from itertools import count

import pytest
from aiohttp import web
from remote_servers import (
    SECOND,
    answer,
    batch_of,
    endpoint,
    functions,
    seen,
    serving,
    texts_of,
)

from statefun import RequestReplyHandler
from statefun.module.model import Timeouts
from statefun.protocol.request_reply_pb2 import ToFunction
from statefun.remote.endpoint_functions import check
from statefun.remote.http_client import BYTES, HttpClient, NoReplyError
from statefun.remote.remote_function import RemoteFunctions
from statefun.sdk.address import Address, TypeName
from statefun.sdk.stateful_function import StatefulFunction


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


@pytest.mark.parametrize("host", ["functions..svc:8000", f"{'a' * 64}.example", "["])
def test_an_endpoint_whose_host_cannot_exist_is_not_reached(host: str) -> None:
    """A check of the endpoint has a problem in one sentence."""
    remote = RemoteFunctions(endpoint(f"http://{host}/"))
    function = StatefulFunction(TypeName("remote.fns", "*"), (), {}, transport=remote)

    (problem,) = asyncio.run(check(function, ["remote.fns/commands"])).problems

    assert "cannot be reached: its URL is wrong: " in problem


def test_messages_to_a_host_that_cannot_exist_fail() -> None:
    """They would wait for ever: the name of a function may be too long for the host in the URL template."""

    async def scenario() -> None:
        remote = RemoteFunctions(endpoint("http://pre-{function.name}.svc/"))
        result = await remote.invoke(batch_of(Address(f"remote.fns/{'a' * 60}", "x"), "a"), None)
        (text,) = texts_of(result)
        assert "cannot be reached: its URL is wrong: " in text
        assert result.postponed is None
        await remote.client.close()

    asyncio.run(scenario())


def test_an_answer_that_nobody_has_asked_for_is_no_reply() -> None:
    """A connection that gets data while no request is under way is closed, as RFC 9112 demands."""
    is_written = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            for number in count(1):
                head = await reader.readuntil(b"\r\n\r\n")
                (length,) = re.findall(rb"Content-Length: (\d+)", head)
                asked = await reader.readexactly(int(length))
                content = RequestReplyHandler(functions()).handle_sync(asked)
                first = (
                    f"HTTP/1.1 200 OK\r\nContent-Type: {BYTES}\r\nContent-Length: {len(content)}"
                )
                reply = f"{first}\r\n\r\n".encode() + content
                writer.write(reply)
                if number == 2:
                    await asyncio.sleep(0.05)
                    writer.write(reply)
                    is_written.set()
        writer.close()

    async def scenario() -> list[str]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        remote = RemoteFunctions(endpoint(f"http://127.0.0.1:{port}/"))
        sent = []
        for number in range(3):
            target = Address("remote.fns/commands", f"id{number}")
            result = await remote.invoke(batch_of(target, f"send friend{number}"), None)
            sent += [message.target_id for message in result.messages]
            await is_written.wait()
            await asyncio.sleep(0.05)
        await remote.client.close()
        server.close()
        return sent

    assert asyncio.run(scenario()) == ["friend0", "friend1", "friend2"]


def test_a_server_that_speaks_first_is_no_endless_loop() -> None:
    """Another protocol may have such a greeting; its connection has broken, as far as HTTP is concerned."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await reader.read()
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = HttpClient(endpoint(f"http://127.0.0.1:{port}/"))
        with pytest.raises(NoReplyError, match="has broken the connection off"):
            await client.post(f"http://127.0.0.1:{port}/", b"x", 5)
        await client.close()
        server.close()

    asyncio.run(scenario())


def test_an_answer_that_is_too_large_is_one_also_without_its_content() -> None:
    """The head tells its size, and the server sends nothing else."""
    ended = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {BYTES}\r\nContent-Length: 5000\r\n\r\n"
        request.transport.write(head.encode())
        await ended.wait()
        return web.Response()

    async def scenario() -> None:
        limits = Timeouts(60 * SECOND, SECOND, SECOND / 10)
        async with serving(handler, max_bytes=1000, timeouts=limits) as served:
            url = served.remote.client.url_of(Address("remote.fns/any", "Ada"))
            client = HttpClient(served.remote.client.endpoint)
            found = await client.post(url, b"", 60)
            assert (found.status, found.is_whole, found.content) == (200, False, b"")
            await client.close()
            ended.set()

    asyncio.run(scenario())
