# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse

import pytest
import uvicorn
from patience import SECONDS

import statefun
from statefun import Context, DefinitionError, Message, StatefulFunctions, StringType
from statefun.protocol.request_reply_pb2 import FromFunction, ToFunction
from statefun.serving.asgi import Event, asgi

LIMIT = 1000
FROM_A_RUNTIME = {"Content-Type": "application/octet-stream"}
_POLL_SECONDS = 0.02


@contextmanager
def served(
    functions: StatefulFunctions, *, only_this_machine: bool = False
) -> Iterator[HTTPConnection]:
    """Serve functions with uvicorn; yield a connection."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        application = asgi(functions, max_request_bytes=LIMIT, only_this_machine=only_this_machine)
        config = uvicorn.Config(application, log_config=None, ws="none", lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([sock],))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(_POLL_SECONDS)
            with closing(
                HTTPConnection("127.0.0.1", sock.getsockname()[1], timeout=SECONDS)
            ) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


def greeters() -> StatefulFunctions:
    """Return functions that greet, plain and as coroutine, and one that fails."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/plain")
    def plain(ctx: Context, message: Message) -> None:
        reply = statefun.message_builder("test.fns/x", "x", str_value=f"Hi {message.as_string()}")
        ctx.send(reply)

    @functions.bind("test.fns/async")
    async def coroutine(ctx: Context, message: Message) -> None:
        plain(ctx, message)

    @functions.bind("test.fns/fails")
    def fails(ctx: Context, message: Message) -> None:
        raise LookupError(message.as_string())

    return functions


def request(name: str, text: str = "Ada") -> bytes:
    """Return a request with one message."""
    asked = ToFunction()
    batch = asked.invocation
    batch.target.namespace, batch.target.type, batch.target.id = "test.fns", name, "Ada"
    argument = batch.invocations.add().argument
    argument.typename, argument.has_value = StringType.typename, True
    argument.value = StringType.serializer().serialize(text)
    return asked.SerializeToString()


def answer(
    client: HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = FROM_A_RUNTIME,
) -> tuple[HTTPResponse, bytes]:
    """Send a request; return the reply and its content."""
    client.request(method, path, body, dict(headers))
    response = client.getresponse()
    return response, response.read()


@pytest.mark.parametrize("name", ["plain", "async"])
def test_requests_are_answered(name: str) -> None:
    """At any path, over one connection for all of them."""
    with served(greeters()) as client:
        for text in ("Ada", "Grace"):
            response, content = answer(client, "POST", "/statefun", request(name, text))

            assert response.status == 200
            assert response.headers["content-type"] == "application/octet-stream"
            (sent,) = FromFunction.FromString(content).invocation_result.outgoing_messages
            assert StringType.serializer().deserialize(sent.argument.value) == f"Hi {text}"


def test_the_server_tells_that_it_is_up() -> None:
    """For load balancers, which ask by either method."""
    with served(greeters()) as client:
        response, content = answer(client, "GET", "/health")
        assert (response.status, content) == (200, b"ok\n")
        response, content = answer(client, "HEAD", "/health")
        assert (response.status, content) == (200, b"")


