# SPDX-License-Identifier: Apache-2.0
"""Applications some of whose functions run elsewhere."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import KafkaHarness, run, wait
from local_servers import free_port, served
from patience import SECONDS

from statefun import (
    BindingError,
    CheckpointError,
    Context,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    StringType,
)
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed
from statefun.runtime.ingress import holding
from statefun.runtime.ingress.holding import WAITING
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.settings import Settings
from statefun.sdk.errors import EndpointError

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.takes(minutes=2.5)]

SERVED = """
from statefun import *

@function("served.fns/counter", specs=[ValueSpec("count", IntType)])
def count(ctx, message):
    ctx.storage.count = (ctx.storage.count or 0) + 1
    text = message.as_string()
    if text == "fail":
        raise ValueError("as it was told")
    ctx.send(message_builder("local.fns/printer", ctx.address.id, str_value=f"{text} {ctx.storage.count}"))
"""


def printing(topic: str) -> StatefulFunctions:
    """Return the functions of the program: one, which publishes what it is sent."""
    functions = StatefulFunctions()

    @functions.bind("local.fns/printer")
    def show(ctx: Context, message: Message) -> None:
        value = message.as_string()
        ctx.send(KafkaEgressMessage("test/out", topic=topic, key=ctx.address.id, value=value))

    return functions


def shortening(topic: str) -> StatefulFunctions:
    """Return the functions of the program: one, which publishes the begin and end of texts."""
    functions = StatefulFunctions()

    @functions.bind("local.fns/printer")
    def show(ctx: Context, message: Message) -> None:
        text, _, count = message.as_string().rpartition(" ")
        value = f"{text[0]} {count}"
        ctx.send(KafkaEgressMessage("test/out", topic=topic, key=ctx.address.id, value=value))

    return functions


def wire(texts: Iterable[str]) -> list[tuple[str, bytes]]:
    """Return a record for Ada and one for Bob with each text, as a message of its type."""
    encoded = [StringType.serializer().serialize(text) for text in texts]
    return [(name, content) for content in encoded for name in ("Ada", "Bob")]


def by_name(kafka: KafkaHarness, topic: str) -> Iterator[list[str]]:
    """Yield the published records of Ada, and of Bob."""
    received = kafka.receive(topic)
    for name in ("Ada", "Bob"):
        yield [each.value for each in received if each.key == name]


def endpoint(port: int, more: str = "") -> str:
    """Return the document of an endpoint."""
    return f"""
