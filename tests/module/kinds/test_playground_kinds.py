# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun import ModuleError
from statefun.module.loader import parse_module

INGRESS = "kind: io.statefun.playground.v1/ingress\nspec:\n  port: 8090\n"


def test_the_names_of_a_host_are_listed() -> None:
    """Requests have them in lower case."""
    text = f"{INGRESS}  hosts: [Play.Example, b_1.example, c]\n"
    (ingress,) = parse_module(text).playground_ingresses
    assert ingress.hosts == ("play.example", "b_1.example", "c")


@pytest.mark.parametrize(
    "name",
    [
        "play.example:8090",
        "http://play.example",
        "*.example",
        "a b",
        ".example",
        "gr\xfc\xdfe.example",
    ],
)
def test_what_is_no_name_of_a_host_is_refused(name: str) -> None:
    """At its place in the file."""
    with pytest.raises(ModuleError) as caught:
        parse_module(f"{INGRESS}  hosts:\n    - '{name}'\n")
    assert (
        f"module.yaml:5:7: spec.hosts[0]: '{name}' is not the name of a host alone, such as "
        "'playground.example.com'" in str(caught.value)
    )


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("host_s: [a]", "did you mean 'hosts'?"),
        ("hosts: []", "must not be empty; list at least one of: host names"),
        ("hosts: a", "a list of host names"),
    ],
)
def test_a_wrong_key_or_list_is_refused(line: str, text: str) -> None:
    """Nobody is admitted by mistake."""
    with pytest.raises(ModuleError) as caught:
        parse_module(f"{INGRESS}  {line}\n")
    assert "module.yaml:4:" in str(caught.value)
    assert text in str(caught.value)
