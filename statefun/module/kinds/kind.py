# SPDX-License-Identifier: Apache-2.0
"""A kind of components: how it is called, and how its components are read."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from statefun.module.model import AnyComponent
from statefun.module.yaml.components import ID, Component
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.shapes import Shape


@attrs.frozen
class Kind:
    """A value that ``kind`` may have in a module file."""

    name: str
    """Such as ``io.statefun.kafka.v1/ingress``."""
    read: Callable[[Component, Problems], AnyComponent]
    """Reads a component; it reports what is wrong, or raises Invalid having reported it."""
    shape: Shape
    """The keys of its spec, in current documents."""
    group: str | None = None
    """``ingress``, ``egress``, ...: in it ids are unique. None for kinds that may repeat ids."""
    id_name: str = ID.name
    """The key of the spec that tells one component from another."""
