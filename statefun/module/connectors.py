# SPDX-License-Identifier: Apache-2.0
"""The declarations of ingresses whose records connectors read, and of egresses whose records they write."""

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
    """The routes of the ingress's records; each topic is a source of the connector, such as a stream."""
    location: Location
    reader: str
    """``package.module:name`` of a function that takes a ``Reading`` and returns a DataFrame of records."""
    settings: Any = attrs.field(default=None, repr=False)
    """The settings of the reader; settings may contain passwords."""
    failure_policy: OnFailure | None = None
    """The policy for records that no function can receive; None: the runtime's default."""
    checker: str | None = None
    """``package.module:name`` of a function for ``statefun validate --connect``.

    The function takes the ingress and the time limit for an answer of a server (a ``timedelta``), and
    yields the problems that would keep the ingress from running.
    """

    @property
    def label(self) -> str:
        """The name of the component in error texts and logs."""
        return f"ingress {self.id}"


@attrs.frozen
class ConnectorEgress:
    """An egress whose records a connector writes."""

    id: TypeName
    kind: str
    """The kind of the component, such as ``io.statefun.kinesis.v1/egress``."""
    location: Location
    writer: str
    """``package.module:name`` of a function that opens the connection of a lane.

    The function takes a ``Writing`` and returns a ``Cluster``.
    """
    address: str
    """The destination of the records, such as the address of a server, for error texts and logs."""
    convert: Callable[[EgressMessage], KafkaEgressMessage | None]
    """A function at the top level of a module: it converts a message to a record, or to None (no record).

    It runs where the sending function runs; if it raises an exception, the sending function fails.
    """
    settings: Any = attrs.field(default=None, repr=False)
    """The settings of the writer; settings may contain passwords."""
    max_record_size: int = 1024 * 1024
    """The largest size of a record, in bytes: key, value and headers together."""
    chunk_records: int = 1000
    """The largest number of records that the writer gets in one call."""
    is_exactly_once: bool = False
    """Whether the writer stores markers in the transaction of the records, so that each is written once."""
    checker: str | None = None
    """``package.module:name`` of a function for ``statefun validate --connect``; see ConnectorIngress."""

    @property
    def label(self) -> str:
        """The name of the component in error texts and logs."""
        return f"egress {self.id}"


def owner_of(component: ConnectorIngress | ConnectorEgress) -> str:
    """Return the text that names a connector in errors: component, kind, location, and reader or writer."""
    code = component.reader if isinstance(component, ConnectorIngress) else component.writer
    return f"{component.label} ({component.kind}, {component.location}): {code}"
