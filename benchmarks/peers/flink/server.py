# SPDX-License-Identifier: Apache-2.0
"""The greeter, served for Flink StateFun by the published SDK: ``server.py PORT TOPIC HTTP``.

HTTP is uvicorn, or raw: httptools straight on uvloop, the fastest that was found. Several processes
can share a port: the kernel spreads the connections. Runs in a virtual environment of its own.
"""

import asyncio
import socket
import sys
from typing import Any

import httptools
import uvicorn
import uvloop

from statefun import (
    IntType,
    RequestReplyHandler,
    StatefulFunctions,
    ValueSpec,
    kafka_egress_message,
)

PORT, TOPIC, HTTP = int(sys.argv[1]), sys.argv[2], sys.argv[3]
KEEP_ALIVE_SECONDS = 600
WAITING_CONNECTIONS = 4096
functions = StatefulFunctions()


@functions.bind("bench/greeter", [ValueSpec("visits", IntType)])
def greet(context: Any, message: Any) -> None:
    """Count, and say so."""
    visits = (context.storage.visits or 0) + 1
    context.storage.visits = visits
    text = f"Hello {message.raw_value()[:20]!r}, visit {visits}"
    context.send_egress(
        kafka_egress_message(typename="bench/out", topic=TOPIC, key=context.address.id, value=text)
    )


handle = RequestReplyHandler(functions).handle_async


def listening() -> socket.socket:
    """Return the socket, shared by the processes."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", PORT))
    sock.listen(WAITING_CONNECTIONS)
    return sock


async def application(_scope: Any, receive: Any, send: Any) -> None:
    """Answer a request that uvicorn has read."""
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    reply = await handle(body)
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % len(reply)),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


class Connection(asyncio.Protocol):
    """A connection without any framework."""

    transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.replies: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        """Parse what has come."""
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.body: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        """Take a part of the request."""
        self.body.append(body)

    def on_message_complete(self) -> None:
        """Answer the request."""
        reply = asyncio.ensure_future(self.answer(b"".join(self.body)))
        self.replies.add(reply)
        reply.add_done_callback(self.replies.discard)

    async def answer(self, body: bytes) -> None:
        """Write the reply."""
        reply = await handle(body)
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(reply), reply)
        )


def serve_uvicorn() -> None:
    """Serve with uvicorn, without what it can leave out."""
    config = uvicorn.Config(
        application,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        lifespan="off",
        interface="asgi3",
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        server_header=False,
        date_header=False,
        backlog=WAITING_CONNECTIONS,
    )
    uvicorn.Server(config).run(sockets=[listening()])


async def serve_raw() -> None:
    """Serve without any framework."""
    server = await asyncio.get_running_loop().create_server(Connection, sock=listening())
    await server.serve_forever()


if HTTP == "uvicorn":
    serve_uvicorn()
else:
    uvloop.run(serve_raw())
