# SPDX-License-Identifier: Apache-2.0
"""A driver: the steps of ``Application`` between its start and its end, in their order."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, cast

import attrs
from pyspark.sql import DataFrame

from simulation.chaos import CrashError
from simulation.leaving import QueryFailedError
from simulation.publishing import (
    EndlessError,
    Publishing,
    SimulatedFactory,
    TaskLostError,
    Workers,
)
from simulation.spark import Engine, Frame
from simulation.world import AT_LEAST_ONCE, EXACTLY_ONCE, Attempt, History, World
from statefun.module.location import Location
from statefun.module.model import DeliverySemantic, KafkaEgress, KafkaIngress
from statefun.runtime.calls.call_register import CALLS_INBOX, CallRegister
from statefun.runtime.calls.turns import Turns
from statefun.runtime.checkpoint.call_log import CallLog
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.ingress_changes import in_order
from statefun.runtime.checkpoint.ingress_order import IngressOrder, source_name
from statefun.runtime.checkpoint.lock import jvm_lock
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.egress.lane import UndeliveredError
from statefun.runtime.ingress.bootstrapping import Bootstrap
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.runtime.ingress.known_topics import KnownTopics
from statefun.runtime.ingress.stopping import Bounds
from statefun.runtime.preflight.preparation import Prepared
from statefun.runtime.preflight.recovery import Succession, check_logs
from statefun.runtime.release import retention
from statefun.runtime.release.delivery import Delivery
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.settings import Settings
from statefun.runtime.staging import Staging
from statefun.sdk.address import TypeName
from statefun.sdk.errors import CheckpointError

_NOWHERE = Location("module.yaml", 1, 1)
_INGRESS = KafkaIngress(TypeName("t", "in"), "broker", (), _NOWHERE)
_EGRESSES = tuple(
    KafkaEgress(TypeName(*id_.split("/")), "broker", _NOWHERE, semantic)
    for id_, semantic in (
        *((id_, DeliverySemantic.EXACTLY_ONCE) for id_ in EXACTLY_ONCE),
        (AT_LEAST_ONCE, DeliverySemantic.AT_LEAST_ONCE),
    )
)
_MOST_BATCHES = 1000
"""A driver runs no more micro-batches; an application that needs more without any faults would run for ever."""
_MOST_QUIET = 500
"""In so many micro-batches in a row, some message is handled, unless none will ever be; servers may be down for 200."""
_PATIENT = 3
"""So often a driver that is idle waits for a while, before the clock is set to the end."""


class Driver:
    """The program, and what it starts."""

    def __init__(self, world: World, history: History) -> None:
        self._world = world
        self._chaos = world.chaos
        self._history = history
        self._checkpoint = history.folder(world.chaos)
        choose = self._chaos.random.choice
        self._settings = attrs.evolve(
            _settings(),
            checkpoint=self._checkpoint,
            egress_lanes=choose([1, 1, 2, 3]),
            immediate_messages=choose([0, 1, 1000]),
        )
        self._engine: Engine | None = None
        self._publishing: Publishing | None = None
        self._staging: Staging | None = None
        self._quiet = 0
        """In how many micro-batches no message was handled since the last one was."""

    def run(self, batches: int = _MOST_BATCHES) -> None:
        """Recover, publish the remaining batches, then run micro-batches until no work is left."""
        checkpoint = self._checkpoint
        before, self._chaos.meanwhile = self._chaos.meanwhile, self._meanwhile
        try:
            await_earlier_jvm(self._history)
            check_logs(checkpoint)
            log = CommitLog(checkpoint)
            ingresses = in_order(checkpoint, [_INGRESS])
            if log.is_fresh():
                IngressOrder([source_name(each) for each in ingresses]).write(checkpoint)
            newest = log.newest()
            leftovers = Outbox(checkpoint).recover(newest)
            prepared = Prepared(
                newest,
                ingresses,
                [],
                Bounds(checkpoint, log, ingresses),
                leftovers,
                Delivery(checkpoint),
                Succession(newest),
                Bootstrap([], {}),
                KnownTopics(checkpoint, []),
            )
            kept = retention.Retention(checkpoint)
            run, timeout = self._chaos.uuid4().hex, self._settings.kafka_timeout
            last = feedback_offset(log, log.planned()).last_of(CALLS_INBOX)
            register = CallRegister(CallLog(checkpoint), last)
            publisher = Publisher(
                run,
                [
                    SimulatedFactory(egress, checkpoint, timeout, run, world=self._world)
                    for egress in _EGRESSES
                ],
                self._settings,
                cast("Any", SimpleNamespace(commit=lambda batch: None)),
                kept,
            )
            publisher.start(leftovers)
            self._publishing = Publishing(publisher, self._world)
            while self._publishing.step():
                pass
            if self._settings.egress_lanes > 1:
                publisher.run_as_tasks(cast("Any", Workers(self._world)))
            self._chaos.step()
            with jvm_lock(self._jvm(), checkpoint, timedelta(0)):
                prepared.succession.check_start(log.newest())
                immediate = self._settings.immediate_messages
                self._engine = Engine(self._world, self._history, immediate, register)
                self._staging = self._new_staging(prepared, publisher, register, self._engine)
                self._engine.holds_reading = partial(getattr, self._staging, "holds_reading")
                try:
                    is_done = self._follow(self._engine, self._publishing, batches)
                except QueryFailedError as error:
                    self._engine.close()
                    raise CrashError from error
                if not (is_done or self._chaos.active):
                    raise EndlessError("micro-batches do not come to an end")
                if is_done and register.is_pending():
                    raise EndlessError("a run would wait for ever for the end of a call")
                register.close()
        finally:
            self._chaos.meanwhile = before

    def crash(self) -> None:
        """Leave behind the remains of a crashed driver."""
        world, generator = self._world, self._chaos.random
        world.has_troubles = True
        if self._chaos.active and self._engine and generator.random() < self._chaos.frozen:
            self._history.jvm = self._engine
        if self._publishing and generator.random() < 0.3:
            world.zombies += self._publishing.left_behind()

    def _new_staging(
        self, prepared: Prepared, publisher: Publisher, register: CallRegister, engine: Engine
    ) -> Staging:
        return Staging(
            self._settings,
            prepared,
            publisher,
            self._chaos.clock,
            register.staged,
            Turns(register.servers, self._chaos.clock),
            engine.functions,
            WaitingGauge(self._checkpoint),
        )

    def _follow(self, engine: Engine, publishing: Publishing, batches: int) -> bool:
        """Run at most so many micro-batches; return whether no work is left."""
        chaos, idle = self._chaos, 0
        while batches and idle <= _PATIENT:
            if (publishing.backlog > 4 or chaos.random.random() < 0.5) and publishing.step():
                continue
            chaos.clock.advance(chaos.random.choice([0, 0, 100, 300, 3000]))
            batch = engine.plan()
            if batch is not None:
                engine.run(batch, self._stage)
                self._look_at(self._history.attempts[batch])
                idle, batches = 0, batches - 1
            elif not publishing.step():
                idle += 1
                if idle == _PATIENT:
                    engine.deliver_reports()
                    chaos.clock.catch_up()
                elif chaos.random.random() < 0.5:
                    chaos.clock.pass_idly()
            if chaos.happens(chaos.crashes):  # another driver takes over, unnoticed by this one
                raise CrashError
            is_alone = self._history is self._world.here and not self._world.copy
            if is_alone and chaos.happens(chaos.copies):
                self._world.make_copy()
        return idle > _PATIENT

    def _look_at(self, attempt: Attempt) -> None:
        """Count the micro-batches in which no message was handled."""
        is_quiet = not (attempt.failed or any(each.received for each in attempt.journals.values()))
        self._quiet = self._quiet + 1 if is_quiet else 0
        if self._quiet > _MOST_QUIET:
            raise EndlessError("micro-batches do not come to an end, and handle no message")

    def _stage(self, frame: Frame, batch: int) -> None:
        assert self._staging is not None
        self._staging.stage(cast("DataFrame", frame), batch)
        if self._publishing and self._chaos.random.random() < 0.3:
            self._publishing.step()

    def _jvm(self) -> Any:
        """Return py4j's view of a JVM that locks a file, if no other one has it."""
        lock = SimpleNamespace(tryLock=lambda: None if self._history.jvm else self)
        file = SimpleNamespace(getChannel=lambda: lock, close=lambda: None)
        io = SimpleNamespace(RandomAccessFile=lambda path, mode: file)
        return SimpleNamespace(java=SimpleNamespace(io=io))

    def _meanwhile(self) -> None:
        """Be at some step while something else happens."""
        world, generator = self._world, self._chaos.random
        jvm = self._history.jvm
        if jvm is not None and generator.random() < 0.5:
            self._history.jvm = None
            with contextlib.suppress(CheckpointError):
                jvm.thaw()
        elif self._publishing and generator.random() < 0.3:
            self._publishing.step()
        elif world.copy is not None and generator.random() < 0.2:
            self._be_rivalled()
        elif world.zombies and generator.random() < 0.7:
            zombie = generator.choice(world.zombies)
            world.has_troubles = world.is_haunted = True
            try:
                zombie()
            except (UndeliveredError, CheckpointError, TaskLostError):
                world.zombies.remove(zombie)
            finally:
                world.is_haunted = False
        else:
            world.broker.deliver_late()

    def _be_rivalled(self) -> None:
        """Let another driver run on the copy for a while."""
        world = self._world
        world.has_troubles = True
        assert world.copy is not None
        rival = type(self)(world, world.copy)
        with contextlib.suppress(CrashError, UndeliveredError, CheckpointError, EndlessError):
            rival.run(self._chaos.random.randrange(1, 6))


def await_earlier_jvm(history: History) -> None:
    """Do what a local lock does at first, with what Java has locked."""
    if history.jvm is not None:
        raise CheckpointError("the checkpoint is in use by the JVM of an earlier driver")


@cache
def _settings() -> Settings:
    return Settings.resolve({}, None, checkpoint="/c")
