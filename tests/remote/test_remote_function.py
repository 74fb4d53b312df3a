# SPDX-License-Identifier: Apache-2.0
"""Calls of real servers, whose behaviour each test defines."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from aiohttp import web
from local_servers import free_port
from remote_servers import (
    SECOND,
    TARGET,
    Handler,
    Served,
    answer,
    batch_of,
    endpoint,
    functions,
    seen,
    serving,
    texts_of,
)

from statefun import (
    BytesType,
    Context,
    KafkaEgressMessage,
    Message,
    RequestReplyHandler,
    StatefulFunctions,
    StringType,
    TypedValue,
    UnknownFunctionError,
    ValueSpec,
)
from statefun.engine.address_keys import address_key
from statefun.engine.clock import SystemClock
from statefun.engine.sinks import Sink, egress_record
from statefun.module.model import Timeouts, Tls
from statefun.protocol.kafka_egress_pb2 import KafkaProducerRecord
from statefun.protocol.request_reply_pb2 import FromFunction, ToFunction
from statefun.protocol.runtime_pb2 import Outcome
from statefun.remote.attempts import described
from statefun.remote.http_client import BYTES, Answer, HttpClient, NoReplyError
from statefun.remote.remote_function import RemoteFunctions
from statefun.runtime.calls.turns import Turns
from statefun.sdk.address import Address
from statefun.sdk.encoding import encoded
from statefun.sdk.invocation_batch import (
    NO_TROUBLE,
    Invocation,
    InvocationBatch,
    InvocationResult,
    Trouble,
    Turn,
)
from statefun.sdk.sent import Cancellation, DelayedMessage
from statefun.sdk.value_spec import Expiration


async def _echoed(request: web.Request) -> web.Response:
    """Refuse a request as gateways do, which quote its URL."""
    return web.Response(status=404, text=f"no function at {request.path_qs}, code plan7ed/s3cret+x")


async def _broken(request: web.Request) -> web.Response:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@pytest.mark.parametrize("handler", [_echoed, _broken, None], ids=["echoed", "broken", "down"])
def test_secrets_in_urls_are_not_shown(
    handler: Handler | None, caplog: pytest.LogCaptureFixture
) -> None:
    """No failure, dead letter, log line, report or repr has them."""
    secrets = ("plan7ed%2Fs3cret%2Bx", "plan7ed/s3cret+x", "plan7ed-p4ssword")

    async def scenario() -> list[str]:
        async with serving(handler or answer) as served:
            url = (
                served.remote.client.endpoint.url_template
                if handler
                else "http://127.0.0.1:1/{function.name}"
            )
            url = url.replace("://", f"://ada:{secrets[2]}@") + f"?slot=a&code={secrets[0]}"
            remote = RemoteFunctions(endpoint(url))
            try:
                failed = await Served(remote).invoke("a")
                asked = [await remote.client.ask(TARGET), await remote.client.probe(TARGET)]
            finally:
                await remote.client.close()
            return [
                *texts_of(failed),
                str(failed.postponed),
                repr(remote.client.endpoint),
                *map(str, [*asked, *remote.take_circuit_reports()]),
            ]

    shown = [*asyncio.run(scenario()), caplog.text]

    assert not [text for text in shown for secret in secrets if secret in text]
    assert any("?slot=***&code=***" in text for text in shown)


def test_a_batch_has_the_effects_that_its_function_asks_for() -> None:
    """State, messages, delays, cancellations and records come back; values are asked for once."""

    async def scenario() -> None:
        async with serving() as served:
            asked = ("send Bob", "later t", "cancel u", "emit x")
            result = await served.invoke(*asked)
            assert seen(result) == "slce"
            assert [str(each.target_typename) for each in result.messages] == [TARGET.typename]
            later, cancellation = result.delayed
            assert isinstance(later, DelayedMessage)
            assert (later.delay, later.cancellation_token) == (SECOND, "t")
            assert cancellation == Cancellation("u")
            (record,) = result.egress_messages
            assert KafkaEgressMessage.from_typed_value("a/b", record.typed_value).value == b"x"
            assert set(result.expiring) == {
                Expiration("seen", timedelta(hours=1), on_call=False),
                Expiration("kept", timedelta(hours=2), on_call=True),
            }
            state = {"seen": result.state_mutations["seen"]}
            again = await served.invoke("more", state=state)
            assert seen(again) == "slcem"
            gone = await served.invoke("drop", state=state)
            assert gone.state_mutations == {"seen": None}
            assert served.batches() == [4, 4, 1, 1]

    asyncio.run(scenario())


def test_large_batches_go_in_several_requests_in_order() -> None:
    """Each request has the state after the reply to the request before it."""

    async def scenario() -> None:
        async with serving(max_batch=3) as served:
            result = await served.invoke(*"abcdefgh")
            assert seen(result) == "abcdefgh"
            assert served.batches() == [3, 3, 3, 2]
        async with serving(max_bytes=20_000) as served:
            result = await served.invoke(*(letter * 8_000 for letter in "abcd"))
            assert seen(result) == "abcd"
            assert max(map(len, served.requests)) < 20_000
            too_large = await served.invoke("x" * 30_000, "y")
            assert seen(too_large) == "y"
            (text,) = texts_of(too_large)
            assert "takes requests of 20,000 bytes" in text

    asyncio.run(scenario())


def test_a_message_that_fails_does_not_stop_the_others() -> None:
    """The request is divided until that message is alone."""

    async def scenario() -> None:
        times = Timeouts(SECOND, SECOND, SECOND)
        async with serving(timeouts=times) as served:
            result = await served.finish(*"abc", "fail", *"defgh")
            assert seen(result) == "abcdefgh"
            (failure,) = result.failures
            assert failure.index == 3
            assert failure.error.code == "SF308"
            assert (
                "has answered 500 Internal Server Error (text/plain): as it was told"
                in failure.error.message
            )
            assert "(attempt 3)" in failure.error.message

    asyncio.run(scenario())


@pytest.mark.parametrize("status", [500, 503, 408, 409, 420, 429, 499])
def test_statuses_that_pass_are_tried_again(status: int) -> None:
    """The reference does the same, within the time of the call."""
    refused = [status] * 3

    async def handler(request: web.Request) -> web.StreamResponse:
        if refused:
            return web.Response(status=refused.pop())
        return await answer(request)

    async def scenario() -> None:
        async with serving(handler) as served:
            result = await served.invoke("a")
            assert seen(result) == "a"
            assert len(served.requests) == 5

    asyncio.run(scenario())


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413])
def test_statuses_that_stay_are_failures_at_once(status: int) -> None:
    """Another attempt would have the same answer."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text="no", headers={"Location": "/elsewhere"})

    async def scenario() -> None:
        async with serving(handler) as served:
            (text,) = texts_of(await served.invoke("a"))
            assert f"has answered {status}" in text
            assert "remote.fns/commands/Ada" in text
            assert len(served.requests) == 1

    asyncio.run(scenario())


