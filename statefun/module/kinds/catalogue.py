# SPDX-License-Identifier: Apache-2.0
"""All kinds of components, and the names that these kinds have in documents of older formats."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

import attrs

from statefun.module.kinds.endpoints import ENDPOINTS
from statefun.module.kinds.kafka_egress import KAFKA_EGRESS, read_kafka_egress
from statefun.module.kinds.kafka_ingress import KAFKA_INGRESS, read_kafka_ingress
from statefun.module.kinds.kind import Kind
from statefun.module.kinds.legacy_kinds import LEGACY_ONLY_KINDS
from statefun.module.yaml.shapes import Shape

logger = logging.getLogger("statefun")

ENTRY_POINTS = "statefun.components"
"""The entry-point group by which other packages add kinds: an entry point is a Kind or a list of Kinds."""

_KAFKA_INGRESS = "io.statefun.kafka.v1/ingress"
_KAFKA_EGRESS = "io.statefun.kafka.v1/egress"
_KINESIS_INGRESS = "io.statefun.kinesis.v1/ingress"
_KINESIS_EGRESS = "io.statefun.kinesis.v1/egress"

_CONNECTORS = (
    "statefun.kinesis.kinesis_kinds",
    "statefun.files.file_kinds",
    "statefun.module.kinds.playground",
)
"""Modules of statefun that add kinds of connectors, in a list with the name ``KINDS``."""

_OWN = (
    Kind(_KAFKA_INGRESS, read_kafka_ingress, KAFKA_INGRESS, "ingress"),
    Kind(_KAFKA_EGRESS, read_kafka_egress, KAFKA_EGRESS, "egress"),
    *(
        Kind(name, kind.read, kind.shape, "endpoint", kind.shape.keys[0].name)
        for name, kind in ENDPOINTS.items()
    ),
)
_LEGACY = tuple(
    Kind(name, other.read, Shape(other.keys), other.group, other.id_key.name)
    for name, other in LEGACY_ONLY_KINDS.items()
)


@cache
def kinds() -> Mapping[str, Kind]:
    """Return the kinds that documents of the current format may name, also kinds of other packages."""
    by_name = {kind.name: kind for kind in own_kinds()}
    for package, kind in _installed():
        if by_name.setdefault(kind.name, kind) is not kind:
            logger.warning(
                "package %s adds kind %s, which exists already; the kind of the package is ignored",
                package,
                kind.name,
            )
    return by_name


@cache
def own_kinds() -> tuple[Kind, ...]:
    """Return the kinds of statefun itself, without the kinds that other packages add."""
    connectors: list[Kind] = []
    for module in _CONNECTORS:
        connectors += import_module(module).KINDS
    return (*_OWN, *connectors)


@cache
def all_kinds() -> Mapping[str, Kind]:
    """Return all kinds, including kinds that only documents of the older formats can name."""
    return {**kinds(), **{kind.name: kind for kind in _LEGACY}}


def _installed() -> Iterator[tuple[str, Kind]]:
    """Yield the kinds that other packages add, with the names of the packages."""
    for entry in entry_points(group=ENTRY_POINTS):
        package = entry.dist.name if entry.dist else entry.value
        try:
            added = entry.load()
            package_kinds = [added] if isinstance(added, Kind) else list(added)
            if not all(isinstance(kind, Kind) for kind in package_kinds):
                raise TypeError(f"{entry.value} must be a Kind or a list of Kinds")
        except Exception as error:  # noqa: BLE001 - programs without kinds of this package can run
            reason = f"{type(error).__name__}: {error}"
            logger.warning(
                "the kinds of components of package %s cannot be loaded, so no module file can use them: %s",
                package,
                reason,
            )
            continue
        for kind in package_kinds:
            yield package, kind


@attrs.frozen
class LegacySection:
    """The declaration of a list below ``module.spec`` of an older document, such as ``ingresses``."""

    wrapper: str
    """The only key of each item of the list, such as ``ingress``."""
    discriminator: str
    """The key of ``meta`` whose value names the kind of an item."""
    kinds: dict[str, str]
    """The current names of kinds, by the value of the discriminator."""
    id_name: str | None = None
    """The key of ``meta`` with the id, which is in ``spec`` in the current format; None if there is no id."""


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
