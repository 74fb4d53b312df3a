# SPDX-License-Identifier: Apache-2.0
"""Runs an application under test in this process, without Spark and Kafka.

A seed decides the order of messages where the runtime guarantees none. The runtime's guarantees hold:
messages of one sender to one target come in the order in which they were sent, and records of one key in
a topic in the order in which they were written; the effects of a micro-batch become visible together.
Delayed messages come at their due time, to the millisecond; on Spark they come up to a quarter of a second
later.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any

from statefun.engine import chunks, wheel
from statefun.engine.address_keys import address_key, address_of
from statefun.engine.address_values import AddressValues
from statefun.engine.buckets import TICK
from statefun.engine.failures import RETRY
from statefun.engine.left_calls import LOST, MOST_LOST, RESULT, encoded_loss
from statefun.engine.program import Program
from statefun.engine.record_keys import REJECTION_NAMESPACE
from statefun.module.model import KafkaEgress, KafkaIngress, Module
from statefun.module.topic_routes import TopicRoute
from statefun.remote.endpoint_functions import with_endpoints
from statefun.sdk.address import Address, TypeName
from statefun.sdk.errors import StatefunError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.record import KafkaRecord
from statefun.sdk.times import EPOCH, from_epoch_millis, in_milliseconds, to_epoch_millis
from statefun.sdk.types import Type
from statefun.testing.arguments import Content, checked_address, checked_function, written_record
from statefun.testing.channels import Channels
from statefun.testing.due_times import DueTimes
from statefun.testing.event_clock import EventClock
from statefun.testing.leaving import ChoosingRunner, Report
from statefun.testing.message_rows import MessageRow, rows_of_record
from statefun.testing.micro_batch import BatchEffects, MicroBatches, StoppedClock
from statefun.testing.outcomes import PublishedRecord, checked_argument_of, content
from statefun.testing.publishing import Publishing
from statefun.testing.tested import (
    LoadedProgram,
    TestedApplication,
    loaded,
    not_read,
    route_in,
)
from statefun.testing.waiting_ingresses import RecordSender, WaitingIngresses

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
"""The time that the clock of an application under test shows at first."""

_KEEPERS = {wheel.TIMERS_NAMESPACE, chunks.CHUNKS_NAMESPACE}
"""The namespaces of the reserved addresses that store waiting messages: buckets, tokens and chunks."""
_LEAVE = 0.3
"""The probability that a call leaves its micro-batch in tests that try crashes."""
_LOST = MOST_LOST - 1
"""How many calls of an address may be lost in a row in tests; one more would make the message fail."""
_ALL = 0.5
"""The probability that a micro-batch takes all waiting messages."""

Decide = Callable[[str], bool]
"""A function that decides whether the application crashes; the argument describes the point in the run."""


class InProcessApplication(TestedApplication):
    """An application that runs in this process, with a clock that only :meth:`advance` moves.

    >>> from statefun import (
    ...     Context, KafkaEgress, KafkaEgressMessage, StatefulFunctions
    ... )
    >>> functions = StatefulFunctions()
    >>> @functions.bind("com.example/greeter")
    ... def greet(ctx: Context, name: str) -> None:
    ...     ctx.send(KafkaEgressMessage("com.example/out", topic="greetings", value=f"Hello {name}"))
    >>> out = KafkaEgress.for_id("com.example/out").with_kafka_address("kafka:9092").build()
    >>> app = InProcessApplication(functions=functions, components=[out])
    >>> app.send("com.example/greeter", "Ada", "Ada")
    >>> app.drain()
    >>> app.egress("greetings")
    [PublishedRecord(value=b'Hello Ada', key=None, headers={})]
    """

    def __init__(  # noqa: PLR0913 - what an application needs
        self,
        program: str | Path | None = None,
        *,
        module: str | Path | Sequence[str | Path] | None = None,
        functions: StatefulFunctions | None = None,
        components: Sequence[KafkaIngress | KafkaEgress] = (),
        seed: int = 0,
        twice: bool = False,
    ) -> None:
        """Load an application.

        Args:
            program: the file of the program, such as ``app.py``; not needed if its functions are imported.
            module: one or several module files; if not given, ``module.yaml`` in the program's folder, or
                without a program and ``components``, in the current folder.
            functions: the registry of functions; if not given, the registry of the program, or if the
                program makes none, the registry of ``@function``.
            components: ingresses and egresses that are declared in Python.
            seed: decides the order of messages where the runtime guarantees none.
            twice: whether each function is called twice with the same messages and state, to
                check that both calls have the same effects.

        Raises:
            StatefunError: if the parts of the application cannot be loaded, or do not fit together.
        """
        self._begin(loaded(program, module, functions, components), seed, twice=twice)

    @classmethod
    def of(
        cls,
        program: LoadedProgram,
        seed: int,
        *,
        twice: bool = False,
        crashes: Decide | None = None,
    ) -> InProcessApplication:
        """Start a loaded application without any state; ``crashes`` decides where it crashes."""
        application = object.__new__(cls)
        application._begin(program, seed, twice=twice)
        application._crashes_now = crashes
        return application

    def _begin(self, program: LoadedProgram, seed: int, *, twice: bool) -> None:
        self._module = program.module
        self._events = EventClock(program.module)
        self._registry = with_endpoints(program.functions, program.module)
        self._random = random.Random(seed)  # noqa: S311 - orders, not secrets
        runner = ChoosingRunner(self._leaves, self._most, self._is_short)
        self._micro_batches = MicroBatches(
            Program.of(self._registry, program.module), twice=twice, runner=runner
        )
        self._reports: list[Report] = []
        """Results of calls that have left their micro-batches, until the called addresses get them."""
        self._crashes_now: Decide | None = None
        self._now = START
        self._ready = Channels(self._random, WaitingIngresses(program.module))
        """The messages that wait for a micro-batch."""
        self._reserved: list[MessageRow] = []
        """The messages that wait for the reserved addresses in ``_KEEPERS``."""
        self._unrouted = deque[tuple[TypeName, KafkaRecord, TopicRoute]]()
        """The records whose target ids are not computed yet, with their ingress and route."""
        self._due_times = DueTimes()
        self._states: dict[bytes, bytes] = {}
        """The encoded states of addresses, by encoded address."""
        self._publishing = Publishing(
            program.module,
            self._random,
            lambda egress: self._crashes(f"micro-batch {self._batch}, publishing to {egress}"),
        )
        self._offsets: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._batch = 0
        self.skipped: list[str] = []
        """The error texts of the messages that a failure policy has skipped."""

    @property
    def now(self) -> datetime:
        """The present time of the application, in UTC; only :meth:`advance` changes it."""
        return self._now

    @property
    def watermark(self) -> datetime | None:
        """The watermark, in UTC; see :attr:`TestedApplication.watermark`."""
        watermark = self._advance()
        return None if watermark is None else from_epoch_millis(watermark)

    @property
    def module(self) -> Module:
        """The components of the application, from its module files and from Python."""
        return self._module

    def send(
        self,
        typename: str,
        id: str,  # noqa: A002 - as addresses have it
        value: Any,
        value_type: Type[Any] | None = None,
    ) -> None:
        """Send a value to a function; see :meth:`TestedApplication.send`."""
        self._registry.for_typename(checked_function(typename))
        target = Address(self._registry.stored_name(typename), id)
        argument = checked_argument_of(target, value, value_type)
        self._ready.add("", MessageRow(address_key(target), None, *argument))

    def produce(  # noqa: PLR0913 - the parts of a record
        self,
        topic: str,
        key: Content,
        value: Content,
        *,
        headers: Mapping[str, Content] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> None:
        """Write a record to a topic of an ingress; see :meth:`TestedApplication.produce`."""
        written = written_record(key, value, headers, timestamp, partition)
        readers = [
            (ingress, route)
            for ingress in self._module.routed
            if (route := route_in(ingress, topic)) is not None
        ]
        if not readers:
            raise not_read(self._module, topic)
        route = readers[0][1]
        topic = route.topic if topic == route.alias else topic
        record = KafkaRecord(
            written.key,
            written.value,
            topic,
            written.partition or 0,
            self._offsets[topic, written.partition or 0],
            written.timestamp or self._now,
            written.headers,
        )
        self._offsets[topic, record.partition] += 1
        for ingress, _ in readers:
            self._events.wrote(ingress.id, topic, record.partition, self._milliseconds)
        self._unrouted.extend((ingress.id, record, route) for ingress, route in readers)
        with suppress(StatefunError):  # the record waits, and drain() raises the error
            self._read()

    def _read(self) -> None:
        while self._unrouted:
            self._route(*self._unrouted[0])
            self._unrouted.popleft()

    def _route(self, ingress: TypeName, record: KafkaRecord, route: TopicRoute) -> None:
        """Add a message for each target of a record to the messages that wait for a micro-batch."""
        for row in rows_of_record(ingress, record, route, self._registry):
            is_rejected = address_of(row.target).namespace == REJECTION_NAMESPACE
            key = None if is_rejected else record.key
            self._ready.add(RecordSender(ingress, record.topic, record.partition, key), row)

    def drain(self) -> None:
        """Process all records and messages that wait; see :meth:`TestedApplication.drain`."""
        self._read()
        self._settle()
        while self._ready or self._reports:
            self._deliver_reports()
            self._run_batch()
            self._settle()

    def _set_time(self, now: datetime) -> None:
        # The engine counts whole milliseconds; rounded down, a timer would come early.
        self._now = from_epoch_millis(in_milliseconds(now - EPOCH))

    def egress(self, topic: str) -> list[PublishedRecord]:
        """Return the records that were published to a topic so far."""
        return self._publishing.records(topic)

    def state(self, address: Address) -> dict[str, Any]:
        """Return the decoded values of an address, by name."""
        address = checked_address("the argument of state", address)
        specs = self._registry.for_typename(address.typename).specs
        stored = Address(self._registry.stored_name(address.typename), address.id)
        values = AddressValues(self._states.get(address_key(stored)))
        values.expire(StoppedClock(self._milliseconds))
        return {
            name: specs[name].type.decode(*value) if name in specs else content(value)
            for name, value in sorted(values.values.items())
        }

    def addresses(self) -> set[Address]:
        """Return the addresses of functions for which at least one value is stored."""
        addresses = (address_of(key) for key in self._states)
        users = [each for each in addresses if each.namespace not in _KEEPERS]
        return {address for address in users if self.state(address)}

    @property
    def next_timer(self) -> datetime | None:
        """The time at which the next delayed message is due by the clock; None if no message waits for the clock."""
        if self._reserved:  # a failure policy has stopped the application while messages were due
            return self._now
        due = self._due_times.next()
        return None if due is None else from_epoch_millis(due)

    @property
    def _milliseconds(self) -> int:
        """The present time of the application, in milliseconds since the epoch."""
        return to_epoch_millis(self._now)

    def _settle(self) -> None:
        """Send due ticks, and handle the messages to the reserved addresses until none is left."""
        self._tick()
        while self._reserved:
            rows, self._reserved = self._reserved, []
            groups: dict[bytes, list[MessageRow]] = {}
            for row in rows:
                groups.setdefault(row.target, []).append(row)
            try:
                done = self._micro_batches.run(
                    [*groups.items()], self._states, self._milliseconds, self._advance(rows)
                )
            except BaseException:
                self._reserved = rows
                raise
            self._commit(done)
            self._tick()

    def _tick(self) -> None:
        """Send a tick to each bucket that holds a due message."""
        now = self._milliseconds
        keys = self._due_times.take(now)
        self._reserved += [MessageRow(key, None, TICK, b"%d" % now) for key in keys]
        self._reserved += self._events.ticks(self._advance())

    def _run_batch(self) -> None:
        """Run a micro-batch, again after each crash, until it is committed."""
        self._batch += 1
        watermark = self._advance()
        taken = self._ready.take()
        groups = [(key, self._ready.merged(channels)) for key, channels in taken.items()]
        is_done = False
        while not is_done:
            self._random.shuffle(groups)
            try:
                done = self._micro_batches.run(groups, self._states, self._milliseconds, watermark)
            except BaseException:
                self._ready.put_back(taken)
                raise
            is_done = not self._crashes(f"micro-batch {self._batch}, before its commit")
        self._commit(done)

    def _advance(self, rows: Sequence[MessageRow] = ()) -> int | None:
        """Return the watermark of the next micro-batch, in milliseconds since the epoch.

        Args:
            rows: unhandled messages, in addition to the messages that wait for a micro-batch.
        """
        undelivered = chain(self._ready, self._reserved, rows)
        return self._events.advance(undelivered, self._milliseconds)

    def _leaves(self) -> bool:
        """Choose whether a call leaves its micro-batch."""
        return self._crashes_now is not None and self._random.random() < _LEAVE

    def _most(self) -> int:
        """Choose how many messages the next call of a coroutine function handles at most."""
        if self._crashes_now is None or self._random.random() < _ALL:
            return sys.maxsize
        return self._random.randint(1, 3)

    def _is_short(self) -> bool:
        """Choose whether the next call reaches its time limit after its first message."""
        return self._crashes_now is not None and self._random.random() < _LEAVE

    def _deliver_reports(self) -> None:
        """Deliver some results of calls that have left their micro-batches, in any order.

        In tests that try crashes, some of the calls are lost: their addresses get no result.
        """
        everything = not self._ready
        for report in list(self._reports):
            if not everything and self._random.random() < _ALL:
                continue
            self._reports.remove(report)
            typename, value = RESULT, report.result
            may_be_lost = AddressValues(self._states.get(report.key)).lost < _LOST
            place = f"micro-batch {self._batch + 1}, a call is lost"
            if value is None or (may_be_lost and self._crashes(place)):
                typename, value = LOST, encoded_loss(report.attempt, has_begun=True)
            # A result that comes twice must not have effects twice.
            for _ in range(self._random.choice([1, 1, 2])):
                self._ready.add(object(), MessageRow(report.key, None, typename, value))

    def _crashes(self, place: str) -> bool:
        return self._crashes_now is not None and self._crashes_now(place)

    def _commit(self, done: BatchEffects) -> None:
        for key, state in done.states.items():
            self._due_times.update(key, state)
            if state is None:
                self._states.pop(key, None)
            else:
                self._states[key] = state
        for bucket, content_ in done.waiting:
            self._due_times.add(bucket, content_)
            self._events.timers.add(bucket, content_)
        for message in (*done.messages, *done.released):
            if address_of(message.target).namespace in _KEEPERS:
                self._reserved.append(message)
            else:
                # Retried messages come in any order.
                self._ready.add(object() if message.typename == RETRY else message.caller, message)
        self._events.committed(done.event_times)
        self.skipped += done.skipped
        self._reports += done.reports
        self._publishing.publish(done.records)
