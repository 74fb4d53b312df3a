# SPDX-License-Identifier: Apache-2.0
"""Ingresses and egresses that connectors read and write, as the runtime sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from statefun.module.location import Location
from statefun.module.topic_routes import TopicRoute
from statefun.sdk.address import TypeName
from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.failure import OnFailure


@attrs.frozen
class ConnectorIngress:
    """An ingress whose records a connector reads."""

    id: TypeName
    kind: str
    """The kind of the component, such as ``io.statefun.kinesis.v1/ingress``."""
    topics: tuple[TopicRoute, ...]
    """The routes of its records; a topic is what the connector reads, such as a stream."""
    location: Location
    reader: str
    """``package.module:name`` of a function that takes a ``Reading`` and returns the records."""
    settings: Any = attrs.field(default=None, repr=False)
    """The settings of the reader; they may contain passwords."""
    failure_policy: OnFailure | None = None
    """The policy for records that no function can receive; None: the runtime's default."""
    checker: str | None = None
    """``package.module:name`` of a function for ``statefun validate --connect``.

    It takes the ingress and the time limit for an answer of a server (a ``timedelta``), and yields
    the problems that would keep the ingress from running.
    """

    @property
    def label(self) -> str:
        """The name of the component in messages."""
        return f"ingress {self.id}"


@attrs.frozen
class ConnectorEgress:
    """An egress whose records a connector writes."""

    id: TypeName
    kind: str
    """The kind of the component, such as ``io.statefun.kinesis.v1/egress``."""
    location: Location
    writer: str
    """``package.module:name`` of a function that takes a ``Writing`` and returns a ``Cluster``."""
    address: str
    """The place that it writes to, for messages."""
    convert: Callable[[EgressMessage], KafkaEgressMessage | None]
    """Returns the record of a message, or None to send nothing; a function of a module.

    It runs where the sending function runs; an exception is a failure of that function.
    """
    settings: Any = attrs.field(default=None, repr=False)
    """The settings of the writer; they may contain passwords."""
    max_record_size: int = 1024 * 1024
    """The limit of a record, in bytes: key, value and headers together."""
    chunk_records: int = 1000
    """The largest number of records in one call of the writer."""
    is_exactly_once: bool = False
    """Whether the writer stores markers of progress together with records."""
    checker: str | None = None
    """``package.module:name`` of a function for ``statefun validate --connect``, as for an ingress."""

    @property
    def label(self) -> str:
        """The name of the component in messages."""
        return f"egress {self.id}"


def owner_of(component: ConnectorIngress | ConnectorEgress) -> str:
    """Return the name of a connector for messages: component, kind, location and code."""
    code = component.reader if isinstance(component, ConnectorIngress) else component.writer
    return f"{component.label} ({component.kind}, {component.location}): {code}"
