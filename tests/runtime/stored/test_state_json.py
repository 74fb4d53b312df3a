# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.runtime.stored.address_report import StoredValue
from statefun.runtime.stored.state_json import value_json
from statefun.runtime.stored.typed_values import Decoded


@pytest.mark.parametrize(
    ("expires", "shown"),
    [
        (0, None),
        (1_000_000_000_000, "2001-09-09T01:46:40Z"),
        (2**63 - 1, "9999-12-31T23:59:59.999000Z"),
    ],
)
def test_values_have_their_time_of_expiry(expires: int, shown: str | None) -> None:
    """Also those that expire almost never, as functions behind endpoints may declare it."""
    value = StoredValue("n", "a/T", 1, Decoded(7), expires)

    assert value_json(value)["expires"] == shown
