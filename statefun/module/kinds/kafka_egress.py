# SPDX-License-Identifier: Apache-2.0
"""Reads components of the kind ``io.statefun.kafka.v1/egress``."""

from __future__ import annotations

from datetime import timedelta

from statefun.module.kinds.egress_topics import egress_topics
from statefun.module.kinds.kafka_settings import ADDRESS, PROPERTIES, KafkaSettings
from statefun.module.model import MAX_RECORD_SIZE, DeliverySemantic, KafkaEgress
from statefun.module.yaml.components import ID, Component
from statefun.module.yaml.nodes import Node, ScalarNode
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import duration, integer, member, text
from statefun.module.yaml.shapes import Key, Shape, Variants, described, schema_of
from statefun.sdk.failure import OnFailure
from statefun.sdk.kafka_parts import topic_problem

_DEFAULT_TIMEOUT = timedelta(minutes=15)
_MIN_TIMEOUT = timedelta(seconds=1)
_MAX_TIMEOUT = timedelta(milliseconds=2**31 - 1)


@described(schema_of(duration))
def _timeout(node: Node, problems: Problems) -> timedelta:
    timeout = duration(node, problems)
    if isinstance(node, ScalarNode) and not _MIN_TIMEOUT <= timeout <= _MAX_TIMEOUT:
        sentence = f"{node.quoted} is out of range; Kafka takes 1000 ms to {2**31 - 1} ms"
        raise problems.report(node.location, node.path, sentence)
    return timeout


# The documents of Stateful Functions use both names, and give durations to both.
TRANSACTION_TIMEOUT = Key(
    "transactionTimeout",
    _timeout,
    "how long a transaction may stay open",
    default="15min",
    example="5min",
)
TRANSACTION_TIMEOUT_MILLIS = Key(
    "transactionTimeoutMillis",
    _timeout,
    f"{TRANSACTION_TIMEOUT.doc}; another name of {TRANSACTION_TIMEOUT.name}",
    example=300_000,
)

DELIVERY_SEMANTICS = Variants(
    "Invalid delivery semantic type: {type}; valid types are [{types}]",
    {
        "at-least-once": (),
        "exactly-once": (TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MILLIS),
        "none": (),
    },
)


@described(DELIVERY_SEMANTICS.schema)
def _delivery(node: Node, problems: Problems) -> tuple[DeliverySemantic, timedelta | None]:
    variant, values = DELIVERY_SEMANTICS.read(node, problems)
    timeout = values.get(TRANSACTION_TIMEOUT)
    millis = values.get(TRANSACTION_TIMEOUT_MILLIS)
    if timeout is not None and millis is not None and timeout != millis:
        sentence = (
            f"{TRANSACTION_TIMEOUT.name!r} and {TRANSACTION_TIMEOUT_MILLIS.name!r} are different; "
            "give one of them"
        )
        problems.report(node.location, node.path, sentence)
    return DeliverySemantic(variant), millis if timeout is None else timeout


DELIVERY_SEMANTIC = Key(
    "deliverySemantic",
    _delivery,
    "the guarantee for records when a process crashes",
    default={"type": "at-least-once"},
    example={"type": "exactly-once"},
)


@described(text.schema)
def _topic(node: Node, problems: Problems) -> str:
    name = text(node, problems)
    if topic_problem(name):
        raise problems.report(node.location, node.path, topic_problem(name))
    return name


ON_REFUSED = Key(
    "onRefused",
    member("onRefused", OnFailure),
    "what happens to a record that the cluster refuses for good, because it is too large or its "
    "topic does not exist: fail stops the application and keeps the record, skip leaves it out, and "
    "dead-letter makes it a dead letter",
    default="(dead-letter if an egress has a deadLetterTopic, else fail)",
    example="skip",
)
DEAD_LETTER_TOPIC = Key(
    "deadLetterTopic",
    _topic,
    "the topic for messages and records that could not be handled; only one egress may have it",
    default="(none: such a message or record stops the application)",
    example="dead-letters",
)
REPLAY_TOPIC = Key(
    "replayTopic",
    _topic,
    "a topic for replays, used together with deadLetterTopic: 'statefun dlq replay --to-target' "
    "writes dead letters to it, and each goes straight to the function that it is for",
    default="(none)",
    example="replays",
)
TOPICS = Key(
    "topics",
    egress_topics,
    "the topics whose records are transformed; records for other topics stay as they are",
    default="(none)",
    example=[{"topic": "greetings", "transforms": [{"type": "Flatten$Value"}]}],
)
_SIZE_PROPERTIES = ("max.request.size", "message.max.bytes")
"""The properties that limit the size of a record: in Kafka's Java client, and in librdkafka."""
_size = integer(1000, 1_000_000_000)
_MESSAGES = "functions decide the content of records, with KafkaEgressMessage"
_FORBIDDEN = {
    "key.serializer": _MESSAGES,
    "value.serializer": _MESSAGES,
    "interceptor.classes": _MESSAGES,
    "transactional.id": "exactly-once has its own id for every lane of a checkpoint",
}
KAFKA_EGRESS = Shape(
    (
        ID,
        ADDRESS,
        DELIVERY_SEMANTIC,
        ON_REFUSED,
        DEAD_LETTER_TOPIC,
        REPLAY_TOPIC,
        TOPICS,
        PROPERTIES,
    )
)


def read_kafka_egress(component: Component, problems: Problems) -> KafkaEgress:
    """Read a component as a Kafka egress; report its problems."""
    values = KAFKA_EGRESS.read(component.spec, problems)
    settings = KafkaSettings(component.spec, values, problems)
    settings.forbid(_FORBIDDEN)
    semantic, timeout = values.get(DELIVERY_SEMANTIC, (DeliverySemantic.AT_LEAST_ONCE, None))
    if semantic is DeliverySemantic.EXACTLY_ONCE:
        property_timeout = settings.take_property("transaction.timeout.ms", _timeout)
        timeout = timeout or property_timeout
    if semantic is DeliverySemantic.NONE and values.attempted(ON_REFUSED):
        problems.report(
            component.spec.location,
            component.spec.path,
            f"{ON_REFUSED.name!r} cannot be used with deliverySemantic none, which only counts "
            "refused records",
        )
    if values.attempted(REPLAY_TOPIC) and not values.attempted(DEAD_LETTER_TOPIC):
        problems.report(
            component.spec.location,
            component.spec.path,
            f"{REPLAY_TOPIC.name!r} needs {DEAD_LETTER_TOPIC.name!r} in the same egress",
        )
    return KafkaEgress(
        max_record_size=_record_size(settings, component, problems),
        address=settings.address(),
        delivery_semantic=semantic,
        transaction_timeout=timeout or _DEFAULT_TIMEOUT,
        properties=settings.rest(),
        on_refused=values.get(ON_REFUSED),
        dead_letter_topic=values.get(DEAD_LETTER_TOPIC),
        replay_topic=values.get(REPLAY_TOPIC),
        topics=values.get(TOPICS, ()),
        id=values[ID],
        location=component.location,
    )


def _record_size(settings: KafkaSettings, component: Component, problems: Problems) -> int:
    """Read the largest size of a record, which one of two properties may set."""
    by_name = {name: settings.take_property(name, _size) for name in _SIZE_PROPERTIES}
    sizes = {size for size in by_name.values() if size is not None}
    if len(sizes) > 1:
        sentence = f"{' and '.join(map(repr, by_name))} are different; give one of them"
        problems.report(component.spec.location, component.spec.path, sentence)
    return max(sizes, default=MAX_RECORD_SIZE)
