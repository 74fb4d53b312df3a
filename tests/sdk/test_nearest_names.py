# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from statefun.sdk.nearest_names import nearest_name, suggestion

NAMES = st.lists(st.text("abcdef/", min_size=1), unique=True, min_size=1)


@given(NAMES, st.data())
def test_a_known_name_is_nearest_to_itself_in_any_case(
    known: list[str], data: st.DataObject
) -> None:
    """Who writes a name with capital letters means the same name."""
    name = data.draw(st.sampled_from(known))

    assert nearest_name(name.upper(), known) == name


@given(NAMES, st.text())
def test_only_known_names_are_suggested(known: list[str], name: str) -> None:
    """There is a suggestion if, and only if, a known name is similar."""
    near = nearest_name(name, known)

    assert near is None or near in known
    assert suggestion(name, known) == ("" if near is None else f"did you mean {near}?")


def test_nothing_is_similar_to_a_name_if_none_is_known() -> None:
    """An application without functions has no suggestion."""
    assert suggestion("com.example/greeter", []) == ""
    assert suggestion("com.example/greeter", ["xyz"]) == ""
