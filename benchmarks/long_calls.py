# SPDX-License-Identifier: Apache-2.0
"""What calls that take long cost all others: end to end, and CPU per call.

An echo function answers records that come at a steady rate. Its latency is compared with and without other
addresses whose calls take long: one address that takes 30 s for each of its messages, and 10,000 addresses
whose calls are in flight all the time, of which none end, or 1,000 a second. The latter are also compared with
as many calls a second that end at once, as beginning and ending is work in any case. CPU is measured in the
engine alone: of calls that answer at once, with and without the possibility to leave, and of calls that leave,
with their results.

``--cases ending --runs 1 --seconds 25`` measures one case, in a few minutes. Each figure is printed as soon as it is
measured.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import Producer
from latency import Load, latencies
from report import Case, alternate, report

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.dev import EmbeddedKafka
from statefun.engine.address_values import AddressValues
from statefun.engine.call_loop import LeavingCalls
from statefun.engine.clock import BatchClock, SystemClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.left_calls import RESULT
from statefun.engine.program import Program
from statefun.engine.running_calls import CallRunner
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings

WARM_UP_SECONDS = 12
"""For so long at the start of a run records do not count."""
KEYS = 1000
RATE = 300
"""Records a second."""
ADDRESSES = 20_000
"""Of the measurement of CPU."""
TEACHING = 10
"""So many calls teach a worker that the calls of their function leave."""
runs = itertools.count()


def functions(topic: str) -> StatefulFunctions:
    """Return the echo function, and one that takes as many seconds as a message says."""
    registry = StatefulFunctions()

    @registry.bind("bench/echo", [ValueSpec("seen", IntType)])
    async def echo(ctx: Context, message: Message) -> None:
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        value = message.raw_value()
        ctx.send(KafkaEgressMessage("bench/out", topic=topic, key=ctx.address.id, value=value))

    @registry.bind("bench/slow")
    async def slow(_ctx: Context, message: Message) -> None:
        await asyncio.sleep(float(message.raw_value()))

    return registry


def application(kafka: EmbeddedKafka, name: str, folder: Path) -> Application:
    """Return an application with topics of its own."""
    for topic in (f"{name}-in", f"{name}-slow", f"{name}-out"):
        kafka.create_topic(topic, partitions=2)
    address = kafka.bootstrap_servers
    module = parse_module(
        "kind: io.statefun.kafka.v1/ingress\n"
        f"spec: {{id: bench/in, address: '{address}', consumerGroupId: {name},\n"
        "  startupPosition: {type: earliest}, topics: [\n"
        f"  {{topic: {name}-in, valueType: bench/bytes, targets: [bench/echo]}},\n"
        f"  {{topic: {name}-slow, valueType: bench/bytes, targets: [bench/slow]}}]}}\n"
        "---\n"
        "kind: io.statefun.kafka.v1/egress\n"
        f"spec: {{id: bench/out, address: '{address}'}}\n"
    )
    settings = Settings.resolve({}, None, checkpoint=folder / name)
    return Application(module, functions(f"{name}-out"), settings)


class Others(NamedTuple):
    """Other addresses, which get messages in turn at a steady rate."""

    addresses: int
    takes: timedelta
    """How long the call for one message takes."""
    rate: int
    """Messages a second, for all addresses together."""
    again: bool = True
    """Whether the first address comes again after the last one."""


@contextmanager
def messages(kafka: EmbeddedKafka, topic: str, others: Others) -> Iterator[None]:
    """Send messages for other addresses during the block."""
    is_over = threading.Event()

    def send() -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        begin = time.monotonic()
        for number in itertools.count() if others.again else range(others.addresses):
            if is_over.wait(max(0.0, begin + number / others.rate - time.monotonic())):
                break
            takes = repr(others.takes.total_seconds())
            producer.produce(topic, takes, f"{number % others.addresses}")
            producer.poll(0)
        producer.flush()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        is_over.set()
        sender.join()


def latency(
    kafka: EmbeddedKafka, folder: Path, seconds: int, quantile: float, others: Others | None
) -> float:
    """Run the application, beside ``others`` if given; return a quantile of the echo's latency in seconds."""
    name = f"long-{next(runs)}"
    app = application(kafka, name, folder)
    beside = nullcontext() if others is None else messages(kafka, f"{name}-slow", others)
    with beside:
        counted = latencies(kafka, app, name, Load(RATE, seconds, WARM_UP_SECONDS, KEYS))
    result = float(np.quantile(counted, quantile))
    print(f"  {1000 * result:.0f} ms, {'alone' if others is None else others}", flush=True)
    return result


