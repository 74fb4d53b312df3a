# SPDX-License-Identifier: Apache-2.0
"""An application in this process: its functions, module files and policies, without Spark and Kafka.

What the runtime leaves open, such as which of several messages comes first, a seed decides. What
it promises holds: messages of one sender to one target, and records of one key in a topic, come in
their order; the effects of a micro-batch become visible together.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from statefun.module.model import DeliverySemantic, KafkaEgress, KafkaIngress, Module
from statefun.module.sinks import EgressRecord
from statefun.module.topic_routes import TopicRoute, route_of
from statefun.remote.endpoint_functions import with_endpoints
from statefun.sdk.address import Address
from statefun.sdk.context import Cancellation
from statefun.sdk.errors import StatefunError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.record import KafkaRecord
from statefun.sdk.types import Type, TypedValue
from statefun.testing.arriving import id_of_record
from statefun.testing.happenings import Delayed, Effects, Kept, Pending
from statefun.testing.micro_batch import Functions
from statefun.testing.outcomes import PublishedRecord, argument_of, content
from statefun.testing.tested import (
    Content,
    LoadedProgram,
    TestedApplication,
    as_bytes,
    loaded,
    not_read,
)
from statefun.testing.timetable import Timetable

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
"""The time when an application under test begins."""

_ALL = 0.5
"""How often a micro-batch takes all messages that wait."""

Decide = Callable[[str], bool]
"""Decides whether the application crashes now; the text says where it is."""


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
            program: its file, such as ``app.py``; not needed if its functions are imported.
            module: its module file, or several; ``module.yaml`` beside the program if not given.
            functions: the registry; the program's, or that of ``@function``, if not given.
            components: ingresses and egresses that are declared in Python.
            seed: decides the order of what the runtime may order as it likes.
            twice: whether each function is called twice with the same messages and state, to find
                out whether it does the same.

        Raises:
            StatefunError: if its parts cannot be loaded, or do not fit.
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
        """Start a loaded application anew."""
        application = object.__new__(cls)
        application._begin(program, seed, twice=twice)
        application._crashes_now = crashes
        return application

    def _begin(self, program: LoadedProgram, seed: int, *, twice: bool) -> None:
        self._module = program.module
        self._registry = with_endpoints(program.functions, program.module)
        self._functions = Functions(self._registry, program.module, twice=twice)
        self._semantics = {
            **{str(egress.id): egress.delivery_semantic for egress in self._module.egresses},
            **{
                str(egress.id): DeliverySemantic.EXACTLY_ONCE
                if egress.is_exactly_once
                else DeliverySemantic.AT_LEAST_ONCE
                for egress in self._module.connector_egresses
            },
        }
        self._random = random.Random(seed)  # noqa: S311 - orders, not secrets
        self._crashes_now: Decide | None = None
        self._now = START
        self._ready: dict[Address, dict[Hashable, deque[Pending]]] = {}
        """Messages by target and sender."""
        self._arrived = deque[tuple[str, KafkaRecord, TopicRoute]]()
        """Records that wait for their ids, by ingress."""
        self._rejected: list[tuple[str, KafkaRecord]] = []
        self._timetable = Timetable[Pending]()
        self._conflicts: list[tuple[Address, Delayed]] = []
        """Delayed messages whose token was in use, with their senders."""
        self._states: dict[Address, dict[str, Kept]] = {}
        self._published: defaultdict[str, list[PublishedRecord]] = defaultdict(list)
        self._offsets: defaultdict[str, int] = defaultdict(int)
        self._batch = 0
        self.skipped: list[str] = []
        """Texts about the messages that a policy has left out."""

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return self._now

    @property
    def module(self) -> Module:
        """The components of the application."""
        return self._module

    def send(
        self,
        typename: str,
        id: str,  # noqa: A002 - as addresses have it
        value: Any,
        value_type: Type[Any] | None = None,
    ) -> None:
        """Send a value to a function; see :meth:`TestedApplication.send`."""
        self._registry.for_typename(typename)
        target = Address(typename, id)
        self._enqueue("", Pending(target, None, argument_of(target, value, value_type)))

    def produce(
        self,
        topic: str,
        key: Content,
        value: Content,
        *,
        headers: Mapping[str, Content] | None = None,
    ) -> None:
        """Write a record to a topic of an ingress; see :meth:`TestedApplication.produce`."""
        readers = [
            (ingress, route)
            for ingress in self._module.routed
            if (route := route_of(ingress.topics, topic)) is not None
        ]
        if not readers:
            raise not_read(self._module, topic)
        record = KafkaRecord(
            as_bytes(key),
            as_bytes(value),
            topic,
            0,
            self._offsets[topic],
            self._now,
            tuple((name, as_bytes(each)) for name, each in (headers or {}).items()),
        )
        self._offsets[topic] += 1
        self._arrived.extend((str(ingress.id), record, route) for ingress, route in readers)
        with suppress(StatefunError):  # they wait
            self._read()

    def _read(self) -> None:
        while self._arrived:
            self._route(*self._arrived[0])
            self._arrived.popleft()

    def _route(self, ingress: str, record: KafkaRecord, route: TopicRoute) -> None:
        """Send a record that an ingress has read to its targets."""
        id_, reason = id_of_record(record, route)
        if reason:
            self._rejected.append((reason, record))
            return
        made = route.deserializer
        typename = str(route.value_type) if made is None else made.name
        argument = TypedValue(typename, record.value or b"")
        for target in route.targets:
            address = Address(target.namespace, target.name, id_)
            message = Pending(address, None, argument, record, made is not None)
            self._enqueue((ingress, record.topic, record.key), message)

    def drain(self) -> None:
        """Process what there is; see :meth:`TestedApplication.drain`."""
        self._read()
        self._settle_conflicts()
        self._release()
        while self._ready or self._rejected:
            self._run_batch()
            self._settle_conflicts()
            self._release()

    def _set_time(self, now: datetime) -> None:
        self._now = now

    def egress(self, topic: str) -> list[PublishedRecord]:
        """Return the records that were published to a topic so far."""
        return list(self._published[topic]) if topic in self._published else []

    def state(self, address: Address) -> dict[str, Any]:
        """Return the values of an address, decoded, by name."""
        specs = self._registry.for_typename(address.typename).specs
        return {
            name: specs[name].type.decode(*kept.value) if name in specs else content(kept.value)
            for name, kept in sorted(self._states.get(address, {}).items())
            if kept.expires is None or kept.expires > self._now
        }

    def addresses(self) -> set[Address]:
        """Return the addresses that have a value."""
        return {address for address in self._states if self.state(address)}

    @property
    def next_timer(self) -> datetime | None:
        """When the next delayed message is due; None if none waits."""
        return self._timetable.next_due()

    def _enqueue(self, sender: Hashable, message: Pending) -> None:
        channels = self._ready.get(message.target)
        if channels is None:
            channels = self._ready[message.target] = {}
        channel = channels.get(sender)
        if channel is None:
            channel = channels[sender] = deque()
        channel.append(message)

    def _release(self) -> None:
        """Let messages go whose time has come."""
        due = self._timetable.next_due()
        while due is not None and due <= self._now:
            message = self._timetable.take()
            self._enqueue(message.caller if message.attempts == 0 else object(), message)
            due = self._timetable.next_due()

    def _run_batch(self) -> None:
        """Run a micro-batch, until it is committed."""
        self._batch += 1
        taken = self._taken()
        rejected, self._rejected = self._rejected, []
        groups = [(address, self._merged(channels)) for address, channels in taken.items()]
        is_done = False
        while not is_done:
            self._random.shuffle(groups)
            try:
                effects = self._functions.run(groups, self._states, self._now)
                for reason, record in rejected:
                    self._functions.reject(reason, record, effects, self._now)
            except BaseException:
                self._put_back(taken)
                self._rejected = [*rejected, *self._rejected]
                raise
            is_done = not self._crashes(f"micro-batch {self._batch}, before its commit")
        self._commit(effects)

    def _taken(self) -> dict[Address, dict[Hashable, list[Pending]]]:
        """Take the messages of a micro-batch: some of those that wait, of each sender the first."""
        chosen = self._random
        everything = len(self._ready) <= 1 or chosen.random() < _ALL
        addresses = list(self._ready)
        if not everything:
            addresses = chosen.sample(addresses, chosen.randint(1, len(addresses)))
        taken: dict[Address, dict[Hashable, list[Pending]]] = {}
        for address in addresses:
            channels, parts = self._ready[address], {}
            for sender in list(channels):
                channel = channels[sender]
                count = len(channel) if everything else chosen.randint(1, len(channel))
                parts[sender] = [channel.popleft() for _ in range(count)]
                if not channel:
                    del channels[sender]
            if not channels:
                del self._ready[address]
            taken[address] = parts
        return taken

    def _merged(self, channels: Mapping[Hashable, Sequence[Pending]]) -> list[Pending]:
        """Return messages to one address in an order that keeps each sender's."""
        if len(channels) == 1:
            return list(*channels.values())
        turns = [sender for sender, messages in channels.items() for _ in messages]
        self._random.shuffle(turns)
        iterators = {sender: iter(messages) for sender, messages in channels.items()}
        return [next(iterators[sender]) for sender in turns]

    def _put_back(self, taken: Mapping[Address, Mapping[Hashable, Sequence[Pending]]]) -> None:
        """Go on with the same messages the next time, as after a restart."""
        for address, channels in taken.items():
            waiting = self._ready.setdefault(address, {})
            for sender, messages in channels.items():
                waiting.setdefault(sender, deque()).extendleft(reversed(messages))

    def _crashes(self, place: str) -> bool:
        return self._crashes_now is not None and self._crashes_now(place)

    def _commit(self, effects: Effects) -> None:
        for address, values in effects.states.items():
            if values:
                self._states[address] = values
            else:
                self._states.pop(address, None)
        for message in effects.messages:
            self._enqueue(message.caller, message)
        self._schedule(effects)
        self.skipped += effects.skipped
        self._publish(effects.records)

    def _schedule(self, effects: Effects) -> None:
        """Let delayed messages wait, or cancel them."""
        for sender, each in effects.delayed:
            if isinstance(each, Cancellation):
                self._timetable.cancel((sender.id, each.cancellation_token))
            elif each.token and self._timetable.is_taken((sender.id, each.token)):
                self._conflicts.append((sender, each))
            else:
                token = (sender.id, each.token) if each.token else None
                self._timetable.add(each.due, each.message, token)

    def _settle_conflicts(self) -> None:
        """Apply failure policies to delayed messages whose cancellation token is in use.

        The runtime finds them when their senders' micro-batch is committed.
        """
        while self._conflicts:
            sender, later = self._conflicts[0]
            effects = Effects()
            if self._timetable.is_taken((sender.id, later.token)):
                self._functions.token_in_use(sender, later, effects, self._now)
            else:
                effects.delayed.append((sender, later))
            del self._conflicts[0]
            self._commit(effects)

    def _publish(self, records: Sequence[tuple[str, EgressRecord]]) -> None:
        """Publish the records of a micro-batch, each egress by its semantic."""
        by_egress: defaultdict[str, list[EgressRecord]] = defaultdict(list)
        for egress, record in records:
            by_egress[egress].append(record)
        for egress, own in by_egress.items():
            semantic, left = self._semantics[egress], own
            if semantic is not DeliverySemantic.EXACTLY_ONCE:
                while self._crashes(f"micro-batch {self._batch}, publishing to {egress}"):
                    is_lost = semantic is DeliverySemantic.NONE
                    sent = self._random.randint(0 if is_lost else 1, len(own)) if left else 0
                    self._append(left[:sent])
                    left = [] if is_lost else own
            self._append(left)

    def _append(self, records: Sequence[EgressRecord]) -> None:
        for record in records:
            self._published[record.topic].append(PublishedRecord.of(record))
