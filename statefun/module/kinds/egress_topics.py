# SPDX-License-Identifier: Apache-2.0
"""Reads the key ``topics`` of an egress: the topics whose records are transformed."""

from __future__ import annotations

import attrs

from statefun.module.kinds.chains import ChainKeys, check_outgoing, read_chain
from statefun.module.kinds.kafka_topics import TOPIC, TOPIC_PATTERN
from statefun.module.kinds.routes import routes
from statefun.module.kinds.transforms import TRANSFORMS
from statefun.module.kinds.value_formats import EGRESS_KEY_FORMAT, SUBJECT, VALUE_FORMAT
from statefun.module.topic_routes import RegistryValues, TransformedTopic
from statefun.module.yaml.nodes import Node
from statefun.module.yaml.problems import Invalid, Problems
from statefun.module.yaml.shapes import Shape, described
from statefun.transforms.data import TransformError

_TOPIC = attrs.evolve(
    TOPIC,
    doc="the topic that functions write to",
    required=False,
    default="(required, or topicPattern)",
    example="greetings",
)
_PATTERN = attrs.evolve(
    TOPIC_PATTERN, doc="instead of topic: a regular expression that matches whole topic names"
)
_FORMAT = attrs.evolve(
    VALUE_FORMAT, doc="the encoding of the values that functions write, for the transforms"
)
_TRANSFORMS = attrs.evolve(TRANSFORMS, required=True, default=None)
_KEYS = ChainKeys(_TRANSFORMS, EGRESS_KEY_FORMAT, _FORMAT)
_SHAPE = Shape((_TOPIC, _PATTERN, _FORMAT, EGRESS_KEY_FORMAT, _TRANSFORMS))


@described(_SHAPE.schema)
def _egress_topic(node: Node, problems: Problems) -> TransformedTopic:
    values = _SHAPE.read(node, problems)
    written_keys = [key for key in (_TOPIC, _PATTERN) if values.attempted(key)]
    if len(written_keys) != 1:
        sentence = f"needs either {_TOPIC.name} or {_PATTERN.name}"
        raise problems.report(node.location, node.path, sentence)
    name, value_format = values[written_keys[0]], values.get(_FORMAT)
    chain = read_chain(_KEYS, values, node, problems)
    if isinstance(value_format, RegistryValues) and value_format.subject is None:
        sentence = f"missing required key {SUBJECT.name!r}: {SUBJECT.doc}"
        problems.report(node.location, f"{node.path}.{_FORMAT.name}", sentence)
    if chain is None:
        raise Invalid  # the missing transforms were reported
    try:
        check_outgoing(chain)
    except TransformError as error:
        raise problems.report(node.location, f"{node.path}.{TRANSFORMS.name}", str(error)) from None
    return TransformedTopic(name, chain, is_pattern=written_keys == [_PATTERN])


egress_topics = routes(_egress_topic, TOPIC.name, TOPIC_PATTERN.name)
"""A reader of the topics of an egress, each with its transforms."""
