# SPDX-License-Identifier: Apache-2.0
"""The content of module files, of every format, as plain immutable values."""

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
from statefun.sdk.shown_uris import shown_uri


class AutoOffsetReset(Enum):
    """Where to start when the asked-for offset is missing or out of range."""

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
    """Start behind the last record of every partition."""


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
"""Reading ends where it would begin with the same startup position."""


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
    """Required by the group-offsets startup position; without it no offsets are committed."""
    startup_position: StartupPosition = FromGroupOffsets()
    auto_offset_reset: AutoOffsetReset = AutoOffsetReset.LATEST
    properties: Mapping[str, str] = attrs.field(factory=dict, repr=names_only)
    """Further Kafka consumer properties, in Kafka's (Java) names."""
    failure_policy: OnFailure | None = None
    """The policy for records that no function can receive; None: the runtime's default."""
    commit_offsets: bool = True
    """Whether the group's offsets follow the committed micro-batches."""
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    stop_position: StopPosition | None = None
    """None to read for ever; resolved at every start."""

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
"""The default limit of a record, in bytes: a little less than the brokers' default."""


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
    """Further Kafka producer properties, in Kafka's (Java) names."""
    max_record_size: int = MAX_RECORD_SIZE
    """The limit of a record, in bytes: key, value and headers together."""
    on_refused: OnFailure | None = None
    """The policy for records that the cluster refuses for good; None: the runtime's default."""
    dead_letter_topic: str | None = None
    """The topic for dead letters, if this egress writes them."""
    replay_topic: str | None = None
    """The topic from which replayed dead letters come back to their functions."""
    serializer: Callable[[Any], KafkaEgressMessage | None] | None = None
    """Converts values to records; returns None to leave a value out."""
    topics: tuple[TransformedTopic, ...] = ()
    """The topics whose records are transformed."""

    @property
    def label(self) -> str:
        """The name of the component in messages."""
        return f"egress {self.id}"


@attrs.frozen
class Timeouts:
    """How long the parts of a call of remote functions may take."""

    call: timedelta
    """The call as a whole, with all attempts."""
    connect: timedelta
    """To connect, once."""
    read: timedelta | None = None
    """Until more of a reply comes."""
    write: timedelta | None = None
    """To send a request."""


@attrs.frozen
class Tls:
    """Certificates in PEM, for an endpoint with ``https``."""

    trusted: bytes | None = attrs.field(default=None, repr=False)
    """The certificate authorities to trust; None for the machine's."""
    certificate: bytes | None = attrs.field(default=None, repr=False)
    """The client's certificate."""
    key: bytes | None = attrs.field(default=None, repr=False)
    """The client's private key."""
    password: str | None = attrs.field(default=None, repr=False)
    """The password of the private key."""


FUNCTION_NAME = "{function.name}"
"""Stands for a function's name in the URL of an endpoint."""


@attrs.frozen
class Endpoint:
    """An ``io.statefun.endpoints.v2/http`` or ``v1``: functions that run elsewhere."""

    functions: TypeName
    """A function, or with the name ``*`` all of a namespace that are not declared by name."""
    url_template: str = attrs.field(repr=shown_uri)
    """The URL; ``{function.name}`` in it stands for a function's name."""
    location: Location
    timeouts: Timeouts
    max_batch: int = 1000
    """The limit of messages in a request."""
    max_bytes: int = 32 * 1024 * 1024
    """The limit of a request or reply, in bytes."""
    pool_size: int = 1024
    """The limit of connections of a process."""
    pool_ttl: timedelta = timedelta(seconds=15)
    """After how long an idle connection is closed."""
    tls: Tls = Tls()
    failure_policy: FailurePolicy | None = None
    """The policy for messages that the functions fail to handle; None: the runtime's default."""

    @property
    def has_host_of_function(self) -> bool:
        """Whether the host's name depends on the function."""
        return FUNCTION_NAME in self.url_template.partition("://")[2].partition("/")[0]


LOOPBACK = "127.0.0.1"
PLAYGROUND = TypeName("io.statefun.playground", "egress")
"""The id of an egress of the playground, unless it has another."""


@attrs.frozen
class PlaygroundIngress:
    """An ``io.statefun.playground.v1/ingress``: messages over HTTP, for development."""

    port: int
    location: Location
    host: str = LOOPBACK
    """The address to listen at."""


@attrs.frozen
class PlaygroundDoor:
    """The settings of an ``io.statefun.playground.v1/egress``: records are taken there over HTTP."""

    port: int
    topics: tuple[str, ...]
    host: str = LOOPBACK
    """The address to listen at."""


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
        """The ingresses that have routes."""
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
        """Where records are taken over HTTP."""
        settings = [egress.settings for egress in self.connector_egresses]
        return tuple(each for each in settings if isinstance(each, PlaygroundDoor))

    @property
    def has_ingress(self) -> bool:
        """Whether messages can come from anywhere."""
        return bool(self.all_ingresses)

    @property
    def has_playground(self) -> bool:
        """Whether anything comes or goes over HTTP."""
        return bool(self.playground_ingresses or self.playground_doors)

    @property
    def dead_letters(self) -> KafkaEgress | None:
        """The egress of dead letters, if there is one."""
        return next((egress for egress in self.egresses if egress.dead_letter_topic), None)
