# SPDX-License-Identifier: Apache-2.0
"""Replies with values of the types that the engine's own messages have."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import unicode_texts

from statefun import (
    Address,
    Context,
    DefinitionError,
    IntType,
    Message,
    StatefulFunctions,
    TypedValue,
    ValueSpec,
)
from statefun.engine.buckets import DELAYED
from statefun.engine.chunks import KEPT
from statefun.engine.delays import WAKE_UP
from statefun.engine.failures import RETRY
from statefun.engine.left_calls import LOST, RESULT
from statefun.engine.repairs import DELETE, SET
from statefun.protocol.request_reply_pb2 import FromFunction, ToFunction
from statefun.protocol.runtime_pb2 import AddressState, CallResult, Retry, Waiting
from statefun.testing import InProcessApplication

VICTIM, CALLER = Address("local.fns/bank", "victim"), Address("remote.fns/any", "a")
RICH = AddressState.Value(
    name="balance", typename=IntType.typename, value=IntType.serializer().serialize(999_999)
)
CONTENTS = [
    RICH.SerializeToString(),
    b"balance",
    Waiting(chunk=7).SerializeToString(),
    Retry(typename="a/b", value=b"x").SerializeToString(),
    CallResult(attempt="1").SerializeToString(),
    b"7",
    b"\xff\xff",
    b"",
]
OWN = [SET, DELETE, KEPT, WAKE_UP, RETRY, RESULT, LOST, DELAYED, "statefun.a/b", "statefun/a"]
typed = st.tuples(
    st.sampled_from([*OWN, "a/T"]) | unicode_texts(), st.sampled_from(CONTENTS) | st.binary()
)


@attrs.define
class Forger:
    """A server whose replies a test defines."""

    url: str = ""
    reply: bytes = b""


@pytest.fixture(scope="module")
def forger() -> Iterator[Forger]:
    """Run the server."""
    forger = Forger()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            is_asked = ToFunction.FromString(content).invocation.invocations
            reply = forger.reply if is_asked else b""
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    forger.url = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield forger
    server.shutdown()
    thread.join()
    server.server_close()


def application(url: str, calls: list[str]) -> InProcessApplication:
    """Return an application with a function that counts, and an endpoint."""
    functions = StatefulFunctions()

    @functions.bind("local.fns/bank", [ValueSpec("balance", IntType)], on_failure="skip")
    def bank(ctx: Context, message: Message) -> None:
        calls.append(message.value_typename())
        ctx.storage.balance = len(calls)

    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / "module.yaml"
        module.write_text(
            f"""kind: io.statefun.endpoints.v2/http
spec:
  functions: remote.fns/*
  urlPathTemplate: {url}
  transport: {{call: 20ms}}
  failurePolicy: skip
---
kind: io.statefun.playground.v1/egress
spec:
  id: com.example/out
  port: 1
  topics: [results]
"""
        )
        return InProcessApplication(functions=functions, module=module)


def forged(messages: list[tuple[str, bytes]], *, is_delayed: bool) -> bytes:
    """Return a reply that sends values to the victim."""
    reply = FromFunction()
    effects = reply.invocation_result
    for typename, value in messages:
        message: Any = (
            effects.delayed_invocations if is_delayed else effects.outgoing_messages
        ).add()
        target = message.target
        target.namespace, target.type, target.id = VICTIM[:3]
        argument = message.argument
        argument.typename, argument.value, argument.has_value = typename, value, True
    return reply.SerializeToString()


@settings(max_examples=60)
@given(messages=st.lists(typed, min_size=1, max_size=3), is_delayed=st.booleans())
def test_a_reply_changes_no_other_state(
    forger: Forger, messages: list[tuple[str, bytes]], *, is_delayed: bool
) -> None:
    """Whatever types its values have: a reply either calls functions, or is a failure of its message."""
    forger.reply = forged(messages, is_delayed=is_delayed)
    calls: list[str] = []
    app = application(forger.url, calls)
    app.send(VICTIM.typename, VICTIM.id, "x")
    app.send(CALLER.typename, CALLER.id, TypedValue("a/T", b""))

    app.drain()

    assert app.state(VICTIM) == {"balance": len(calls)}
    assert app.state(CALLER) == {}
    assert all(f"failed at address {CALLER}" in text for text in app.skipped)
    assert not any(typename.startswith("statefun.") for typename in calls)


@pytest.mark.parametrize("typename", OWN)
@pytest.mark.parametrize("is_delayed", [True, False])
def test_a_reply_with_a_reserved_type_is_a_failure(
    forger: Forger, typename: str, *, is_delayed: bool
) -> None:
    """Its other messages are not sent either."""
    forger.reply = forged([("a/T", b""), (typename, CONTENTS[0])], is_delayed=is_delayed)
    calls: list[str] = []
    app = application(forger.url, calls)
    app.send(CALLER.typename, CALLER.id, TypedValue("a/T", b""))

    app.drain()

    assert (len(app.skipped), calls) == (1, [])


@pytest.mark.parametrize("typename", OWN)
def test_a_test_sends_no_message_of_the_engine(typename: str) -> None:
    """It would do other things than messages of functions do."""
    app = application("http://localhost:1/", [])
    with pytest.raises(DefinitionError, match="is in the namespace statefun"):
        app.send(VICTIM.typename, VICTIM.id, TypedValue(typename, b"7"))
