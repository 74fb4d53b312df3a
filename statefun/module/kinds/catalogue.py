# SPDX-License-Identifier: Apache-2.0
"""All kinds of components, and the names that older documents call them by."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from statefun.module.kinds import playground
from statefun.module.kinds.endpoints import ENDPOINTS
from statefun.module.kinds.kafka_egress import KAFKA_EGRESS, read_kafka_egress
from statefun.module.kinds.kafka_ingress import KAFKA_INGRESS, read_kafka_ingress
from statefun.module.kinds.other_kinds import LEGACY_ONLY_KINDS, OTHER_KINDS
from statefun.module.model import Component as Part
from statefun.module.yaml.components import ID, Component
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.shapes import Shape


@attrs.frozen
class Kind:
    """How to read the components of a kind."""

    read: Callable[[Component, Problems], Part]
    id_name: str
    """The key of the spec that tells one component from another."""
    shape: Shape
    """The keys of its spec, in current documents."""
    group: str | None
    """The group in which ids are unique; None for kinds that may repeat ids."""


_KAFKA_INGRESS = "io.statefun.kafka.v1/ingress"
_KAFKA_EGRESS = "io.statefun.kafka.v1/egress"
_KINESIS_INGRESS = "io.statefun.kinesis.v1/ingress"
_KINESIS_EGRESS = "io.statefun.kinesis.v1/egress"

_PLAYGROUND = {
    "io.statefun.playground.v1/ingress": Kind(
        playground.read_ingress, playground.PORT.name, playground.INGRESS, "ingress"
    ),
    "io.statefun.playground.v1/egress": Kind(
        playground.read_egress, playground.PORT.name, playground.EGRESS, "egress"
    ),
}

CURRENT_KINDS = (_KAFKA_INGRESS, _KAFKA_EGRESS, *ENDPOINTS, *OTHER_KINDS, *_PLAYGROUND)
"""The values of ``kind``."""

KINDS: dict[str, Kind] = {
    _KAFKA_INGRESS: Kind(read_kafka_ingress, ID.name, KAFKA_INGRESS, "ingress"),
    _KAFKA_EGRESS: Kind(read_kafka_egress, ID.name, KAFKA_EGRESS, "egress"),
    **{
        name: Kind(kind.read, kind.shape.keys[0].name, kind.shape, "endpoint")
        for name, kind in ENDPOINTS.items()
    },
    **_PLAYGROUND,
    **{
        name: Kind(other.read, other.id_key.name, Shape(other.keys), other.group)
        for name, other in (OTHER_KINDS | LEGACY_ONLY_KINDS).items()
    },
}


@attrs.frozen
class LegacySection:
    """A list below ``module.spec``, such as ``ingresses``."""

    wrapper: str
    """The key that every item of the list consists of, such as ``ingress``."""
    discriminator: str
    """The key of ``meta`` that names the kind."""
    kinds: dict[str, str]
    """Current names of kinds by the discriminator's values."""
    id_name: str | None = None
    """The key of ``meta`` that current documents have in ``spec``."""


LEGACY_SECTIONS = {
    "ingresses": LegacySection(
        "ingress",
        "type",
        {
            "io.statefun.kafka/ingress": _KAFKA_INGRESS,
            "statefun.kafka.io/routable-protobuf-ingress": _KAFKA_INGRESS,
            "io.statefun.kinesis/ingress": _KINESIS_INGRESS,
            "statefun.kinesis.io/routable-protobuf-ingress": _KINESIS_INGRESS,
            "statefun.kafka.io/protobuf-ingress": "statefun.kafka.io/protobuf-ingress",
        },
        id_name="id",
    ),
    "egresses": LegacySection(
        "egress",
        "type",
        {
            "io.statefun.kafka/egress": _KAFKA_EGRESS,
            "statefun.kafka.io/generic-egress": _KAFKA_EGRESS,
            "io.statefun.kinesis/egress": _KINESIS_EGRESS,
            "statefun.kinesis.io/generic-egress": _KINESIS_EGRESS,
        },
        id_name="id",
    ),
    "endpoints": LegacySection("endpoint", "kind", {"http": "io.statefun.endpoints.v1/http"}),
    "functions": LegacySection(
        "function", "kind", {"http": "functions/http", "grpc": "functions/grpc"}, id_name="type"
    ),
    "routers": LegacySection(
        "router",
        "type",
        {
            "org.apache.flink.statefun.sdk/protobuf-router": (
                "org.apache.flink.statefun.sdk/protobuf-router"
            )
        },
    ),
}
