# SPDX-License-Identifier: Apache-2.0
"""The content of module files of every format, as immutable values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import attrs

from statefun.module.connectors import ConnectorEgress, ConnectorIngress
from statefun.module.location import Location
from statefun.module.topic_routes import TopicRoute, TransformedTopic, names_only
from statefun.sdk.address import TypeName
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.failure import FailurePolicy, OnFailure
from statefun.sdk.limits import RateLimit
from statefun.sdk.shown_uris import shown_uri


class AutoOffsetReset(Enum):
    """Where to start when an offset is missing or out of range."""

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
    """Start at given offsets; partitions not listed start at the group's offsets."""

    offsets: Mapping[TopicPartition, int]


@attrs.frozen
class FromDate:
    """Start at the first record whose timestamp is at or after ``date`` (time zone aware)."""

    date: datetime


StartupPosition = FromGroupOffsets | FromEarliest | FromLatest | FromSpecificOffsets | FromDate
StopPosition = FromLatest | FromSpecificOffsets | FromDate
"""The position at which reading stops: where the same startup position would start."""


class OnDataLoss(Enum):
    """The action when the broker deleted records before they were read."""

    FAIL = "fail"
    GO_ON = "go-on"


@attrs.frozen
class KafkaIngress:
    """An ``io.statefun.kafka.v1/ingress``."""

    id: TypeName
    address: str
    """``bootstrap.servers``: comma-separated ``host:port``."""
    topics: tuple[TopicRoute, ...]
    location: Location
    consumer_group_id: str | None = None
    """The group that offsets are committed to, if any; a start at group offsets needs it."""
    startup_position: StartupPosition = FromGroupOffsets()
    auto_offset_reset: AutoOffsetReset = AutoOffsetReset.LATEST
    properties: Mapping[str, str] = attrs.field(factory=dict, repr=names_only)
    """Further properties of the Kafka consumer, by their names in Java."""
    failure_policy: OnFailure | None = None
    """The policy for records that no function can receive; None: the runtime's default."""
    commit_offsets: bool = True
    """Whether the offsets of committed micro-batches are committed to the group."""
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    stop_position: StopPosition | None = None
    """The position at which reading stops, resolved at every start; None: it never stops."""

    @property
    def label(self) -> str:
        """The name of the component in messages."""
        return f"ingress {self.id}"


class DeliverySemantic(Enum):
    """The guarantee of an egress about its records when a process crashes."""

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


MAX_RECORD_SIZE = 1_000_000
"""The default of the largest size of a record, in bytes: a little less than the brokers' default."""


@attrs.frozen
class KafkaEgress:
    """An ``io.statefun.kafka.v1/egress``."""

    id: TypeName
    address: str
    """``bootstrap.servers``: comma-separated ``host:port``."""
    location: Location
    delivery_semantic: DeliverySemantic = DeliverySemantic.AT_LEAST_ONCE
    transaction_timeout: timedelta = timedelta(minutes=15)
    """Only used with exactly-once; at most the broker's ``transaction.max.timeout.ms``."""
    properties: Mapping[str, str] = attrs.field(factory=dict, repr=names_only)
    """Further properties of the Kafka producer, by their names in Java."""
    max_record_size: int = MAX_RECORD_SIZE
    """The largest size of a record, in bytes: key, value and headers together."""
    on_refused: OnFailure | None = None
    """The policy for records that the cluster refuses for good; None: the runtime's default."""
    dead_letter_topic: str | None = None
    """The topic of dead letters; None if this egress writes none."""
    replay_topic: str | None = None
    """The topic from which replayed dead letters go to their functions."""
    serializer: Callable[[Any], KafkaEgressMessage | None] | None = None
    """Returns the record of a value, or None to send nothing."""
    topics: tuple[TransformedTopic, ...] = ()
    """The topics whose records are transformed."""

    @property
    def label(self) -> str:
        """The name of the component in messages."""
        return f"egress {self.id}"


@attrs.frozen
class Timeouts:
    """The time limits of a request to an endpoint."""

    call: timedelta
    """The limit of the request, with all its attempts."""
    connect: timedelta
    """The limit of opening a connection."""
    read: timedelta | None = None
    """The limit of the wait for the next bytes of a reply."""
    write: timedelta | None = None
    """The limit of sending the request."""


@attrs.frozen
class Tls:
    """Certificates in PEM, for an endpoint with ``https``."""

    trusted: bytes | None = attrs.field(default=None, repr=False)
    """The certificate authorities to trust; None: those of the machine."""
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
    """An ``io.statefun.endpoints.v2/http`` or ``v1``: functions behind HTTP."""

    functions: TypeName
    """A function, or with the name ``*`` all functions of a namespace without an own endpoint."""
    url_template: str = attrs.field(repr=shown_uri)
    """The URL; ``{function.name}`` in it stands for a function's name."""
    location: Location
    timeouts: Timeouts
    max_batch: int = 1000
    """The largest number of messages in a request."""
    max_bytes: int = 32 * 1024 * 1024
    """The largest size of a request or reply, in bytes."""
    pool_size: int = 1024
    """The largest number of connections of a process."""
    pool_ttl: timedelta = timedelta(seconds=15)
    """How long an idle connection stays open."""
    tls: Tls = Tls()
    failure_policy: FailurePolicy | None = None
    """The policy for messages that the functions fail to handle; None: the runtime's default."""
    detach_after: timedelta = timedelta(seconds=1)
    """How long a micro-batch waits for a call of the functions."""
    max_in_flight: int | None = None
    """How many calls of the endpoint a worker process makes at a time; None for any number."""
    rate_limit: RateLimit | None = None
    """How many calls of the endpoint a worker process may begin within a time; None for any number."""

    @property
    def has_host_of_function(self) -> bool:
        """Whether the name of the host contains the name of the function."""
        return FUNCTION_NAME in self.url_template.partition("://")[2].partition("/")[0]


LOOPBACK = "127.0.0.1"
PLAYGROUND = TypeName("io.statefun.playground", "egress")
"""The default id of an egress of the playground."""


@attrs.frozen
class PlaygroundIngress:
    """An ``io.statefun.playground.v1/ingress``: messages over HTTP, for development."""

    port: int
    location: Location
    host: str = LOOPBACK
    """The address to listen on."""


@attrs.frozen
class PlaygroundDoor:
    """The settings of an ``io.statefun.playground.v1/egress``, whose records clients get over HTTP."""

    port: int
    topics: tuple[str, ...]
    host: str = LOOPBACK
    """The address to listen on."""


@attrs.frozen
class Unsupported:
    """A component that is read and checked, but cannot run yet."""

    kind: str
    """The current name of the kind, also where a legacy document uses an older one."""
    id: str
    """A name that is unique in its kind: a typename, the functions of an endpoint or a port."""
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
"""A part of a module."""


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
        """The ingresses that have routes: all but those of the playground."""
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
        """The settings of the egresses of the playground."""
        settings = [egress.settings for egress in self.connector_egresses]
        return tuple(each for each in settings if isinstance(each, PlaygroundDoor))

    @property
    def has_ingress(self) -> bool:
        """Whether there is an ingress of any kind."""
        return bool(self.all_ingresses)

    @property
    def has_playground(self) -> bool:
        """Whether there is an ingress or egress of the playground."""
        return bool(self.playground_ingresses or self.playground_doors)

    @property
    def dead_letters(self) -> KafkaEgress | None:
        """The egress with the topic of dead letters, if there is one."""
        return next((egress for egress in self.egresses if egress.dead_letter_topic), None)