def test_a_function_that_its_server_lacks_fails_at_once() -> None:
    """Published SDKs answer 500 for it, even without messages, and reply for other functions."""
    attempts = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = ToFunction.FromString(await request.read()).invocation
        if asked.target.type == "commands":
            return await answer(request)
        attempts.append(len(asked.invocations))
        return web.Response(status=500)

    async def scenario() -> None:
        async with serving(handler) as served:
            nobody = batch_of(Address("remote.fns/comands", "Ada"), "a")
            waits = await served.remote.invoke(nobody, None)
            assert waits.postponed is not None  # nothing says that it is not an outage
            assert seen(await served.invoke("a")) == "a"
            attempts.clear()
            result = await served.remote.invoke(nobody, None)
            (text,) = texts_of(result)
            assert "replies for other functions, and never for this one" in text
            assert attempts == [1, 1, 1, 0]
            assert result.failures[0].error.way_out.endswith("module.yaml:1:1")

    asyncio.run(scenario())


def test_an_endpoint_may_ask_for_patience() -> None:
    """The header Retry-After is obeyed for all addresses; a message without enough time for that waits."""
    waits = ["1", "100000"]

    async def handler(request: web.Request) -> web.StreamResponse:
        if waits:
            return web.Response(status=429, headers={"Retry-After": waits.pop(0)})
        return await answer(request)

    async def scenario() -> None:
        async with serving(handler) as served:
            first = await served.invoke("a")
            assert first.postponed is not None
            assert (first.postponed.wait, len(served.requests)) == (SECOND, 1)
            message = [Invocation(None, encoded("a", StringType))]
            other = InvocationBatch(Address("remote.fns/commands", "Bob"), {}, message)
            refused = (await served.remote.invoke(other, None)).postponed
            assert refused is not None
            assert (refused.is_down, len(served.requests)) == (True, 1)
            await asyncio.sleep(refused.wait.total_seconds())
            result = await served.invoke("a")
            assert result.failures == []
            assert result.postponed is not None
            assert timedelta(hours=1) - result.postponed.wait < SECOND
            assert len(served.requests) == 2
            (report,) = served.remote.take_circuit_reports()
            assert report.problem == "has answered 429 Too Many Requests"

    asyncio.run(scenario())


@pytest.mark.parametrize("status", [500, 408, 409, 499, 529])
def test_a_long_pause_fails_no_message(status: int) -> None:
    """A server that has a problem for a moment may ask for a pause that is longer than a call."""
    refused = [status]

    async def handler(request: web.Request) -> web.StreamResponse:
        if refused:
            return web.Response(status=refused.pop(), headers={"Retry-After": "300"})
        return await answer(request)

    async def scenario() -> None:
        times = Timeouts(SECOND * 3 / 2, 60 * SECOND, 60 * SECOND)
        async with serving(handler, timeouts=times) as served:
            assert seen(await served.finish("a")) == "a"

    asyncio.run(scenario())


