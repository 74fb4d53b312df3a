# SPDX-License-Identifier: Apache-2.0
"""Makes the errors of rejections: records that no function can receive."""

from __future__ import annotations

from statefun.engine.letters import PROBLEM_HEADER
from statefun.engine.origin import key_of
from statefun.engine.record_keys import (
    NULL_KEY,
    UNDECODABLE_KEY,
    UNTRANSFORMABLE,
    id_of_key,
    rejection,
)
from statefun.engine.record_routes import RecordRoutes
from statefun.module.topic_routes import TopicRoute
from statefun.module.transforming import transformed_id
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.sdk.errors import RecordError
from statefun.sdk.raised import line_of
from statefun.sdk.record import EncodedRecord
from statefun.sdk.types import default_types


def rejected(
    name: str, origin: RecordOrigin | None, value: bytes | None, routes: RecordRoutes
) -> RecordError:
    """Return the error of a record that was rejected.

    Args:
        name: the name of the reserved function that the rejected record was sent to, which is the reason.
        origin: the record's origin, with its key; None if the origin is unknown.
        value: the record's value.
        routes: the routes of all ingresses.
    """
    if origin is None:
        return RecordError(rejection(name))
    problems = [header.value for header in origin.headers if header.key == PROBLEM_HEADER]
    if name == NULL_KEY and problems:  # the reader of a connector has written them
        return RecordError(problems[0].decode(errors="replace"))
    try:
        _repeat(name, origin, value, routes.route_of(origin))
    except RecordError as error:
        return RecordError(f"{rejection(name)}: {error.message}")
    except Exception as error:  # noqa: BLE001 - users' code may raise any exception
        return RecordError(f"{rejection(name)}: {line_of(error)}")
    return RecordError(rejection(name))


def _repeat(name: str, origin: RecordOrigin, value: bytes | None, route: TopicRoute | None) -> None:
    """Repeat the conversion of a record's key or value that has failed, to get its exception.

    Raises:
        Exception: the one with which the conversion fails.
    """
    key = key_of(origin, None)
    if name == UNDECODABLE_KEY:
        type_ = default_types.find(str(route.key_type)) if route and route.key_type else None
        id_of_key(key or b"", type_)
    elif name == UNTRANSFORMABLE and route and route.chain:
        place = (origin.topic, origin.partition, origin.offset, origin.timestamp)
        transformed_id(route.chain, EncodedRecord(*place, key, value))
