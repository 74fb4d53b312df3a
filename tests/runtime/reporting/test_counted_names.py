# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from statefun.runtime.reporting.counted_names import CountedNames


def test_namespaces_without_end_have_so_many_names() -> None:
    """A record of a replay topic may name any function; all further ones are counted together."""
    names = CountedNames(["t/declared"])
    invented = [f"n{number}/f" for number in range(3000)]

    functions = [names.function(each) for each in invented]
    targets = [names.target("t/declared", each) for each in invented]

    further = [f"n{number}/*" for number in range(1000, 2000)]
    assert functions == invented[:1000] + further + ["*/*"] * 1000
    assert targets == functions
    assert names.function("t/declared") == "t/declared"
    assert names.target("n7/f", "t/declared") == "t/declared"