def test_an_endpoint_that_is_away_is_asked_after_30_seconds_at_the_latest() -> None:
    """A gateway that answers 503 for it may ask for a longer pause, but does not know when it is back."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=503, headers={"Retry-After": "86400"})

    async def scenario() -> None:
        limits = Timeouts(120 * SECOND, 20 * SECOND, None)
        async with serving(handler, timeouts=limits) as served:
            result = await served.invoke("a")
            assert result.postponed is not None
            assert result.postponed.wait <= 30 * SECOND
            assert len(served.requests) == 1, "the micro-batch waits for none of the pauses"

    asyncio.run(scenario())


def test_a_gateway_that_asks_for_a_pause_has_no_outage_at_once() -> None:
    """Only several such answers without a reply in between are one, as they are for an address that may cause them."""
    is_broken, is_away = True, False

    async def handler(request: web.Request) -> web.StreamResponse:
        if is_away:
            return web.Response(status=503, headers={"Retry-After": "1"})
        if not is_broken or not ToFunction.FromString(await request.read()).invocation.invocations:
            return await answer(request)
        return web.Response(status=502, headers={"Retry-After": "1"})

    async def scenario() -> None:
        nonlocal is_broken, is_away
        async with serving(handler) as served:
            served.trouble = Trouble(outages=3, attempts=1)
            first = await served.invoke("a")
            assert first.postponed is not None
            assert first.trouble == Trouble(
                outages=3, attempts=2
            )  # the pause takes no time of the call
            await asyncio.sleep(first.postponed.wait.total_seconds())

            is_broken = False
            second = await served.invoke("a")
            assert (second.failures, second.postponed, second.trouble) == ([], None, NO_TROUBLE)

            is_broken = True
            served.trouble = Trouble(outages=3, attempts=4)
            last = await served.invoke("a")
            assert last.trouble == Trouble(outages=4)

            is_broken, is_away = False, True
            served.trouble = Trouble(outages=3, attempts=3)
            assert last.postponed is not None
            await asyncio.sleep(last.postponed.wait.total_seconds())
            assert (await served.invoke("a")).trouble == Trouble(outages=3, attempts=3)

    asyncio.run(scenario())


def _reply(**fields: Any) -> bytes:
    effects = FromFunction()
    for name, values in fields.items():
        getattr(effects.invocation_result, name).add(**values)
    return effects.SerializeToString()


_VALUE = {"typename": "a/T", "has_value": True, "value": b"x"}
_NONSENSE = {
    "bytes that are no FromFunction": b"<html>Hello</html>",
    "bytes that hold no response": b"\x0a\x01x",
    "a change of value 'other', which it has never declared": _reply(
        state_mutations={"mutation_type": 1, "state_name": "other", "state_value": _VALUE}
    ),
    "a value of type a/T for 'seen', which it has declared as io.statefun.types/string": _reply(
        state_mutations={"mutation_type": 1, "state_name": "seen", "state_value": _VALUE}
    ),
    "a change of value 'seen' of type 7, which the protocol does not have": _reply(
        state_mutations={"mutation_type": 7, "state_name": "seen", "state_value": _VALUE}
    ),
    "a delay of -1 ms": _reply(delayed_invocations={"delay_in_ms": -1}),
    "a cancellation without a token": _reply(delayed_invocations={"is_cancellation_request": True}),
    "a message that is ill-formed": _reply(
        outgoing_messages={"target": {"namespace": "a", "type": "b"}, "argument": _VALUE}
    ),
    "a value of type 'a/T' without content": _reply(
        outgoing_messages={
            "target": {"namespace": "a", "type": "b", "id": "c"},
            "argument": {"typename": "a/T"},
        }
    ),
}


@pytest.mark.parametrize(("problem", "reply"), _NONSENSE.items(), ids=list(_NONSENSE))
def test_nonsense_is_the_functions_failure(problem: str, reply: bytes) -> None:
    """The request is tried again like after other errors; then the failure names the nonsense."""

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = ToFunction.FromString(await request.read()).invocation
        if not asked.state:
            return await answer(request)
        return web.Response(body=reply, content_type=BYTES)

    async def scenario() -> None:
        times = Timeouts(SECOND, SECOND, SECOND)
        async with serving(handler, timeouts=times) as served:
            (text,) = texts_of(await served.finish("a"))
            assert problem in text

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("headers", "content", "shown"),
    [
        ("", b"", "(no content type): no bytes"),
        ("", b"\xa2\x06\x00", "(no content type): "),
        ("Content-Type: text/html; charset=utf-8\r\n", b"<p>Hi", "(text/html): <p>Hi"),
        ("Content-Type: application/json\r\n", b"", "(application/json): no bytes"),
    ],
)
def test_an_answer_of_another_type_is_a_failure(headers: str, content: bytes, shown: str) -> None:
    """The server of upstream's playground answers 200 with another type when a function throws."""

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = ToFunction.FromString(await request.read()).invocation
        if not any(b"bad" in each.argument.value for each in asked.invocations):
            return await answer(request)
        head = f"HTTP/1.1 200 OK\r\n{headers}Content-Length: {len(content)}\r\n\r\n"
        assert request.transport is not None
        request.transport.write(head.encode() + content)  # aiohttp would add a content type
        request.transport.close()
        return web.Response()

    async def scenario() -> None:
        times = Timeouts(SECOND / 2, SECOND, SECOND)
        async with serving(handler, timeouts=times) as served:
            result = await served.finish("a", "b", "bad", "c")
            assert seen(result) == "abc"
            (failure,) = result.failures
            assert failure.index == 2
            assert f"has answered 200 OK {shown}" in failure.error.message

    asyncio.run(scenario())


def test_the_parameters_of_the_content_type_do_not_matter() -> None:
    """Upper case does not matter either."""

    async def handler(request: web.Request) -> web.StreamResponse:
        reply = await answer(request)
        reply.headers["Content-Type"] = "Application/Octet-Stream; charset=binary"
        return reply

    async def scenario() -> None:
        async with serving(handler) as served:
            assert seen(await served.invoke("a")) == "a"

    asyncio.run(scenario())


def test_a_reply_without_bytes_has_no_effects() -> None:
    """The published SDK for Python answers so to a message without effects."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(content_type=BYTES)

    async def scenario() -> None:
        async with serving(handler) as served:
            result = await served.invoke("a")
            assert result == InvocationResult({}, [], [], [], [], (), None)

    asyncio.run(scenario())


@pytest.mark.parametrize("form", ["length", "chunks", "end"])
def test_replies_have_a_limit(form: str) -> None:
    """A larger reply is not read, whatever says where it ends; the error has its type and first bytes."""
    content = b"<html>" + bytes(100_000)

    async def handler(request: web.Request) -> web.StreamResponse:
        if form == "length":
            return web.Response(body=content, content_type="text/html")
        assert request.transport is not None
        if form == "end":
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
            request.transport.write(head + content)
            request.transport.close()
            return web.Response()
        reply = web.StreamResponse(headers={"Content-Type": "text/html"})
        await reply.prepare(request)
        with suppress(ConnectionResetError):
            for start in range(0, len(content), 1_000):
                await reply.write(content[start : start + 1_000])
        return reply

    async def scenario() -> None:
        times = Timeouts(SECOND, SECOND, SECOND)
        async with serving(handler, timeouts=times, max_bytes=10_000) as served:
            (text,) = texts_of(await served.finish("a"))
            assert "has answered 200 OK (text/html): <html>" in text
            assert "; the answer has more than 10,000 bytes" in text

    asyncio.run(scenario())


def test_a_failure_has_the_last_answer_rather_than_the_timeout() -> None:
    """The last attempt of a call may time out, as it has the rest of the time only."""
    asked = []

    async def handler(request: web.Request) -> web.StreamResponse:
        message = ToFunction.FromString(await request.read()).invocation
        asked.append(message)
        if not message.invocations:
            return await answer(request)
        if len(asked) > 1:
            await asyncio.sleep(60)
        return web.Response(status=500, text="the disk is full")

    async def scenario() -> None:
        times = Timeouts(SECOND, SECOND, None)
        async with serving(handler, timeouts=times) as served:
            (text,) = texts_of(await served.invoke("a"))
            assert text.endswith(
                "has answered 500 Internal Server Error (text/plain): the disk is full"
            )

    asyncio.run(scenario())


def test_a_call_that_goes_on_has_time_for_an_answer() -> None:
    """The failure has the endpoint's answer, even if earlier micro-batches have used up the time."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return web.Response(status=500, text="the disk is full")

    async def scenario() -> None:
        limit = 2 * SECOND
        async with serving(handler, timeouts=Timeouts(limit, SECOND, None)) as served:
            served.trouble = Trouble(attempts=20, spent=limit - timedelta(milliseconds=1))
            (text,) = texts_of(await served.invoke("a"))
            assert text.endswith("the disk is full (attempt 21)")

    asyncio.run(scenario())


