# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from statefun.inspect.state_texts import values_line
from statefun.runtime.stored.address_report import StoredValue
from statefun.runtime.stored.typed_values import Decoded


def test_names_of_values_are_shown_as_text() -> None:
    """Functions behind endpoints choose them; a terminal must not obey one."""
    value = StoredValue("total\x1b[2J", "t/n", 1, Decoded("7\n"), 0)

    assert values_line([value]) == "total\\x1b[2J=7\\n"
