# SPDX-License-Identifier: Apache-2.0
"""The content of module files of every format, as immutable values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import attrs

from statefun.module.connectors import ConnectorEgress, ConnectorIngress
from statefun.module.event_time import EventTime
from statefun.module.location import Location
from statefun.module.topic_routes import TopicRoute, TransformedTopic, names_only
from statefun.sdk.address import TypeName
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.failure import FailurePolicy, OnFailure
from statefun.sdk.limits import RateLimit
from statefun.sdk.shown_uris import shown_uri


class AutoOffsetReset(Enum):
    """Where reading starts if an offset is missing or out of range."""

    LATEST = "latest"
    EARLIEST = "earliest"


@attrs.frozen
class TopicPartition:
    """One partition of a topic, written ``topic/partition`` in module files."""

    topic: str
    partition: int


@attrs.frozen
class FromGroupOffsets:
    """Start at the offsets that the consumer group has committed."""


@attrs.frozen
class FromEarliest:
    """Start at the earliest offset of every partition."""


@attrs.frozen
class FromLatest:
    """Start after the last record of every partition."""


@attrs.frozen
class FromSpecificOffsets:
    """Start at given offsets; partitions without a given offset start at the group's committed offsets."""

    offsets: Mapping[TopicPartition, int]


@attrs.frozen
class FromDate:
    """Start at the first record whose timestamp is at or after ``date`` (time zone aware)."""

    date: datetime


StartupPosition = FromGroupOffsets | FromEarliest | FromLatest | FromSpecificOffsets | FromDate
StopPosition = FromLatest | FromSpecificOffsets | FromDate
"""Where reading stops: before the record at which a start at this position would begin."""


class OnDataLoss(Enum):
    """The action if records were deleted in Kafka before the ingress has read them."""

    FAIL = "fail"
    GO_ON = "go-on"


@attrs.frozen
class KafkaIngress:
    """A Kafka ingress: a component of the kind ``io.statefun.kafka.v1/ingress``."""

    id: TypeName
    address: str
    """The brokers that clients connect to first (``bootstrap.servers``): comma-separated ``host:port``."""
    topics: tuple[TopicRoute, ...]
    location: Location
    consumer_group_id: str | None = None
    """The consumer group of the ingress, if any; offsets are committed to it, and may be read from it."""
    startup_position: StartupPosition = FromGroupOffsets()
    auto_offset_reset: AutoOffsetReset = AutoOffsetReset.LATEST
    properties: Mapping[str, str] = attrs.field(factory=dict, repr=names_only)
    """Further properties of the Kafka consumer, by their names in Kafka's Java client."""
    failure_policy: OnFailure | None = None
    """The policy for records that no function can receive; None: the runtime's default."""
    commit_offsets: bool = True
    """Whether the offsets of committed micro-batches are committed to the consumer group in Kafka."""
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    stop_position: StopPosition | None = None
    """The position at which reading stops, computed anew at every start; None: reading never stops."""
    event_time: EventTime | None = None
    """How the records get their event times; None: they have none."""
    bootstrap_from: tuple[TypeName, ...] = ()
    """The ids of the ingresses that are read to their present ends, at every start, before this one is read."""
    bootstrap_locations: tuple[Location, ...] = attrs.field(default=(), eq=False, repr=False)
    """Where the ids in ``bootstrap_from`` are, for error texts."""

    @property
    def label(self) -> str:
        """The name of the component in error texts and logs."""
        return f"ingress {self.id}"


class DeliverySemantic(Enum):
    """The guarantee of an egress for its records if a process crashes."""

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


MAX_RECORD_SIZE = 1_000_000
"""The default limit of a record's size, in bytes: a little less than the brokers' default limit."""


@attrs.frozen
class KafkaEgress:
    """A Kafka egress: a component of the kind ``io.statefun.kafka.v1/egress``."""

    id: TypeName
    address: str
    """The brokers that clients connect to first (``bootstrap.servers``): comma-separated ``host:port``."""
    location: Location
    delivery_semantic: DeliverySemantic = DeliverySemantic.AT_LEAST_ONCE
    transaction_timeout: timedelta = timedelta(minutes=15)
    """How long a transaction of an exactly-once egress may stay open; the broker limits this time."""
    properties: Mapping[str, str] = attrs.field(factory=dict, repr=names_only)
    """Further properties of the Kafka producer, by their names in Kafka's Java client."""
    max_record_size: int = MAX_RECORD_SIZE
    """The largest size of a record, in bytes: key, value and headers together."""
    on_refused: OnFailure | None = None
    """The policy for records that the cluster refuses for good; None: the runtime's default."""
    dead_letter_topic: str | None = None
    """The topic of dead letters; None if this egress writes none."""
    replay_topic: str | None = None
    """The topic from which replayed dead letters go to their functions; None if this egress has none."""
    serializer: Callable[[Any], KafkaEgressMessage | None] | None = None
    """A function that returns the record of a value, or None to send nothing; None: no serializer."""
    topics: tuple[TransformedTopic, ...] = ()
    """The topics whose records are transformed."""

    @property
    def label(self) -> str:
        """The name of the component in error texts and logs."""
        return f"egress {self.id}"


@attrs.frozen
class Timeouts:
    """The time limits of a request to an endpoint."""

    call: timedelta
    """The time limit of a request, with all its attempts."""
    connect: timedelta
    """The time limit of opening a connection."""
    read: timedelta | None = None
    """The time limit of waiting for the next bytes of a reply; None: no limit."""
    write: timedelta | None = None
    """The time limit of sending the request; None: no limit."""