def test_an_answer_may_have_any_type() -> None:
    """Its bytes may be no UTF-8: the text about it goes into messages of Protobuf."""
    answer = Answer(503, b"\xe9", is_whole=True, content_type="text/\udce9", retry_after=None)

    assert (
        described(answer, "http://localhost")
        .encode()
        .startswith(b"has answered 503 Service Unavailable (text/\\udce9)")
    )


def test_an_answer_adds_no_lines_to_the_log() -> None:
    """A proxy may answer with a page: neither its line ends nor its control characters reach a terminal."""
    page = b"<h1>Bad Gateway</h1>\r\nstatefun: done\x1b[2J"
    answer = Answer(502, page, is_whole=True, content_type="text/html", retry_after=None)

    assert described(answer, "http://localhost").isprintable()


def test_a_turn_ends_after_a_second() -> None:
    """The micro-batch waits for it; the other messages wait for the next turn."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        return await answer(request)

    async def scenario() -> None:
        async with serving(handler) as served:
            batch = batch_of(TARGET, *"abcdefghij")._replace(
                is_alone=True, trouble=Trouble(outages=5)
            )
            result = await served.remote.invoke(batch, None)
            assert result.postponed is not None
            assert 1 <= result.postponed.first < 10
            assert result.trouble.outages == 5
            assert set(served.batches()) == {1}

    asyncio.run(scenario())


def test_a_call_alone_has_its_own_connection() -> None:
    """A server that ends each connection at its second request, after a probe, is no reason to blame a message."""
    requests: Counter[object] = Counter()

    async def handler(request: web.Request) -> web.StreamResponse:
        requests[request.transport] += 1
        if requests[request.transport] > 1 and request.transport is not None:
            request.transport.abort()
        return web.Response(content_type=BYTES)

    async def scenario() -> None:
        async with serving(handler) as served:
            turn = Turn(TARGET, served.remote.server_of(TARGET))
            trouble = Trouble(outages=5)
            assert await served.remote.admit(TARGET, trouble, turn) is None
            batch = batch_of(TARGET, "a", "b")._replace(trouble=trouble, is_alone=True)
            result = await served.remote.invoke(batch, None)
            assert (result.postponed, result.failures, result.trouble) == (None, [], NO_TROUBLE)

    asyncio.run(scenario())


def test_a_call_alone_waits_for_no_permit() -> None:
    """Its micro-batch waits for it, whatever takes the connections; the question before it needs none, either."""
    is_begun, is_ended = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        if len(ToFunction.FromString(await request.read()).invocation.invocations) > 1:
            is_begun.set()
            await is_ended.wait()
        return await answer(request)

    async def scenario() -> None:
        async with serving(
            handler, pool_size=1, timeouts=Timeouts(60 * SECOND, SECOND, None)
        ) as served:
            long = asyncio.ensure_future(served.remote.invoke(batch_of(TARGET, "a", "b"), None))
            await is_begun.wait()
            turn = Turn(TARGET, served.remote.client.server_of(TARGET))
            assert await served.remote.admit(TARGET, Trouble(outages=5), turn) is None
            alone = batch_of(TARGET, "c")._replace(is_alone=True)
            assert seen(await served.remote.invoke(alone, None)) == "c"
            assert not long.done()
            is_ended.set()
            assert seen(await long) == "ab"

    asyncio.run(scenario())


def test_the_time_begins_anew_when_values_are_asked_for() -> None:
    """Vain attempts before the endpoint's first reply do not fail an innocent message."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if ToFunction.FromString(await request.read()).invocation.state:
            await asyncio.sleep(1.3)
        return await answer(request)

    async def scenario() -> None:
        limit = 10 * SECOND
        async with serving(handler, timeouts=Timeouts(limit, SECOND, None)) as served:
            served.trouble = Trouble(attempts=3, spent=limit)
            assert seen(await served.invoke("a")) == "a"

    asyncio.run(scenario())


def test_a_function_may_ask_for_its_values_one_at_a_time() -> None:
    """Each question is for a further one."""
    names = {f"value {number}" for number in range(6)}

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = ToFunction.FromString(await request.read()).invocation
        reply = FromFunction()
        if missing := sorted(names - {each.state_name for each in asked.state}):
            reply.incomplete_invocation_context.missing_values.add(state_name=missing[0])
        else:
            reply.invocation_result.SetInParent()
        return web.Response(body=reply.SerializeToString(), content_type=BYTES)

    async def scenario() -> None:
        async with serving(handler) as served:
            assert texts_of(await served.invoke("a")) == []
            assert len(served.requests) == 7

    asyncio.run(scenario())


@pytest.mark.parametrize("first", [[], ["a"]], ids=["at once", "after another request"])
def test_a_function_that_asks_slowly_for_ever_new_values_does_not_hold_a_micro_batch(
    first: list[str],
) -> None:
    """When the time of a call has passed, its message fails, unless earlier requests have taken a part of that time."""
    asked: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        invocation = ToFunction.FromString(await request.read()).invocation
        if invocation.invocations[0].argument.value == encoded("a", StringType).value:
            return await answer(request)
        await asyncio.sleep(0.3)
        asked.append(f"value {len(asked)}")
        question = FromFunction()
        question.incomplete_invocation_context.missing_values.add(state_name=asked[-1])
        return web.Response(body=question.SerializeToString(), content_type=BYTES)

    async def scenario() -> None:
        limits = Timeouts(SECOND, SECOND, None)
        async with serving(handler, timeouts=limits, max_batch=1) as served:
            result = await served.invoke(*first, "b")
            if first:
                assert result.failures == []
                assert result.postponed is not None
                assert (result.postponed.first, result.postponed.wait) == (1, timedelta(0))
            else:
                (text,) = texts_of(result)
                assert "values until the time of the call, 0:00:01, was over" in text
            assert len(asked) < 10

    asyncio.run(scenario())


