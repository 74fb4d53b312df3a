# SPDX-License-Identifier: Apache-2.0
"""A component of a module file, brought from whatever format into one form."""

from __future__ import annotations

import attrs

from statefun.module.model import Location
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


@attrs.frozen
class Component:
    """What the formats make of a document or a list item, for the kind's reader to go on with."""

    kind: str
    """The current name of the kind, also where a legacy document uses an older one."""
    spec: Node
    """The ``spec`` mapping; an id that a legacy document has in ``meta`` is moved in here."""
    location: Location
    legacy: bool = False
    """Whether it comes from a document with ``version`` and ``module``."""
