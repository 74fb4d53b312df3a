# SPDX-License-Identifier: Apache-2.0
"""Finds the id of the address to which a record of an ingress goes."""

from __future__ import annotations

from statefun.engine.record_keys import NULL_KEY, UNDECODABLE_KEY, UNTRANSFORMABLE, id_of_key
from statefun.module.topic_routes import TopicRoute
from statefun.module.transforming import encoded_record, no_id, transformed_id
from statefun.sdk.errors import RecordError, StatefunError
from statefun.sdk.record import KafkaRecord
from statefun.sdk.types import default_types


def id_of_record(record: KafkaRecord, route: TopicRoute) -> tuple[str | None, str]:
    """Return the id of the address to which a record goes, and why no function can receive the record.

    The id is None if the record has no id; the reason is empty if a function can receive the record.

    Raises:
        FunctionError: if the id cannot be computed, since a service such as a schema registry does
            not answer; a later attempt may succeed.
    """
    if route.chain is not None and route.changes_key:
        whole = encoded_record(record)
        try:
            id_ = transformed_id(route.chain, whole).decode()
        except RecordError:
            return None, UNTRANSFORMABLE
        except StatefunError as error:  # such as a schema registry's: the record may be good
            raise no_id(whole, error) from None
    elif record.key is None:
        return None, NULL_KEY
    else:
        type_ = None if route.key_type is None else default_types.find(str(route.key_type))
        try:
            id_ = id_of_key(record.key, type_).decode()
        except Exception:  # noqa: BLE001 - whatever a user's type raises
            return None, UNDECODABLE_KEY
    if not id_:
        return id_, "empty-key"
    return id_, "null-value" if record.value is None and not route.takes_tombstones else ""