def test_a_function_that_asks_again_and_again_fails() -> None:
    """Each request had the values that the function asks for."""
    question = FromFunction()
    question.incomplete_invocation_context.missing_values.add(state_name="a")

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(body=question.SerializeToString(), content_type=BYTES)

    async def scenario() -> None:
        async with serving(handler) as served:
            (text,) = texts_of(await served.invoke("a"))
            assert "asks for its values a again and again" in text
            assert len(served.requests) == 2

    asyncio.run(scenario())


def test_a_stored_value_of_another_type_is_a_failure() -> None:
    """A function does not get bytes that it would misread."""

    async def scenario() -> None:
        async with serving() as served:
            result = await served.invoke("a", state={"seen": TypedValue("a/Other", b"x")})
            (failure,) = result.failures
            assert failure.error.code == "SF305"
            assert "it is stored as a/Other" in failure.error.message

    asyncio.run(scenario())


def test_messages_to_nowhere_fail_alone() -> None:
    """If a message cannot be sent, the message whose handling sends it fails."""

    def prepare(sent: Any) -> Any:
        if isinstance(sent, Message):
            raise UnknownFunctionError("there is no such function")
        return sent

    async def scenario() -> None:
        async with serving() as served:
            result = await served.invoke("a", "send Bob", "b", "later t", prepare=prepare)
            assert seen(result) == "ab"
            assert [failure.index for failure in result.failures] == [1, 3]

    asyncio.run(scenario())


def test_a_slow_function_has_its_time() -> None:
    """A call without an answer in time fails, if the endpoint answers other requests."""

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = ToFunction.FromString(await request.read()).invocation
        if asked.invocations:
            await asyncio.sleep(60)
        return await answer(request)

    async def scenario() -> None:
        times = Timeouts(SECOND / 2, SECOND, None)
        async with serving(handler, timeouts=times) as served:
            result = await served.invoke("a")
            (text,) = texts_of(result)
            assert "has not answered in time" in text
            assert result.postponed is None
            assert [each.problem for each in served.remote.take_circuit_reports()] == [None]

    asyncio.run(scenario())


def test_large_requests_arrive_as_they_are() -> None:
    """They are sent in parts."""

    async def scenario() -> None:
        times = Timeouts(5 * SECOND, SECOND, SECOND, SECOND)
        async with serving(timeouts=times) as served:
            assert seen(await served.invoke("x" * 1_000_000, "y")) == "xy"
            assert len(served.requests[-1]) > 1_000_000

    asyncio.run(scenario())


def test_a_server_that_does_not_read_has_its_time() -> None:
    """The limit for sending a request is not the limit for its answer."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:  # which nobody reads from
            url = f"http://127.0.0.1:{server.getsockname()[1]}/"
            times = Timeouts(SECOND / 2, SECOND, 10 * SECOND, SECOND / 10)
            client = HttpClient(endpoint(url, timeouts=times))
            with pytest.raises(NoReplyError, match="has not read the whole request within"):
                await client.post(url, bytes(20_000_000), 5)
            await client.close()

    asyncio.run(scenario())


def test_messages_to_an_endpoint_that_is_down_wait() -> None:
    """None of them fails: they wait until the endpoint can be reached again."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/"

    async def scenario() -> None:
        remote = RemoteFunctions(endpoint(url, timeouts=Timeouts(SECOND / 2, SECOND, SECOND)))
        served = Served(remote)
        result = await served.invoke(*"ab")
        assert result.failures == []
        assert result.postponed is not None
        assert result.postponed.first == 0
        assert timedelta(0) <= result.postponed.wait <= 2 * SECOND
        assert RemoteFunctions(endpoint(url)).take_circuit_reports() == []
        (report,) = remote.take_circuit_reports()
        assert report.endpoint == url
        assert report.problem == "cannot be reached: Connection refused"
        await remote.client.close()

    asyncio.run(scenario())


def test_an_endpoint_that_goes_down_meanwhile_gets_the_rest_later() -> None:
    """The effects of the first requests count."""
    calls = []

    async def handler(request: web.Request) -> web.StreamResponse:
        calls.append(request)
        if len(calls) > 2:
            return web.Response(status=503)
        return await answer(request)

    async def scenario() -> None:
        times = Timeouts(SECOND, SECOND, SECOND)
        async with serving(handler, timeouts=times, max_batch=2) as served:
            result = await served.invoke(*"abcdef")
            assert seen(result) == "ab"
            assert result.postponed is not None
            assert result.postponed.first == 2

    asyncio.run(scenario())


def test_a_connection_that_breaks_is_made_again() -> None:
    """A server may close an idle connection at any time."""
    broken: list[web.Request] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if len(broken) < 2:
            broken.append(request)
            assert request.transport is not None
            request.transport.abort()
        return await answer(request)

    async def scenario() -> None:
        async with serving(handler) as served:
            assert seen(await served.invoke("a")) == "a"

    asyncio.run(scenario())


def test_messages_for_which_there_is_no_time_wait() -> None:
    """A slow function handles all of them, in several micro-batches."""

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = ToFunction.FromString(await request.read()).invocation
        await asyncio.sleep(0.05 * len(asked.invocations))
        return await answer(request)

    async def scenario() -> None:
        times = Timeouts(SECOND / 2, SECOND, None)
        async with serving(handler, timeouts=times) as served:
            waiting, handled, rounds = list("abcdefghijklmnopqrstuvwxyz"), "", 0
            while waiting:
                rounds += 1
                assert rounds < 20
                result = await served.invoke(*waiting)
                assert result.failures == []
                handled += seen(result) if "seen" in result.state_mutations else ""
                first = len(waiting) if result.postponed is None else result.postponed.first
                del waiting[:first]
            assert handled == "abcdefghijklmnopqrstuvwxyz"

    asyncio.run(scenario())


