# SPDX-License-Identifier: Apache-2.0
"""Where the records of ingresses go."""

from __future__ import annotations

from statefun.engine.record_keys import UNDECODABLE_KEY, UNTRANSFORMABLE, id_of_key
from statefun.module.topic_routes import TopicRoute
from statefun.module.transforming import no_id, place_of, transformed_id
from statefun.sdk.errors import StatefunError
from statefun.sdk.record import KafkaRecord
from statefun.sdk.types import default_types


def id_of_record(record: KafkaRecord, route: TopicRoute) -> tuple[str | None, str]:
    """Return the id that a record names, if it does, and why it can go nowhere, if it cannot.

    Raises:
        FunctionError: if that cannot be told now.
    """
    type_ = None if route.key_type is None else default_types.find(str(route.key_type))
    is_transformed = route.chain is not None and route.chain.changes_key
    if record.key is None and not is_transformed:
        return None, "null-key"
    try:
        if route.chain is not None and is_transformed:
            id_ = transformed_id(route.chain, place_of(record), record.key, record.value).decode()
        else:
            id_ = id_of_key(record.key or b"", type_).decode()
    except StatefunError as error:
        if is_transformed:  # a schema registry does not answer, which says nothing of the record
            raise no_id(place_of(record), error) from None
        return None, UNDECODABLE_KEY
    except Exception:  # noqa: BLE001 - whatever a user's type raises
        return None, UNTRANSFORMABLE if is_transformed else UNDECODABLE_KEY
    if not id_:
        return id_, "empty-key"
    takes_tombstones = route.deserializer is not None and route.deserializer.takes_tombstones
    return id_, "null-value" if record.value is None and not takes_tombstones else ""