---
kind: io.statefun.endpoints.v2/http
spec:
  functions: served.fns/*
  urlPathTemplate: http://127.0.0.1:{port}/{{function.name}}
{more}"""


@pytest.mark.long(minutes=0.6)
def test_remote_and_local_functions_message_each_other(kafka: KafkaHarness, tmp_path: Path) -> None:
    """State of remote functions is kept here, over restarts."""
    port = free_port()
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["served.fns/counter"]}) + endpoint(port)
    with served(tmp_path, port, SERVED):
        for turn in range(2):
            kafka.send(inputs, wire([f"{turn}{n}" for n in range(50)]))
            summary = run(module, printing(out), tmp_path / "checkpoint")
            assert summary.invocations == 200
    for values in by_name(kafka, out):
        assert values == [f"{t}{n} {t * 50 + n + 1}" for t in range(2) for n in range(50)]


@pytest.mark.parametrize("dispatch", ["arrow", "pandas"])
def test_messages_wait_in_order_for_an_endpoint_that_is_down(
    kafka: KafkaHarness, tmp_path: Path, caplog: pytest.LogCaptureFixture, dispatch: str
) -> None:
    """They are part of the state, and are handled first when the endpoint is back."""
    port = free_port()
    inputs, out = kafka.topic("in"), kafka.topic("out")
    transport = "  transport: {call: 1s}"
    module = kafka.module({inputs: ["served.fns/counter"]}) + endpoint(port, transport)

    def turn(texts: Iterable[int]) -> Summary:
        kafka.send(inputs, wire(map(str, texts)))
        return run(module, printing(out), tmp_path / "checkpoint", dispatch=dispatch)

    first = turn(range(10))
    assert (first.invocations, first.endpoints_down) == (0, 1)
    assert first.postponed >= 20  # more if there was time to look again
    assert first.next_timer is not None
    second = turn(range(10, 20))
    assert second.postponed >= 20
    told = [record.message for record in caplog.records if "endpoint" in record.message]
    what = f"endpoint http://127.0.0.1:{port}/counter cannot be reached: Connection refused"
    text = f"{what}; messages to its functions wait until it can be reached"
    assert told == [text, text]  # by two runs
    with served(tmp_path, port, SERVED):
        last = [turn(range(20, 30))]

        def are_through() -> bool:
            if last[0].next_timer is not None:
                last[0] = turn(())
            return last[0].next_timer is None

        wait(are_through)
    for values in by_name(kafka, out):
        assert values == [f"{n} {n + 1}" for n in range(30)]


def test_messages_that_wait_need_no_others_to_go_on(kafka: KafkaHarness, tmp_path: Path) -> None:
    """Each address wakes up by itself."""
    port = free_port()
    inputs, out = kafka.topic("in"), kafka.topic("out")
    transport = "  transport: {call: 500ms}"
    module = kafka.module({inputs: ["served.fns/counter"]}) + endpoint(port, transport)
    kafka.send(inputs, wire(map(str, range(10))))
    assert run(module, printing(out), tmp_path / "checkpoint").postponed >= 20
    with served(tmp_path, port, SERVED):

        def are_through() -> bool:
            run(module, printing(out), tmp_path / "checkpoint")
            return len(kafka.receive(out)) == 20

        wait(are_through)
    for values in by_name(kafka, out):
        assert values == [f"{n} {n + 1}" for n in range(10)]


def test_much_that_waits_is_kept_in_chunks_and_comes_back_in_order(
    kafka: KafkaHarness, tmp_path: Path
) -> None:
    """No message is lost, and the size of all waiting messages ends at zero."""
    port = free_port()
    inputs, out = kafka.topic("in"), kafka.topic("out")
    transport = "  transport: {call: 5s}"
    module = kafka.module({inputs: ["served.fns/counter"]}) + endpoint(port, transport)
    texts = [letter * 900_000 for letter in "abcdefghijklmnopqrstuvw"]
    kafka.send(inputs, [record for record in wire(texts) if record[0] == "Ada"])

    def turn() -> Summary:
        return run(module, shortening(out), tmp_path / "checkpoint")

    def waiting() -> int:
        count = json.loads(read_framed(Folder.at(tmp_path / "checkpoint"), WAITING))
        return sum(count["after"].values())

    assert turn().invocations == 0
    assert waiting() > sum(map(len, texts))
    with served(tmp_path, port, SERVED):
        wait(lambda: turn().next_timer is None)
    ada, _ = by_name(kafka, out)
    assert ada == [f"{text[0]} {number}" for number, text in enumerate(texts, 1)]
    assert waiting() == 0


@pytest.mark.long(minutes=0.6)
def test_a_bounded_run_reads_nothing_while_too_much_waits_and_all_in_the_end(
    kafka: KafkaHarness,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads on when its endpoint is back; with nothing left to read, it ends as without the limit."""
    monkeypatch.setattr(holding, "MOST_WAITING_BYTES", 5000)
    port, checkpoint = free_port(), tmp_path / "checkpoint"
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["served.fns/counter"]}) + endpoint(
        port, "  transport: {call: 500ms}"
    )
    texts = [f"{number}{'.' * 1000}" for number in range(20)]

    def turn() -> Summary:
        return run(module, shortening(out), checkpoint, records_per_batch=4)

    kafka.send(inputs, wire(texts[:4]))
    assert turn().postponed >= 8  # more wait than are allowed, and all are read
    kafka.send(inputs, wire(texts[4:]))
    with ThreadPoolExecutor() as threads:
        ended = threads.submit(turn)
        wait(lambda: caplog.text.count("most of the newest ones for served.fns/counter") == 2)
        log = CommitLog(Folder.at(checkpoint))
        held = log.newest()
        wait(lambda: log.newest() > held + 1)  # messages are tried again
        assert not ended.done()
        assert log.end_offsets(log.newest())[0] == log.end_offsets(held)[0]
        with served(tmp_path, port, SERVED):
            ended.result(SECONDS)
            wait(lambda: turn().next_timer is None)
    assert "few enough that records are read again" in caplog.text
    for values in by_name(kafka, out):
        assert values == [f"{text[0]} {number}" for number, text in enumerate(texts, 1)]


def test_messages_that_wait_for_a_removed_function_are_reported(
    kafka: KafkaHarness, tmp_path: Path
) -> None:
    """The start lists them like other messages without a function, also those in chunks."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    transport = "  transport: {call: 500ms}"
    down = endpoint(free_port(), transport)
    kafka.send(inputs, wire(letter * 40_000 for letter in "abcde"))
    module = kafka.module({inputs: ["served.fns/counter"]})
    assert run(module + down, printing(out), tmp_path / "checkpoint").postponed >= 10
    others = kafka.module({inputs: ["local.fns/printer"]})
    with pytest.raises(CheckpointError, match=r"10 messages for function served\.fns/counter"):
        run(others, printing(out), tmp_path / "checkpoint")


def test_what_a_remote_function_fails_on_becomes_a_dead_letter(
    kafka: KafkaHarness, tmp_path: Path
) -> None:
    """The failure policy of its endpoint decides; the other messages of the request are handled."""
    port = free_port()
    inputs, out, letters = kafka.topic("in"), kafka.topic("out"), kafka.topic("letters")
    module = kafka.module(
        {inputs: ["served.fns/counter", "served.fns/nobody"]}, dead_letters=letters
    )
    more = "  transport: {call: 300ms}\n  failurePolicy: {attempts: 2, backoff: 1ms}"
    kafka.send(inputs, wire(["a", "fail", "b"]))
    with served(tmp_path, port, SERVED):
        run(module + endpoint(port, more), printing(out), tmp_path / "checkpoint")

        def are_through() -> bool:
            run(module + endpoint(port, more), printing(out), tmp_path / "checkpoint")
            return len(kafka.receive(letters)) == 8

        wait(are_through)
    for values in by_name(kafka, out):
        assert values == ["a 1", "b 2"]
    errors = sorted(letter.headers["statefun-error-message"] for letter in kafka.receive(letters))
    assert errors[0].startswith("function served.fns/counter failed at address served.fns/counter/")
    assert "has answered 500 Internal Server Error (text/plain): a function has failed" in errors[0]
    assert (
        "has answered 404 Not Found (text/plain): [SF304] no function served.fns/nobody"
        in errors[-1]
    )
    assert {each.headers["statefun-attempts"] for each in kafka.receive(letters)} == {"2"}


def test_the_others_go_on_while_a_message_is_tried_again(
    kafka: KafkaHarness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The message waits at its address, with the rest of its call's time, and is logged at once."""
    port = free_port()
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["served.fns/counter"]}) + endpoint(port)  # call: 2 minutes
    kafka.send(inputs, [("Ada", wire(["fail"])[0][1]), ("Ada", wire(["a"])[0][1]), *wire("b")])
    with served(tmp_path, port, SERVED):
        summary = run(module, printing(out), tmp_path / "checkpoint")
    assert list(by_name(kafka, out)) == [[], ["b 1"]]
    assert summary.next_timer is not None
    assert summary.endpoints_down == 0
    line = next(each for each in caplog.messages if "not handled" in each)
    assert "to be sent again; such as: function served.fns/counter at address" in line
    assert "has answered 500 Internal Server Error (text/plain): a function has failed" in line


SLOW = """
import asyncio

from statefun import *

@function("served.fns/counter", specs=[ValueSpec("count", IntType)])
async def count(ctx, message):
    await asyncio.sleep(float(message.as_string()))
    ctx.storage.count = (ctx.storage.count or 0) + 1
    text = f"{message.as_string()} {ctx.storage.count}"
    ctx.send(message_builder("local.fns/printer", ctx.address.id, str_value=text))
"""


def test_nobody_waits_for_an_address_whose_messages_take_long(
    kafka: KafkaHarness, tmp_path: Path
) -> None:
    """Its request leaves its micro-batch, and the next messages of all other addresses are handled meanwhile."""
    inputs, out, port = kafka.topic("in"), kafka.topic("out"), free_port()
    module = kafka.module({inputs: ["served.fns/counter"]}, value_type=StringType.typename)
    encode = StringType.serializer().serialize
    slow = [("Ada", encode("0.5"))] * 20
    others = [(f"other-{number}", encode("0")) for number in range(18)]
    kafka.send(inputs, [*slow, *others])

    with served(tmp_path, port, SLOW):
        run(module + endpoint(port), printing(out), tmp_path / "c")

    received = [(each.key, each.value) for each in kafka.receive(out)]
    keys = [key for key, _ in received]
    assert {*keys[:18]} == {key for key, _ in others}
    assert received[18:] == [("Ada", f"0.5 {number}") for number in range(1, 21)]


def test_an_unknown_function_is_a_failure_at_once_that_names_the_way_out(
    kafka: KafkaHarness, tmp_path: Path
) -> None:
    """The server of the endpoint has answered that it lacks the function."""
    port = free_port()
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["served.fns/nobody"]}) + endpoint(port)
    kafka.send(inputs, wire(["a"]))
    with served(tmp_path, port, SERVED), pytest.raises(EndpointError) as raised:
        run(module, printing(out), tmp_path / "checkpoint")
    assert "has answered 404 Not Found" in raised.value.message
    place = r"write 'failurePolicy: skip' into the spec of the endpoint, module\.yaml:\d+:\d+$"
    assert re.search(place, raised.value.message)


CRASHING = """
import os
import time
from statefun import *

@function("served.fns/counter", specs=[ValueSpec("count", IntType)])
def count(ctx, message):
    time.sleep(0.2)
    if message.as_string() == "poison":
        os._exit(1)
    ctx.storage.count = (ctx.storage.count or 0) + 1
    text = f"{message.as_string()} {ctx.storage.count}"
    ctx.send(message_builder("local.fns/printer", ctx.address.id, str_value=text))
"""


@contextmanager
def restarted(folder: Path, port: int) -> Iterator[None]:
    """Serve functions, and start the server again whenever it has ended."""
    is_over = threading.Event()

    def supervise() -> None:
        while not is_over.is_set():
            with served(folder, port, CRASHING) as process:
                while process.poll() is None and not is_over.wait(0.05):
                    pass

    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.long(minutes=1.3)
def test_only_the_message_that_takes_its_server_down_fails(
    kafka: KafkaHarness, tmp_path: Path
) -> None:
    """The messages of all workers' other addresses that the server had at that time are handled."""
    port = free_port()
    inputs, out, letters = kafka.topic("in"), kafka.topic("out"), kafka.topic("letters")
    module = kafka.module({inputs: ["served.fns/counter"]}, dead_letters=letters)
    module += endpoint(port, "  transport: {call: 3s}")
    names = [f"innocent-{number}" for number in range(8)]
    (_, good), (_, poison) = wire(["a"])[0], wire(["poison"])[0]
    kafka.send(inputs, [("eve", good), ("eve", poison), ("eve", good)])
    kafka.send(inputs, [(name, good) for name in names for _ in range(2)])

    def are_through() -> bool:
        summary = run(module, printing(out), tmp_path / "checkpoint", state_partitions=4)
        return summary.next_timer is None and len(kafka.receive(out)) == 18

    with restarted(tmp_path, port):
        wait(are_through)
    received = kafka.receive(out)
    for name in [*names, "eve"]:
        assert [each.value for each in received if each.key == name] == ["a 1", "a 2"]
    (letter,) = kafka.receive(letters)
    assert letter.headers["statefun-target"] == "served.fns/counter/eve"
    assert (
        "as each of the 3 times when it was called for nothing else"
        in (letter.headers["statefun-error-message"])
    )


def test_what_is_registered_and_behind_an_endpoint_is_refused(tmp_path: Path) -> None:
    """One of the two functions would never be called."""
    module = parse_module(endpoint(1).replace("served.fns/*", "local.fns/printer"))
    settings = Settings.resolve({}, None, checkpoint=tmp_path)
    with pytest.raises(BindingError, match=r"local\.fns/printer is registered"):
        Application(module, printing("out"), settings)