def test_a_message_that_hangs_fails_whatever_others_do() -> None:
    """A later micro-batch gives it enough time, though the function is quick for other messages."""

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = ToFunction.FromString(await request.read()).invocation
        if any(b"hang" in each.argument.value for each in asked.invocations):
            await asyncio.sleep(10)
        return await answer(request)

    async def scenario() -> None:
        times = Timeouts(SECOND, SECOND, None)
        async with serving(handler, timeouts=times) as served:
            bob = Address("remote.fns/commands", "Bob")
            message = [Invocation(None, encoded("a", StringType))]
            waiting, handled, failed = ["hang", "b", "c"], "", list[str]()
            for _ in range(6):
                result = await served.invoke(*waiting)
                handled += seen(result) if "seen" in result.state_mutations else ""
                failed += [waiting[failure.index] for failure in result.failures]
                del waiting[: len(waiting) if result.postponed is None else result.postponed.first]
                for _ in range(3):
                    await served.remote.invoke(InvocationBatch(bob, {}, message), None)
            assert (handled, failed, waiting) == ("bc", ["hang"], [])

    asyncio.run(scenario())


def test_a_busy_endpoint_is_nobodys_failure() -> None:
    """However often it answers so, requests are not divided, which would add to its load."""

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = ToFunction.FromString(await request.read()).invocation
        return web.Response(status=429) if asked.invocations else await answer(request)

    async def scenario() -> None:
        times = Timeouts(SECOND, SECOND, SECOND)
        async with serving(handler, timeouts=times) as served:
            for _ in range(7):
                result = await served.invoke(*"abc")
                assert result.failures == []
                assert result.postponed is not None
                await served.remote.client.close()
                served.remote = RemoteFunctions(served.remote.client.endpoint)  # knows of no rest
            assert set(served.batches()) == {3}

    asyncio.run(scenario())


def test_requests_that_are_too_much_are_divided() -> None:
    """A server or proxy may refuse them with status 408 or 500."""

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = ToFunction.FromString(await request.read()).invocation
        return web.Response(status=408) if len(asked.invocations) > 2 else await answer(request)

    async def scenario() -> None:
        times = Timeouts(SECOND, SECOND, SECOND)
        async with serving(handler, timeouts=times) as served:
            result = await served.finish(*"abcdefgh")
            assert (seen(result), result.failures) == ("abcdefgh", [])

    asyncio.run(scenario())


def turn_of(suspects: Sequence[tuple[Address, str]], number: int) -> Turn | None:
    """Return the turn that a driver gives to one of the suspects of a micro-batch."""
    return Turn(*suspects[number % len(suspects)]) if suspects else None


_RESET = "upstream connect error or disconnect/reset before headers. reset reason: "
_RETRIED = _RESET.replace("reset reason", "retried and the latest reset reason")


@pytest.mark.parametrize(
    ("status", "text", "is_outage"),
    [
        (502, "", True),
        (504, "upstream request timeout", True),
        (520, "", True),
        (524, "", True),
        (503, f"{_RESET}connection termination", True),
        (503, f"{_RESET}remote reset", True),
        (503, f"{_RETRIED}connection termination", True),
        (503, f"{_RESET}overflow", False),
        (503, f"{_RESET}connection failure", False),
        (503, f"{_RESET}remote connection failure, transport failure reason: reset", False),
        (503, f"{_RESET}connection timeout", False),
        (503, f"{_RESET}remote refused stream reset", False),
        (503, f"Shed load. {_RESET}remote reset", False),
        (503, "no healthy upstream", False),
        (503, "", False),
        *((status, "", False) for status in (521, 522, 523, 530)),
    ],
)
def test_a_gateway_says_what_has_happened(status: int, text: str, *, is_outage: bool) -> None:
    """A message whose request may have ended the server becomes a suspect; others wait for as long as it takes."""

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = ToFunction.FromString(await request.read()).invocation
        return (
            web.Response(status=status, text=text) if asked.invocations else await answer(request)
        )

    async def scenario() -> None:
        times = Timeouts(SECOND / 5, 60 * SECOND, 60 * SECOND)
        async with serving(handler, timeouts=times) as served:
            for number in range(1, 4):
                result = await served.invoke("a")
                assert result.failures == []
                assert result.postponed is not None
                assert result.trouble.outages == (number if is_outage else 0)

    asyncio.run(scenario())


