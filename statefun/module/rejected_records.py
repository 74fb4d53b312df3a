# SPDX-License-Identifier: Apache-2.0
"""Why no function can receive a record, in words."""

from __future__ import annotations

from statefun.module.keys import UNDECODABLE_KEY, UNTRANSFORMABLE, id_of_key, rejection
from statefun.module.topic_routes import TopicRoute
from statefun.module.transforming import place_of, transformed_id
from statefun.sdk.errors import RecordError
from statefun.sdk.raised import class_name, text_of
from statefun.sdk.record import KafkaRecord
from statefun.sdk.types import default_types
from statefun.transforms.data import TransformError


def rejected(name: str, record: KafkaRecord | None, route: TopicRoute | None) -> RecordError:
    """Return the error of a record that was rejected.

    Args:
        name: the kind of reason.
        record: the record.
        route: of its topic; it knows the type of keys, and the transforms.
    """
    text = rejection(name)
    if record is not None and name in {UNDECODABLE_KEY, UNTRANSFORMABLE}:
        try:
            _look_for_id(name, record, route)
        except TransformError as error:
            text += f": {error}"
        except Exception as error:  # noqa: BLE001 - it is the reason, whatever it is
            text += f": {class_name(error)}: {text_of(error)}"
    return RecordError(text)


def _look_for_id(name: str, record: KafkaRecord, route: TopicRoute | None) -> None:
    """Do again what has failed."""
    if name == UNDECODABLE_KEY:
        type_ = default_types.find(str(route.key_type)) if route and route.key_type else None
        id_of_key(record.key or b"", type_)
    elif route is not None and route.chain is not None:
        transformed_id(route.chain, place_of(record), record.key, record.value)
