# SPDX-License-Identifier: Apache-2.0
"""A kind of component: its name, its keys, and the reader of its components."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from statefun.module.model import AnyComponent
from statefun.module.yaml.components import ID, Component
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.shapes import Shape


@attrs.frozen
class Kind:
    """A kind of component that module files may declare."""

    name: str
    """The value of ``kind`` in module files, such as ``io.statefun.kafka.v1/ingress``."""
    read: Callable[[Component, Problems], AnyComponent]
    """A function that reads a component and reports problems; it raises Invalid if it cannot return one."""
    shape: Shape
    """The keys that the spec of such a component has in the current format of module files."""
    group: str | None = None
    """The group of kinds in which ids must be unique, such as ``ingress``; None if ids may repeat."""
    id_name: str = ID.name
    """The key of the spec that holds the id."""