@attrs.frozen
class Tls:
    """The certificates and the private key for an endpoint with ``https``, all in PEM."""

    trusted: bytes | None = attrs.field(default=None, repr=False)
    """The certificate authorities to trust; None: the certificate authorities of the machine."""
    certificate: bytes | None = attrs.field(default=None, repr=False)
    """The client's certificate."""
    key: bytes | None = attrs.field(default=None, repr=False)
    """The client's private key."""
    password: str | None = attrs.field(default=None, repr=False)
    """The password of the private key."""


FUNCTION_NAME = "{function.name}"
"""The placeholder for a function's name in the URL of an endpoint."""


@attrs.frozen
class Endpoint:
    """An endpoint: functions that a server runs, and that the runtime calls over HTTP."""

    functions: TypeName
    """The typename of the functions behind the endpoint.

    The name ``*`` stands for all functions of the namespace that no other endpoint names.
    """
    url_template: str = attrs.field(repr=shown_uri)
    """The URL of the endpoint, in which ``{function.name}`` stands for the name of the called function."""
    location: Location
    timeouts: Timeouts
    max_batch: int = 1000
    """The largest number of messages in a request."""
    max_bytes: int = 32 * 1024 * 1024
    """The largest size of a request or reply, in bytes."""
    pool_size: int = 1024
    """The largest number of connections from one process to the endpoint."""
    pool_ttl: timedelta = timedelta(seconds=15)
    """How long an idle connection stays open."""
    tls: Tls = Tls()
    failure_policy: FailurePolicy | None = None
    """The policy for messages that the endpoint's functions fail to handle; None: the runtime's default."""
    detach_after: timedelta = timedelta(seconds=1)
    """How long a micro-batch waits for a call of the endpoint; a slower call becomes a long call."""
    max_in_flight: int | None = None
    """How many calls of the endpoint a worker process makes at a time; None for any number."""
    rate_limit: RateLimit | None = None
    """How many calls of the endpoint a worker process may begin in a period; None for any number."""

    @property
    def has_host_of_function(self) -> bool:
        """Whether the host name in the URL contains ``{function.name}``, so that each function has a host."""
        return FUNCTION_NAME in self.url_template.partition("://")[2].partition("/")[0]


LOOPBACK = "127.0.0.1"
PLAYGROUND = TypeName("io.statefun.playground", "egress")
"""The default id of an egress of the playground."""


@attrs.frozen
class PlaygroundIngress:
    """An ingress of the playground, which accepts messages over HTTP, for development."""

    port: int
    location: Location
    host: str = LOOPBACK
    """The address on which the playground listens for requests."""
    hosts: tuple[str, ...] = ()
    """Further names of the playground's host, in lower case, which requests may have."""


@attrs.frozen
class PlaygroundDoor:
    """The settings of a playground egress: its topics, and where clients get its records over HTTP."""

    port: int
    topics: tuple[str, ...]
    host: str = LOOPBACK
    """The address on which the playground listens for requests."""
    hosts: tuple[str, ...] = ()
    """Further names of the playground's host, in lower case, which requests may have."""


@attrs.frozen
class Unsupported:
    """A component that is read and checked, but that this version of statefun cannot run."""

    kind: str
    """The current name of the kind, also if an older document gives the kind an older name."""
    id: str
    """The component's name, which is unique among components of its kind, such as a typename."""
    location: Location


AnyComponent = (
    KafkaIngress
    | KafkaEgress
    | Endpoint
    | ConnectorIngress
    | ConnectorEgress
    | PlaygroundIngress
    | Unsupported
)
"""A component of any kind."""


@attrs.frozen
class Module:
    """All components of all module files of an application."""

    ingresses: tuple[KafkaIngress, ...] = ()
    egresses: tuple[KafkaEgress, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    connector_ingresses: tuple[ConnectorIngress, ...] = ()
    connector_egresses: tuple[ConnectorEgress, ...] = ()
    playground_ingresses: tuple[PlaygroundIngress, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()

    @property
    def routed(self) -> tuple[KafkaIngress | ConnectorIngress, ...]:
        """The ingresses that have routes: all except for ingresses of the playground."""
        return (*self.ingresses, *self.connector_ingresses)

    @property
    def all_ingresses(self) -> tuple[KafkaIngress | ConnectorIngress | PlaygroundIngress, ...]:
        """The ingresses of all kinds."""
        return (*self.routed, *self.playground_ingresses)

    @property
    def all_egresses(self) -> tuple[KafkaEgress | ConnectorEgress, ...]:
        """The egresses of all kinds."""
        return (*self.egresses, *self.connector_egresses)

    @property
    def playground_doors(self) -> tuple[PlaygroundDoor, ...]:
        """The settings of each egress of the playground: its topics, and where clients get its records."""
        settings = [egress.settings for egress in self.connector_egresses]
        return tuple(each for each in settings if isinstance(each, PlaygroundDoor))

    @property
    def event_times(self) -> Mapping[str, EventTime]:
        """The settings of event time, by the id of each ingress that declares them."""
        return {
            str(each.id): each.event_time for each in self.ingresses if each.event_time is not None
        }

    @property
    def has_ingress(self) -> bool:
        """Whether the module has an ingress of any kind."""
        return bool(self.all_ingresses)

    @property
    def has_playground(self) -> bool:
        """Whether the module has an ingress or egress of the playground."""
        return bool(self.playground_ingresses or self.playground_doors)

    @property
    def dead_letters(self) -> KafkaEgress | None:
        """The egress that has the topic of dead letters; None if no egress has such a topic."""
        return next((egress for egress in self.egresses if egress.dead_letter_topic), None)
