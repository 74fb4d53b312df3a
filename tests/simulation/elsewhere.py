# SPDX-License-Identifier: Apache-2.0
"""A server with functions, and connections to it: it goes down by chance, and with some messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import attrs

from simulation.chaos import Chaos, CrashError
from simulation.functions import Actor, acting, far_functions
from simulation.world import POISON
from statefun import StringType
from statefun.module.location import Location
from statefun.module.model import Endpoint, Timeouts
from statefun.protocol.request_reply_pb2 import ToFunction
from statefun.remote.http_client import BYTES, Answer, NoConnectionError, NoReplyError
from statefun.remote.remote_function import RemoteFunctions
from statefun.sdk.address import TypeName
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.request_reply import RequestReplyHandler
from statefun.sdk.stateful_function import StatefulFunction

ENDLESS = 200
"""So often a server goes down with messages before it is clear that this has no end."""
_CHANCES = 2
"""How often a message may meet a server that goes down by chance: a third time would be its fault."""
_SLOWNESS = (0, 0.05, 0.3, 0.3)
"""Seconds that a request takes, unless the server goes down with it at once."""
_SHORT = (300, 2000)
_LONG = (300, 5000, 60_000, 1_800_000)
"""Milliseconds for which a server is down."""
_NAME = TypeName("t.fns", "far")
_TIMEOUTS = Timeouts(timedelta(seconds=5), timedelta(seconds=1))
_ENDPOINT = Endpoint(_NAME, "http://far:80/far", Location("module.yaml", 1, 1), _TIMEOUTS)
_HANDLER = RequestReplyHandler(far_functions)
_BUSY = 503


@attrs.define(eq=False)
class _Request:
    """A request that the server has, and by which message one knows it."""

    first: str
    broken: asyncio.Future[None]


class Server:
    """The server of a checkpoint's application."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos = chaos
        choose = chaos.random.choice
        self._outages = choose([0.0, 0.03, 0.15])
        """How likely one begins before a request."""
        self._down_until = choose([0, 60_000, 3_600_000])
        self._under_way: list[_Request] = []
        self._chances: Counter[str] = Counter()
        self.poisoned = 0
        """How often it went down with a message."""
        self.turn: str | None = None
        """The id of the address whose turn it is, if it is the turn of one."""
        self.is_turn_broken = False
        """Whether there was a request in a turn for another address, or with several messages."""

    @property
    def is_down(self) -> bool:
        """Whether it takes no requests now."""
        return self._chaos.clock.monotonic() < self._down_until

    async def answer(self, body: bytes, seconds: float, actor: Actor) -> Answer:
        """Answer a request, if the server is there, and its connection does not break."""
        chaos = self._chaos
        if chaos.happens(chaos.crashes):
            raise CrashError
        invocation = ToFunction.FromString(body).invocation
        names = [_name(each.argument.value) for each in invocation.invocations]
        if self.turn is not None and names:
            self.is_turn_broken |= invocation.target.id != self.turn or len(names) > 1
        if chaos.happens(self._outages):
            self._down_until = chaos.clock.monotonic() + chaos.random.choice(_LONG)
        if self.is_down:
            if chaos.random.random() < 0.5:
                return Answer(_BUSY, b"", is_whole=True, content_type="", retry_after=None)
            raise NoConnectionError("cannot be reached")
        request = _Request(names[0] if names else "", asyncio.get_running_loop().create_future())
        self._under_way.append(request)
        try:
            await self._work(request, names, seconds)
            with acting(actor):
                reply = _HANDLER.handle_sync(body)
            if names and self._may_break(request) and chaos.happens(chaos.troubles):
                self._chances[request.first] += 1
                raise _broken()
        finally:
            self._under_way.remove(request)
        return Answer(200, reply, is_whole=True, content_type=BYTES, retry_after=None)

    async def _work(self, request: _Request, names: Sequence[str], seconds: float) -> None:
        """Be with a request for a while, until it has all of its effects on the server."""
        chaos = self._chaos
        is_poison = any(name.endswith(POISON) for name in names)
        slowness = 0 if is_poison else chaos.random.choice(_SLOWNESS)
        await asyncio.wait([request.broken], timeout=min(slowness, seconds))
        if slowness > seconds and not request.broken.done():
            raise NoReplyError("has not answered in time")
        if request.broken.done():
            raise _broken()
        if is_poison:
            self.poisoned += 1
            self._go_down(chaos.random.choice(_SHORT))
        elif names and chaos.happens(self._outages):
            self._go_down_by_chance()
        if request.broken.done():
            raise _broken()

    def _may_break(self, request: _Request) -> bool:
        return self._chances[request.first] < _CHANCES

    def _go_down_by_chance(self) -> None:
        if all(map(self._may_break, self._under_way)):
            self._chances.update(each.first for each in self._under_way)
            self._go_down(self._chaos.random.choice(_LONG))

    def _go_down(self, time: int) -> None:
        self._down_until = self._chaos.clock.monotonic() + time
        for each in self._under_way:
            if not each.broken.done():
                each.broken.set_result(None)


class Worker:
    """A process that runs tasks, with its connections to the server."""

    def __init__(self, server: Server, functions: StatefulFunctions) -> None:
        self.actor: Actor | None = None
        """Who acts in the present task."""
        self._server = server
        remote = RemoteFunctions(_ENDPOINT)
        cast("Any", remote.client.caller())._client = self
        self.functions = functions.copy()
        far = StatefulFunction(_NAME, (), {}, OnFailure.SKIP, transport=remote)
        self.functions.add(far)

    async def post(
        self, url: str, body: bytes, seconds: float, *, is_alone: bool = False
    ) -> Answer:
        """Send a request, by a new connection in any case; what an answer says has happened."""
        assert self.actor is not None
        actor = self.actor.elsewhere()
        answer = await self._server.answer(body, seconds, actor)
        self.actor.journal_of_call.add(actor.journal)
        return answer

    def permit(self, *, is_alone: bool = False) -> contextlib.AbstractAsyncContextManager[None]:
        """There are as many as anybody wants."""
        return contextlib.nullcontext()


def _broken() -> NoReplyError:
    return NoReplyError("has broken the connection off", is_broken=True)


def _name(value: bytes) -> str:
    return StringType.serializer().deserialize(value).split()[0]