def test_what_is_no_request_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Each time with the status that says why, and the server goes on."""
    with served(greeters()) as client:
        response, content = answer(client, "GET", "/statefun")
        assert (response.status, response.headers["allow"]) == (405, "POST")
        response, content = answer(client, "POST", "/", b"nonsense")
        assert response.status == 400
        assert b"[SF306]" in content
        response, content = answer(client, "POST", "/", request("plian"))
        assert response.status == 404
        assert b"did you mean test.fns/plain?" in content
        response, content = answer(client, "POST", "/", request("fails"))
        assert (response.status, content) == (500, b"a function has failed\n")
        assert "LookupError: Ada" in caplog.text
        assert "test.fns/fails/Ada has failed; the runtime" in caplog.text
        response, content = answer(client, "POST", "/", request("plain", "x" * LIMIT))
        assert response.status == 413
        assert b"at most 1,000 bytes" in content
        response, content = answer(client, "POST", "/", request("plain"))
        assert response.status == 200


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_what_ends_a_process_ends_a_call(
    kind: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """It is a failure of the function, which the log names; the server goes on."""
    functions = greeters()

    @functions.bind("test.fns/ends")
    def ends(ctx: Context, message: Message) -> None:
        raise error

    @functions.bind("test.fns/ends_async")
    async def ends_async(ctx: Context, message: Message) -> None:
        raise error

    name = "ends" if kind == "plain" else "ends_async"
    with served(functions) as client:
        response, _ = answer(client, "POST", "/", request(name))
        assert response.status == 500
        assert f"the function of test.fns/{name}/Ada has failed; the runtime" in caplog.text
        response, _ = answer(client, "POST", "/", request("plain"))
        assert response.status == 200


def counting() -> tuple[StatefulFunctions, list[str]]:
    """Return a function, and what it was called with."""
    functions, called = StatefulFunctions(), list[str]()
    functions.register("test.fns/plain", lambda ctx, message: called.append(message.as_string()))
    return functions, called


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({}, 415),
        ({**FROM_A_RUNTIME, "Origin": "http://attacker.example"}, 403),
        ({**FROM_A_RUNTIME, "Origin": "http://localhost:3000"}, 403),
        ({**FROM_A_RUNTIME, "Origin": "http://["}, 403),
        ({**FROM_A_RUNTIME, "Origin": "null"}, 403),
        ({**FROM_A_RUNTIME, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**FROM_A_RUNTIME, "Sec-Fetch-Site": "same-site"}, 403),
        (
            {
                **FROM_A_RUNTIME,
                "Host": "attacker.example:8000",
                "Origin": "http://attacker.example:8000",
            },
            403,
        ),
    ],
    ids=str,
)
def test_pages_cannot_call_functions(headers: Mapping[str, str], status: int) -> None:
    """A page makes its reader's browser send requests, without asking where the server allows it."""
    functions, called = counting()
    with served(functions) as client:
        response, _ = answer(client, "POST", "/", request("plain"), headers)
        assert response.status == status
        response, _ = answer(client, "POST", "/", request("plain", "Grace"))
        assert response.status == 200

    assert called == ["Grace"]


@pytest.mark.parametrize("host", ["attacker.example", "", "[", "localhost.attacker.example"])
def test_names_that_others_make_point_here_are_refused(host: str) -> None:
    """Where clients are on this machine; the health is nobody's secret."""
    functions, called = counting()
    named = {**FROM_A_RUNTIME, "Host": host}
    with served(functions, only_this_machine=True) as client:
        response, content = answer(client, "POST", "/", request("plain"), named)
        assert (response.status, b"--host" in content) == (403, True)
        response, _ = answer(client, "GET", "/health", headers=named)
        assert response.status == 200
        for own in ("localhost", "localhost:8000", "[::1]:8000"):
            content_type = "Application/Octet-Stream; x=y"
            sent = {"Content-Type": content_type, "Host": own}
            response, _ = answer(client, "POST", "/", request("plain", own), sent)
            assert response.status == 200

    assert called == ["localhost", "localhost:8000", "[::1]:8000"]


def test_a_server_for_others_has_any_name() -> None:
    """A proxy before it may keep the name that clients use."""
    functions, called = counting()
    with served(functions) as client:
        named = {**FROM_A_RUNTIME, "Host": "functions.example"}
        response, _ = answer(client, "POST", "/", request("plain"), named)
        assert response.status == 200

    assert called == ["Ada"]


def test_a_denied_request_is_read_before_it_is_answered() -> None:
    """Otherwise the system may reset the connection, and the client would not see why it is denied."""
    events: list[str] = []
    parts = [b"first", b"last"]

    async def receive() -> Event:
        events.append("read")
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(event: Event) -> None:
        events.append(event["type"])

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}

    async def ask() -> None:
        await asgi(greeters())(scope, receive, send)

    asyncio.run(ask())

    assert events == ["read", "read", "http.response.start", "http.response.body"]


def test_other_protocols_are_refused() -> None:
    """As the specification asks for."""

    async def connect() -> None:
        await asgi(greeters())({"type": "websocket"}, None, None)  # type: ignore[arg-type]

    with pytest.raises(NotImplementedError, match="serves HTTP only, not websocket"):
        asyncio.run(connect())


def test_nothing_to_serve_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Most often another registry was meant."""
    with served(StatefulFunctions()):
        pass

    assert "there are no functions to serve" in caplog.text


def test_a_limit_is_a_number_of_bytes() -> None:
    """Anything else is refused at once."""
    with pytest.raises(DefinitionError, match="max_request_bytes must be a positive number, not 0"):
        asgi(max_request_bytes=0)
