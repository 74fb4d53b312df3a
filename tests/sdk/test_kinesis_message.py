# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
from typing import Any

import pytest

from statefun import DefinitionError, IntType, KinesisEgressMessage, TypedValue
from statefun.sdk.kinesis_message import KINESIS_RECORD_TYPENAME


def message(**parts: Any) -> KinesisEgressMessage:
    """Return a record with all parts."""
    usual = {"stream": "s", "partition_key": "Ada", "value": b"v", "explicit_hash_key": "7"}
    return KinesisEgressMessage("t/out", **usual | parts)


def test_a_record_survives_the_wire() -> None:
    """All parts are in its wire form, and its repr has no content."""
    first = message(value=3, value_type=IntType)

    again = KinesisEgressMessage.from_typed_value("t/out", first.typed_value)

    for part in ("typename", "stream", "partition_key", "value", "explicit_hash_key"):
        assert getattr(again, part) == getattr(first, part)
    assert repr(again) == "KinesisEgressMessage('t/out', stream='s', partition_key='Ada', 5 bytes)"
    assert message(value=bytearray(b"x")).value == b"x"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"stream": ""}, "needs a stream, not ''"),
        ({"partition_key": 7}, "needs a partition_key, not 7"),
        ({"partition_key": "\ud800"}, "its key or value is not valid Unicode"),
        ({"value": None}, "needs a value: bytes, a string"),
        ({"value": None, "value_type": IntType}, "needs a value: bytes, a string"),
    ],
)
def test_a_record_that_kinesis_cannot_take_is_refused(parts: dict[str, Any], text: str) -> None:
    """The error names the egress and the part."""
    with pytest.raises(DefinitionError, match=f"a record for egress t/out.*{text}"):
        message(**parts)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            TypedValue("t/other", b""),
            "takes .*KinesisEgressRecord, not of type t/other; build the mess",
        ),
        (TypedValue(KINESIS_RECORD_TYPENAME, b"\xff"), r"\(1 bytes\) does not decode as"),
    ],
)
def test_other_values_are_no_kinesis_records(value: TypedValue, text: str) -> None:
    """A value of another type, or damaged bytes, is an error."""
    with pytest.raises(DefinitionError, match=text):
        KinesisEgressMessage.from_typed_value("t/out", value)


def test_records_can_be_pickled() -> None:
    """A record that was pickled has all of its parts."""
    record = KinesisEgressMessage("com.example/out", stream="s", partition_key="k", value=b"v")
    assert pickle.loads(pickle.dumps(record)).typed_value == record.typed_value
