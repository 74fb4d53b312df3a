# SPDX-License-Identifier: Apache-2.0
"""Why no function can receive a record, in words."""

from __future__ import annotations

from statefun.module.keys import UNDECODABLE_KEY, id_of_key, rejection
from statefun.module.policies import Policies
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.sdk.errors import RecordError
from statefun.sdk.raised import class_name, text_of
from statefun.sdk.types import default_types


def rejected(name: str, record: RecordOrigin | None, policies: Policies) -> RecordError:
    """Return the error of a record that was rejected.

    Args:
        name: of the address that the record was sent to instead, which is the kind of reason.
        record: where it came from, and its key.
        policies: know the types of keys.
    """
    text = rejection(name)
    if name == UNDECODABLE_KEY and record is not None:
        key_type = policies.key_type_of(record.topic)
        type_ = None if key_type is None else default_types.find(str(key_type))
        try:
            id_of_key(record.key, type_)
        except Exception as error:  # noqa: BLE001 - it is the reason, whatever it is
            text += f": {class_name(error)}: {text_of(error)}"
    return RecordError(text)
