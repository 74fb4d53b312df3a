# SPDX-License-Identifier: Apache-2.0
"""The interface of an application under test, in this process and on Spark alike."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs

from statefun.module.binding import check_binding
from statefun.module.connectors import ConnectorIngress
from statefun.module.loader import load_module_files
from statefun.module.model import KafkaEgress, KafkaIngress, Module
from statefun.module.topic_routes import TopicRoute, route_of
from statefun.module.user_program import (
    LOADED,
    UserProgram,
    forget_loaded,
    load_program,
    program_of,
)
from statefun.remote.endpoint_functions import with_endpoints
from statefun.sdk.address import Address
from statefun.sdk.errors import DefinitionError
from statefun.sdk.functions import StatefulFunctions, default_functions
from statefun.sdk.types import Type
from statefun.testing.arguments import Content, checked_duration
from statefun.testing.outcomes import DeadLetter, PublishedRecord


class TestedApplication(ABC):
    """An application under test: the test sends messages, writes records, and moves the clock forward.

    Nothing is processed before :meth:`drain` or :meth:`advance` is called.
    """

    __test__ = False  # no class of tests, though pytest may think so by the name

    @abstractmethod
    def send(
        self,
        typename: str,
        id: str,  # noqa: A002 - as addresses have it
        value: Any,
        value_type: Type[Any] | None = None,
    ) -> None:
        """Send a value to a function, in a message without a caller.

        Args:
            typename: the function's type.
            id: the id of the address.
            value: the value.
            value_type: the type of the value; None: the type for the value's class, as in ``ctx.send``.
        """

    @abstractmethod
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
        """Write a record to a topic of an ingress.

        For an ingress of files, the topic is the path of the files: as the module file has it, or the
        full path. The record is handled like a record of such a file, but no file is read.

        Args:
            topic: the topic.
            key: the key; for a record of a file, the id that the record contains.
            value: the value; for a row or line of a file, the value that the file's format makes of
                the row or line.
            headers: the headers.
            timestamp: the time of the record, with a time zone; the present time of the application if not given.
            partition: the partition of the topic; if not given, 0, or on Spark the partition that the key decides.

        Raises:
            DefinitionError: if no ingress reads the topic, or a part is not as described above.
        """

    @abstractmethod
    def drain(self) -> None:
        """Process messages and records until all are processed, except those due at a later time.

        Raises:
            StatefunError: if a failure policy stops the application.
        """

    def advance(self, duration: timedelta | None = None, /, **parts: float) -> None:
        """Let time pass, and process each delayed message at the time when it becomes due.

        Args:
            duration: the time that passes.
            parts: instead of ``duration``, the arguments of a timedelta, such as ``hours=3``.

        Raises:
            DefinitionError: if neither or both are given, or the duration is negative.
        """
        end = self.now + checked_duration(duration, parts)
        self.drain()
        while (due := self.next_timer) is not None and due <= end:
            self._set_time(max(due, self.now))
            self.drain()
        self._set_time(end)

    @abstractmethod
    def egress(self, topic: str) -> list[PublishedRecord]:
        """Return the records that were published to a topic so far."""

    @abstractmethod
    def state(self, address: Address) -> dict[str, Any]:
        """Return the values of an address, decoded, by name; values that are not set are missing."""

    @property
    @abstractmethod
    def now(self) -> datetime:
        """The application's present time, in UTC."""

    @property
    @abstractmethod
    def watermark(self) -> datetime | None:
        """The watermark of the next micro-batch, in UTC; None if there is none, or no ingress has event time."""

    @property
    @abstractmethod
    def next_timer(self) -> datetime | None:
        """The time at which the next delayed message is due by the clock; None if no message waits for the clock."""

    @abstractmethod
    def _set_time(self, now: datetime) -> None:
        """Set the application's clock, without processing messages that become due."""

    @property
    @abstractmethod
    def module(self) -> Module:
        """The components of the application."""

    def dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters that were published so far.

        Raises:
            DefinitionError: if no egress has a topic for dead letters.
        """
        egress = self.module.dead_letters
        if egress is None or egress.dead_letter_topic is None:
            raise DefinitionError("no egress of the application has a deadLetterTopic")
        return [DeadLetter.of(record) for record in self.egress(egress.dead_letter_topic)]


@attrs.frozen
class LoadedProgram:
    """The functions and components of an application, which were checked to fit each other."""

    functions: StatefulFunctions
    module: Module


def loaded(
    program: str | Path | None,
    module: str | Path | Sequence[str | Path] | None,
    functions: StatefulFunctions | None,
    components: Sequence[KafkaIngress | KafkaEgress],
) -> LoadedProgram:
    """Load an application, and check that its functions and components fit each other.

    Args:
        program: the program's file, such as ``app.py``; None if the functions are imported already.
        module: the module file, or several; if not given, ``module.yaml`` in the program's folder, or without a
            program and ``components``, in the current folder.
        functions: the registry of the functions; the program's registry if not given.
        components: ingresses and egresses that are declared in Python.

    Raises:
        StatefunError: if a part of the application cannot be loaded, or the parts do not fit.
    """
    user_program = None if program is None else _program(Path(program))
    if functions is None:
        # A copy: other tests of the process may load other programs.
        functions = _registry(user_program).copy()
    declared = [*components, *(user_program.components if user_program else ())]
    files = _files(module) if module is not None else _default_files(program, bool(declared))
    content = load_module_files(files, components=declared)
    check_binding(content, with_endpoints(functions, content), needs_ingress=False)
    return LoadedProgram(functions, content)


def _registry(program: UserProgram | None) -> StatefulFunctions:
    """Return the registry that a program makes; if it makes none, the registry of ``@function``."""
    registries = [] if program is None else [*program.registries]
    return next((each for each in registries if each is not default_functions), default_functions)


def _program(app: Path) -> UserProgram:
    """Load a program; if the tests have imported the program, use the imported module instead."""
    for name, module in list(sys.modules.items()):
        if name != LOADED and getattr(module, "__file__", None) == str(app.resolve()):
            return program_of(module)
    forget_loaded()
    return load_program(app)


def _files(module: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(module)] if isinstance(module, str | Path) else list(map(Path, module))


def _default_files(program: str | Path | None, has_components: bool) -> list[Path]:  # noqa: FBT001
    """Return the module files of an application if the test gives no module files."""
    if program is None:
        # A module file of the current folder is no part of an application that is declared in Python.
        return [] if has_components else [Path("module.yaml")]
    file = Path(program).parent / "module.yaml"
    return [] if has_components and not file.exists() else [file]


def route_in(ingress: KafkaIngress | ConnectorIngress, topic: str) -> TopicRoute | None:
    """Return the route of a topic of an ingress; None if the ingress does not read the topic.

    For an ingress of files, the topic may be the path of the files as the module file has it.
    """
    named = (route for route in ingress.topics if route.alias == topic)
    return route_of(ingress.topics, topic) or next(named, None)


def not_read(module: Module, topic: str) -> DefinitionError:
    """Return the error for a record that a test writes to a topic which no ingress reads."""
    routes = [route.alias or route.topic for ingress in module.routed for route in ingress.topics]
    topics = ", ".join(routes) or "none"
    return DefinitionError(f"no ingress reads topic {topic} (the ingresses read: {topics})")
