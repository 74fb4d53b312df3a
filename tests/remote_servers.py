# SPDX-License-Identifier: Apache-2.0
"""Real servers with functions, whose behaviour each test defines, and transports to them."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import attrs
from aiohttp import web

from statefun import (
    Context,
    Message,
    RequestReplyHandler,
    StatefulFunctions,
    StringType,
    TypedValue,
    ValueSpec,
    kafka_egress_message,
    message_builder,
)
from statefun.module.location import Location
from statefun.module.model import Endpoint, Timeouts
from statefun.protocol.request_reply_pb2 import ToFunction
from statefun.remote.http_client import BYTES
from statefun.remote.remote_function import RemoteFunctions
from statefun.sdk.address import Address, TypeName
from statefun.sdk.encoding import encoded
from statefun.sdk.invocation_batch import (
    NO_TROUBLE,
    Invocation,
    InvocationBatch,
    InvocationResult,
    Trouble,
)
from statefun.sdk.stateful_function import StatefulFunction
from statefun.testing.remote_calls import call_until_answered

SECOND = timedelta(seconds=1)
TARGET = Address("remote.fns/commands", "Ada")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def functions() -> StatefulFunctions:
    """Return a function that carries out the commands in its messages."""
    registry = StatefulFunctions()
    specs = [
        ValueSpec("seen", StringType, expire_after_write=timedelta(hours=1)),
        ValueSpec("kept", StringType, expire_after_call=timedelta(hours=2)),
    ]

    @registry.bind("remote.fns/commands", specs)
    def obey(ctx: Context, message: Message) -> None:
        text = message.as_string()
        ctx.storage.seen = (ctx.storage.seen or "") + text[0]
        match text.split():
            case ["send", id_]:
                ctx.send(message_builder("remote.fns/commands", id_, str_value="hello"))
            case ["later", token]:
                later = message_builder("remote.fns/commands", "Bob", str_value="late")
                ctx.send_after(SECOND, later, token)
            case ["cancel", token]:
                ctx.cancel_delayed_message(token)
            case ["emit", value]:
                ctx.send_egress(
                    kafka_egress_message("remote/out", topic="out", key=ctx.address.id, value=value)
                )
            case ["fail"]:
                raise ValueError("as it was told")
            case ["drop"]:
                del ctx.storage.seen
            case _:
                pass

    return registry


async def answer(request: web.Request) -> web.Response:
    """Answer as a server with our own SDK does."""
    try:
        reply = RequestReplyHandler(functions()).handle_sync(await request.read())
    except ValueError as error:
        return web.Response(status=500, text=str(error))
    return web.Response(body=reply, content_type=BYTES)


@attrs.define
class Served:
    """A server, and a transport to it."""

    remote: RemoteFunctions
    requests: list[bytes] = attrs.field(factory=list)
    trouble: Trouble = NO_TROUBLE
    """The trouble that the state of the address keeps."""

    async def invoke(
        self, *texts: str, state: dict[str, TypedValue] | None = None, **more: Any
    ) -> InvocationResult:
        """Send texts in one micro-batch."""
        batch = batch_of(TARGET, *texts)._replace(state=state or {}, trouble=self.trouble)
        result = await self.remote.invoke(batch, more.get("prepare"))
        self.trouble = result.trouble
        return result

    async def finish(self, *texts: str) -> InvocationResult:
        """Send texts in as many micro-batches as it takes."""
        function = StatefulFunction(TypeName("remote.fns", "*"), (), {}, transport=self.remote)
        return await call_until_answered(function, batch_of(TARGET, *texts), lambda sent: sent)

    def batches(self) -> list[int]:
        """Return how many messages each request had."""
        asked = [ToFunction.FromString(each).invocation for each in self.requests]
        return [len(each.invocations) for each in asked]


def batch_of(target: Address, *texts: str) -> InvocationBatch:
    """Return messages with texts for an address that keeps nothing."""
    return InvocationBatch(
        target, {}, [Invocation(None, encoded(text, StringType)) for text in texts]
    )


def endpoint(url: str, **options: Any) -> Endpoint:
    """Return an endpoint, by default with timeouts that a pause of the machine does not reach."""
    timeouts = options.pop("timeouts", Timeouts(120 * SECOND, 60 * SECOND, 60 * SECOND))
    here = Location("module.yaml", 1, 1)
    return Endpoint(TypeName("remote.fns", "*"), url, here, timeouts, **options)


@asynccontextmanager
async def serving(
    handler: Handler = answer, *, tls: ssl.SSLContext | None = None, **options: Any
) -> Any:
    """Run a server with that handler; yield it with a transport."""
    requests: list[bytes] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        requests.append(await request.read())
        return await handler(request)

    application = web.Application(client_max_size=10**9)
    application.router.add_route("*", "/{name:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    (sock,) = site._server.sockets  # type: ignore[union-attr] # noqa: SLF001 - it chose the port
    url = f"http{'s' if tls else ''}://127.0.0.1:{sock.getsockname()[1]}/{{function.name}}"
    remote = RemoteFunctions(endpoint(url, **options))
    try:
        yield Served(remote, requests)
    finally:
        await remote.client.close()
        await runner.cleanup()


def texts_of(result: InvocationResult) -> list[str]:
    """Return the texts of all failures."""
    return [failure.error.message for failure in result.failures]


def seen(result: InvocationResult) -> str:
    """Return the value that lists the handled messages."""
    value = result.state_mutations["seen"]
    assert value is not None
    return StringType.serializer().deserialize(value.value)
