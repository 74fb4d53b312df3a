# SPDX-License-Identifier: Apache-2.0
"""A component of a module file, in a form that is the same for all formats of module files."""

from __future__ import annotations

import attrs

from statefun.module.location import Location
from statefun.module.yaml.nodes import Node
from statefun.module.yaml.readers import typename
from statefun.module.yaml.shapes import Key

ID = Key(
    "id",
    typename,
    "the name of this component, <namespace>/<name>",
    required=True,
    example="com.example/users",
)
"""The key ``id`` of an ingress or egress, whose value is the component's name."""


@attrs.frozen
class Component:
    """A component before it is read: a document or a list item, as the reader of its kind gets it."""

    kind: str
    """The current name of the kind, also if an older document gives the kind an older name."""
    spec: Node
    """The mapping ``spec``; the id that an older document has in ``meta`` is moved into this mapping."""
    location: Location
    legacy: bool = False
    """Whether the component comes from an older document, with ``version`` and ``module``."""
