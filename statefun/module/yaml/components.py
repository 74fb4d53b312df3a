# SPDX-License-Identifier: Apache-2.0
"""A component of a module file, in the same form for all formats of files."""

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
"""The key with the name of an ingress or egress."""


@attrs.frozen
class Component:
    """A document or list item, in the form that the reader of its kind takes."""

    kind: str
    """The current name of the kind, also where a legacy document uses an older one."""
    spec: Node
    """The ``spec`` mapping; an id that a legacy document has in ``meta`` is moved in here."""
    location: Location
    legacy: bool = False
    """Whether it comes from a document with ``version`` and ``module``."""