@attrs.define
class Crashing:
    """A server that goes down for a while with each message that is poison, and is slow."""

    slowness: float = 0.05
    outage: float = 0.3
    rollouts: int = 0
    """How often it also restarts at a request with a message, as in a rollout."""
    _down_until: float = 0
    _under_way: list[web.Request] = attrs.field(factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer, or close all connections."""
        asked = ToFunction.FromString(await request.read()).invocation
        loop = asyncio.get_running_loop()
        self._under_way.append(request)
        if asked.invocations:
            await asyncio.sleep(self.slowness)
            if any(b"poison" in each.argument.value for each in asked.invocations):
                self._go_down(loop.time())
            elif self.rollouts > 0 and loop.time() >= self._down_until:
                self.rollouts -= 1
                self._go_down(loop.time())
        self._under_way.remove(request)
        if loop.time() < self._down_until and request.transport is not None:
            request.transport.abort()
        return await answer(request)

    def _go_down(self, now: float) -> None:
        self._down_until = now + self.outage
        for request in self._under_way:
            if request.transport is not None:
                request.transport.abort()


async def run_workers(
    url: str, messages: dict[str, list[str]], workers: int
) -> dict[str, list[str]]:
    """Send messages as an application of several workers does; return those that failed, by id.

    Each address belongs to one worker, a process of its own; the driver gives the turns.
    """
    times = Timeouts(SECOND / 2, SECOND, SECOND)
    remotes = [RemoteFunctions(endpoint(url, timeouts=times)) for _ in range(workers)]
    failed: dict[str, list[str]] = {}
    trouble: dict[str, Trouble] = {}
    turn: Turn | None = None
    for number in range(400):
        suspects: list[tuple[Address, str]] = []

        async def visit(id_: str, turn: Turn | None, suspects: list[tuple[Address, str]]) -> None:
            target, remote = Address("remote.fns/commands", id_), remotes[hash(id_) % workers]
            known = trouble.get(id_, NO_TROUBLE)
            refused = await remote.admit(target, known, turn)
            if refused is not None:
                suspects += [(target, refused.suspect_of)] if refused.suspect_of else []
                return
            is_alone = turn is not None and turn.address == target
            batch = batch_of(target, *messages[id_])._replace(trouble=known, is_alone=is_alone)
            result = await remote.invoke(batch, None)
            trouble[id_] = result.trouble
            failed.setdefault(id_, []).extend(messages[id_][each.index] for each in result.failures)
            done = len(messages[id_]) if result.postponed is None else result.postponed.first
            del messages[id_][:done]

        waiting = [id_ for id_ in messages if messages[id_]]
        if not waiting:
            break
        await asyncio.gather(*(visit(id_, turn, suspects) for id_ in waiting))
        turn = turn_of(suspects, number)
        await asyncio.sleep(0.05)
    for remote in remotes:
        await remote.client.close()
    assert not any(messages.values()), messages
    return {id_: texts for id_, texts in failed.items() if texts}


@pytest.mark.parametrize("workers", [1, 4])
def test_innocent_addresses_are_not_blamed(workers: int) -> None:
    """Suspects of all workers are called one after the other, and no other address meanwhile."""
    server = Crashing()
    messages = {id_: ["a", "b"] for id_ in "abcdefgh"} | {"eve": ["a", "poison", "b"]}

    async def scenario() -> None:
        async with serving(server.handle) as served:
            url = served.remote.client.endpoint.url_template
            assert await run_workers(url, messages, workers) == {"eve": ["poison"]}

    asyncio.run(scenario())


@attrs.define
class Visits:
    """Micro-batches of a suspect, and of an address whose calls leave its micro-batches and crash the server."""

    remote: RemoteFunctions
    knows_company: bool
    """Whether the driver knows where calls go on."""
    left: set[asyncio.Future[InvocationResult]] = attrs.field(factory=set)
    """The calls that go on."""
    trouble: Trouble = attrs.field(factory=partial(Trouble, outages=5))
    """That of the suspect."""
    in_company: int = 0
    """How often the server went down while the suspect was called, and another call went on."""
    counted: int = 0
    """How many of these times count."""

    async def run(self) -> InvocationResult:
        """Call both addresses until a message of the suspect is handled or has failed."""
        server = self.remote.server_of(TARGET)
        turns = Turns(
            lambda: {server} if self.left and self.knows_company else set(), SystemClock()
        )
        for _ in range(400):
            outcome = Outcome()
            turn = turns.next()
            eve = Address("remote.fns/commands", "eve")
            if not self.left and await self.remote.admit(eve, NO_TROUBLE, turn) is None:
                call = asyncio.ensure_future(self.remote.invoke(batch_of(eve, "poison"), None))
                self.left.add(call)
                call.add_done_callback(self.left.discard)
            postponed = await self.remote.admit(TARGET, self.trouble, turn)
            if postponed is None:
                result = await self._call(turn)
                if result.failures or result.postponed is None:
                    return result
                outcome.has_taken_turn, postponed = True, result.postponed
            if postponed.suspect_of:
                outcome.suspects.add(address=address_key(TARGET), server=postponed.suspect_of)
            turns.choose([outcome])
            await asyncio.sleep(0.02)
        raise AssertionError("the message was not handled")

    async def _call(self, turn: Turn | None) -> InvocationResult:
        assert turn is not None
        goes_on = bool(self.left)
        batch = batch_of(TARGET, "a")._replace(trouble=self.trouble, is_alone=True)
        result = await self.remote.invoke(batch._replace(has_company=turn.has_company), None)
        if goes_on and result.postponed is not None:
            self.in_company += 1
            self.counted += result.trouble.alone - self.trouble.alone
        self.trouble = result.trouble
        return result


@pytest.mark.parametrize("knows_company", [True, False])
def test_calls_that_go_on_blame_nobody(*, knows_company: bool) -> None:
    """A turn in which they crash the server does not count.

    If the driver did not know about them, the suspect would be blamed.
    """
    server = Crashing(outage=0.1)

    async def scenario() -> None:
        async with serving(server.handle, timeouts=Timeouts(SECOND, SECOND, SECOND)) as served:
            visits = Visits(served.remote, knows_company)
            result = await visits.run()
            await asyncio.gather(*visits.left, return_exceptions=True)
        assert visits.in_company > 0
        if knows_company:
            assert (visits.counted, result.failures) == (0, [])
        else:
            assert visits.counted == visits.in_company

    asyncio.run(scenario())


def test_a_rollout_is_nobodys_failure() -> None:
    """It does not matter how often an address is called during the rollout, alone or not."""
    server = Crashing(outage=0.2, rollouts=12)

    async def scenario() -> None:
        async with serving(server.handle) as served:
            url = served.remote.client.endpoint.url_template
            trouble = Trouble(outages=20, alone=1)
            turn = Turn(TARGET, served.remote.client.server_of(TARGET))
            assert await served.remote.admit(TARGET, trouble, None) is not None
            assert await served.remote.admit(TARGET, trouble, turn) is None
            batch = batch_of(TARGET, "a")._replace(trouble=trouble, is_alone=True)
            result = await served.remote.invoke(batch, None)
            assert result.failures == []
            assert result.trouble[:2] == (20, 2)
            assert result.postponed is not None
            assert result.postponed.wait >= 2 * SECOND
            server.rollouts = 0
            assert await run_workers(url, {"Ada": ["a"]}, 1) == {}

    asyncio.run(scenario())


def test_functions_on_different_servers_are_down_apart() -> None:
    """An endpoint whose URL has the function's name may have many servers."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=503) if request.path == "/bad" else await answer(request)

    async def scenario() -> None:
        times = Timeouts(SECOND, SECOND, SECOND)
        async with serving(handler, timeouts=times) as served:
            bad = Address("remote.fns/bad", "Ada")
            message = [Invocation(None, encoded("a", StringType))]
            result = await served.remote.invoke(InvocationBatch(bad, {}, message), None)
            assert result.postponed is not None
            assert seen(await served.invoke("a")) == "a"
            again = await served.remote.invoke(InvocationBatch(bad, {}, message), None)
            assert again.postponed is not None
            reports = served.remote.take_circuit_reports()
            assert [each.endpoint.endswith("/bad") for each in reports] == [True, False]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("template", "name", "path"),
    [
        ("http://{host}/fns/{function.name}/run", "a#b?c", "/fns/a%23b%3Fc/run"),
        ("http://{host}/fns/{function.name}/run", "a@b:c", "/fns/a@b:c/run"),
    ],
)
def test_names_of_functions_stay_in_their_place(template: str, name: str, path: str) -> None:
    """The sender of a message can choose the function's name, but not the server or path."""
    paths = []

    async def handler(request: web.Request) -> web.StreamResponse:
        paths.append(request.raw_path)
        return web.Response(content_type=BYTES)

    async def scenario() -> None:
        async with serving(handler) as served:
            host = served.remote.client.endpoint.url_template.split("/")[2]
            url = template.replace("{host}", host)
            remote = RemoteFunctions(attrs.evolve(served.remote.client.endpoint, url_template=url))
            message = [Invocation(None, encoded("a", StringType))]
            target = Address(f"remote.fns/{name}", "Ada")
            result = await remote.invoke(InvocationBatch(target, {}, message), None)
            assert result.failures == []
            assert set(paths) == {path}
            await remote.client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("http://127.0.0.1/fns/{function.name}/run", ".."),
        ("http://{function.name}.example/", "evil.com#"),
        ("http://{function.name}.example/", "a:b"),
        ("http://{function.name}.example/", "a" * 64),
    ],
)
def test_names_of_functions_that_lead_elsewhere_are_failures(template: str, name: str) -> None:
    """Their messages fail, and no server is called."""

    async def scenario() -> None:
        remote = RemoteFunctions(endpoint(template))
        message = [Invocation(None, encoded("a", StringType))]
        target = Address(f"remote.fns/{name}", "Ada")
        result = await remote.invoke(InvocationBatch(target, {}, message), None)
        (text,) = texts_of(result)
        assert f"name of function remote.fns/{name} cannot be a part of the URL {template}" in text

    asyncio.run(scenario())