class Reports:
    """Keeps the results of calls that have left, with the keys of their addresses."""

    worker = "bench"

    def __init__(self) -> None:
        self.results: list[tuple[bytes, bytes]] = []

    def open(self) -> bool:
        """Return True: calls may leave."""
        return True

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Keep a result."""
        if result is None:
            raise AssertionError(attempt)
        self.results.append((key, result))

    def left(self, attempt: str) -> Future[bool]:
        """Refuse: a call was lost."""
        raise AssertionError(attempt)

    def begun(self, attempt: str) -> Future[None]:
        """Refuse: a call was lost."""
        raise AssertionError(attempt)

    def accompanied(self, attempt: str) -> Future[None]:
        """Refuse: a call was lost."""
        raise AssertionError(attempt)

    def wait(self) -> None:
        """Do nothing."""


class Worker:
    """The engine of a worker process, with the states of the addresses of one function."""

    def __init__(self, function: str, runner: CallRunner | None = None) -> None:
        self.keys = [b"%d\0bench/%s" % (number, function.encode()) for number in range(ADDRESSES)]
        self._program = Program(functions("out"), {})
        self._program.functions.register("bench/at-once", at_once, [ValueSpec("seen", IntType)])
        self._runner = runner
        self._states: dict[bytes, bytes | None] = {}

    def run(self, messages: Sequence[tuple[bytes, str, bytes]]) -> None:
        """Run a micro-batch with one message for each address: its key, the message's type and its value."""
        keys, typenames, values = zip(*messages, strict=True)
        none: Sequence[None] = [None] * len(keys)
        columns = Columns(none, typenames, values, none, [0] * len(keys), cell=lambda *_: None)
        clock = SystemClock()
        dispatcher = Dispatcher(
            self._program,
            BatchClock(clock, clock.now()),
            batch=0,
            delivered_up_to=-1,
            concurrency=1000,
            immediate=1000,
            runner=self._runner,
        )
        groups = (
            Group(key, columns, row, row + 1, AddressValues(self._states.get(key)))
            for row, key in enumerate(keys)
        )
        for group in dispatcher.dispatch(groups, Effects()):
            self._states[group.key] = group.values.encoded()


def cpu_of_call(runner: CallRunner | None) -> float:
    """Return the CPU time, in seconds, of a call of a coroutine function that answers at once."""
    worker = Worker("at-once", runner)
    begun = time.process_time()
    worker.run([(key, "bench/bytes", b"x") for key in worker.keys])
    return (time.process_time() - begun) / ADDRESSES


def cpu_of_long_call() -> float:
    """Return the CPU time, in seconds, of a call that leaves its micro-batch, and of the batch with its result.

    The time includes that of the event loop between the two micro-batches.
    """
    reports = Reports()
    worker = Worker("slow", LeavingCalls(reports, ADDRESSES))
    messages = [(key, "bench/bytes", b"3") for key in worker.keys]
    worker.run(messages[:TEACHING])
    begun = time.process_time()
    worker.run(messages[TEACHING:])
    while len(reports.results) < ADDRESSES:
        time.sleep(0.1)
    worker.run([(key, RESULT, result) for key, result in reports.results])
    return (time.process_time() - begun) / ADDRESSES


ONE_SLOW = Others(1, timedelta(seconds=30), rate=1)
IN_FLIGHT = Others(10_000, timedelta(minutes=10), rate=2000, again=False)
ENDING = Others(10_000, timedelta(seconds=10), rate=1000)
AT_ONCE = ENDING._replace(takes=timedelta(0))
CPU = "cpu"
END_TO_END = {
    "slow": ("p99, one address takes 30 s a message", 0.99, ONE_SLOW, None),
    "in-flight": ("p50, 10,000 calls of 10 min in flight", 0.5, IN_FLIGHT, None),
    "ending": ("p50, 10,000 calls of 10 s in flight, 1,000 end a second", 0.5, ENDING, None),
    "at-once": (
        "p50, as before, vs. 1,000 calls a second that end at once",
        0.5,
        ENDING,
        AT_ONCE,
    ),
}
"""The end-to-end cases: their titles, the quantile of latencies, and the other addresses of both sides."""


async def at_once(ctx: Context, _message: Message) -> None:
    """Count, after others had their turn."""
    ctx.storage.seen = (ctx.storage.seen or 0) + 1
    await asyncio.sleep(0)


def cpu_cases(runs: int) -> list[Case]:
    """Measure the CPU of calls in the engine alone."""
    at_once = partial(cpu_of_call, LeavingCalls(Reports(), 0))
    cpu = alternate(runs * 5, at_once, partial(cpu_of_call, None))
    long = alternate(runs, cpu_of_long_call, at_once)
    return [
        Case("a call that answers at once, with and without leaving", "s", *cpu),
        Case("a call that leaves, and one that answers at once", "s", *long),
    ]


def end_to_end_cases(
    chosen: Sequence[tuple[str, float, Others, Others | None]], runs: int, seconds: int
) -> list[Case]:
    """Measure latencies beside other addresses, and without them or beside others."""
    cases = []
    with (
        EmbeddedKafka() as kafka,
        tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name,
    ):
        measure = partial(latency, kafka, Path(name), seconds)
        for title, quantile, others, compared in chosen:
            print(title, flush=True)
            figures = alternate(
                runs,
                partial(measure, quantile, others),
                partial(measure, quantile, compared),
            )
            cases.append(Case(title, "s", *figures))
    return cases


def main() -> None:
    """Measure in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--runs", type=int, default=3)
    names = [CPU, *END_TO_END]
    parser.add_argument("--cases", nargs="+", choices=names, default=names, help="what to measure")
    arguments = parser.parse_args()
    cases = cpu_cases(arguments.runs) if CPU in arguments.cases else []
    chosen = [case for name, case in END_TO_END.items() if name in arguments.cases]
    if chosen:
        cases += end_to_end_cases(chosen, arguments.runs, arguments.seconds)
    report("long_calls", cases)


if __name__ == "__main__":
    main()
