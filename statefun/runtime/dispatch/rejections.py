# SPDX-License-Identifier: Apache-2.0
"""Why no function can receive the record of a row."""

from __future__ import annotations

from statefun.module import rejected_records
from statefun.module.policies import Policies
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.runtime.rows.origin import key_of
from statefun.sdk.errors import RecordError
from statefun.transforms.data import NOTHING
from statefun.transforms.transform import Record


def rejected(
    name: str, origin: RecordOrigin | None, value: bytes | None, policies: Policies
) -> RecordError:
    """Return the error of a record that was rejected.

    Args:
        name: of the address that the record was sent to instead, which is the kind of reason.
        origin: where it came from, and its key.
        value: its value.
        policies: know the routes.
    """
    if origin is None:
        return rejected_records.rejected(name, None, None)
    topic, time = origin.topic, origin.timestamp
    place = Record(topic, origin.partition, origin.offset, time, NOTHING, NOTHING)
    return rejected_records.rejected(
        name, place, policies.route_of(topic), key_of(origin, None), value
    )