def test_a_function_that_is_replaced_is_asked_again() -> None:
    """Its new version may keep other values, or values of other types."""
    registries = [functions(), StatefulFunctions()]

    @registries[1].bind("remote.fns/commands", [ValueSpec("seen", BytesType)])
    def other(ctx: Context, message: Message) -> None:
        ctx.storage.seen = b"new"

    async def handler(request: web.Request) -> web.StreamResponse:
        reply = RequestReplyHandler(registries[0]).handle_sync(await request.read())
        return web.Response(body=reply, content_type=BYTES)

    async def scenario() -> None:
        async with serving(handler) as served:
            assert seen(await served.invoke("a")) == "a"
            registries.pop(0)
            result = await served.invoke("a")
            assert result.failures == []
            assert result.state_mutations == {"seen": encoded(b"new", BytesType)}

    asyncio.run(scenario())


def test_records_that_cannot_be_are_failures_of_their_message() -> None:
    """No content of a reply ends the application."""
    record = KafkaProducerRecord(topic="out", timestamp=2**62)
    reply = _reply(
        outgoing_egresses={
            "egress_namespace": "remote",
            "egress_type": "out",
            "argument": {
                "typename": "type.googleapis.com/io.statefun.sdk.egress.KafkaProducerRecord",
                "has_value": True,
                "value": record.SerializeToString(),
            },
        }
    )

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(body=reply, content_type=BYTES)

    async def scenario() -> None:
        async with serving(handler) as served:
            prepare = partial(egress_record, egresses={"remote/out": Sink.for_kafka()})
            (text,) = texts_of(await served.invoke("a", prepare=prepare))
            assert "Error" in text

    asyncio.run(scenario())


def test_requests_go_through_a_unix_domain_socket(tmp_path: Path) -> None:
    """The URL has the file of the socket, and then the path."""
    paths = []

    async def handler(request: web.Request) -> web.Response:
        paths.append(request.path)
        return await answer(request)

    async def scenario() -> None:
        application = web.Application()
        application.router.add_post("/{name:.*}", handler)
        runner = web.AppRunner(application)
        await runner.setup()
        file = tmp_path / "fns.sock"
        await web.UnixSite(runner, str(file)).start()
        remote = RemoteFunctions(endpoint(f"http+unix://{file}/of/{{function.name}}"))
        assert seen(await Served(remote).invoke("a")) == "a"
        assert set(paths) == {"/of/commands"}
        await remote.client.close()
        await runner.cleanup()

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an authority, and certificates of a server and a client."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "rsa:2048", "-days", "2")
    openssl(
        "req", "-x509", *new, "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca"
    )
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name, password in (("server", ()), ("client", ("-passout", "pass:open sesame"))):
        keys = ("-passout", password[1]) if password else ("-nodes",)
        openssl(
            *("req", *new, *keys, "-keyout", f"{name}.key", "-out", f"{name}.csr"),
            *("-subj", f"/CN={name}"),
        )
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{name}.pem"),
        )
    return folder


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_both_sides_show_certificates(certificates: Path, scheme: str) -> None:
    """The given authorities check the endpoint's certificate; the client's key has a password."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates / "ca.pem")
    server.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    server.verify_mode = ssl.CERT_REQUIRED
    files = ("ca.pem", "client.pem", "client.key")
    trusted, certificate, key = ((certificates / file).read_bytes() for file in files)

    async def scenario() -> None:
        tls = Tls(trusted, certificate, key, "open sesame")
        async with serving(tls=server) as served:
            url = served.remote.client.endpoint.url_template.replace("https", scheme)
            remote = RemoteFunctions(endpoint(url, tls=tls))
            assert seen(await Served(remote).invoke("a")) == "a"
            await remote.client.close()
            times = Timeouts(SECOND / 10, SECOND, SECOND)
            stranger = RemoteFunctions(attrs.evolve(served.remote.client.endpoint, timeouts=times))
            result = await Served(stranger).invoke("a")
            await stranger.client.close()
            assert result.postponed is not None
            (report,) = stranger.take_circuit_reports()
            assert "certificate verify failed" in (report.problem or "")

    asyncio.run(scenario())
