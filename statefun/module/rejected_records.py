# SPDX-License-Identifier: Apache-2.0
"""Why no function can receive a record, in words."""

from __future__ import annotations

from statefun.module.keys import UNDECODABLE_KEY, UNTRANSFORMABLE, id_of_key, rejection
from statefun.module.topic_routes import TopicRoute
from statefun.module.transforming import error_text, transformed_id
from statefun.sdk.errors import RecordError
from statefun.sdk.types import default_types
from statefun.transforms.transform import Record


def rejected(
    name: str,
    place: Record | None,
    route: TopicRoute | None,
    key: bytes | None = None,
    value: bytes | None = None,
) -> RecordError:
    """Return the error of a record that was rejected.

    Args:
        name: the kind of reason.
        place: where the record came from.
        route: of its topic; it knows the type of keys, and the transforms.
        key: of the record.
        value: of the record.
    """
    text = rejection(name)
    try:
        if place is not None and name == UNDECODABLE_KEY:
            type_ = default_types.find(str(route.key_type)) if route and route.key_type else None
            id_of_key(key or b"", type_)
        elif place is not None and name == UNTRANSFORMABLE and route and route.chain:
            transformed_id(route.chain, place, key, value)
    except Exception as error:  # noqa: BLE001 - it is the reason, whatever it is
        text += f": {error_text(error)}"
    return RecordError(text)
