# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from textwrap import indent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.module.loader import parse_module
from statefun.sdk.errors import ModuleError, Problem

MODULE = """\
# where users come from
kind: io.statefun.playground.v1/ingress
spec:
  port: 8090
---
kind: io.statefun.kafka.v1/egress
spec: {id: test/out, address: "kafka:9092"}
"""
HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: module}\n"


def config_map(key: str, content: str) -> str:
    """Return a ConfigMap with one text."""
    inner = indent(content, "    ")
    return f"{HEAD}data:\n  {key}: |\n{inner}"


def listed(*resources: str) -> str:
    """Return a list of resources, as ``kubectl get`` prints it."""
    items = "".join(f"- {indent(each, '  ').lstrip()}" for each in resources)
    return f"apiVersion: v1\nkind: List\nitems:\n{items}"


def problems(text: str) -> list[Problem]:
    """Return the problems of a module file."""
    with pytest.raises(ModuleError) as raised:
        parse_module(text)
    return list(raised.value.problems)


@pytest.mark.parametrize("style", ["|", "|-", "|+"])
def test_a_module_file_may_be_in_a_config_map(style: str) -> None:
    """Components have locations in the outer file; other values of the ConfigMap are ignored."""
    other = "  flink-conf.yaml: |\n    a: ${UNKNOWN}\n"
    inner = indent(MODULE, "    ")
    text = f"{HEAD}data:\n{other}  module.yaml: {style}\n{inner}---\n{HEAD}"

    module = parse_module(text)

    (ingress,) = module.playground_ingresses
    (egress,) = module.egresses
    assert (ingress.port, str(egress.id)) == (8090, "test/out")
    assert (str(ingress.location), str(egress.location)) == ("module.yaml:9:5", "module.yaml:13:5")


def test_config_maps_may_be_in_a_list() -> None:
    """As ``kubectl get`` prints several; other resources of the list are ignored."""
    one, other = MODULE.split("---\n")
    maps = (("module.yaml", one), ("other.conf", "a: [\n"), ("my.module.yml", other))
    service = "apiVersion: v1\nkind: Service\n"
    text = listed(service, *(config_map(key, content) for key, content in maps))

    module = parse_module(text)

    (ingress,) = module.playground_ingresses
    (egress,) = module.egresses
    lines = text.splitlines()
    places = [each.location for each in (ingress, egress)]
    assert [lines[each.line - 1][each.column - 1 :] for each in places] == [
        "kind: io.statefun.playground.v1/ingress",
        "kind: io.statefun.kafka.v1/egress",
    ]


def test_the_keys_of_a_config_map_without_a_module_are_named() -> None:
    """Of all ConfigMaps in the file, also in a list; keys of one that has a module are not at fault."""
    data = config_map("functions.yaml", MODULE)
    binary = f"{HEAD}binaryData: {{module.yaml: a2luZA==}}\n"

    found = [problems(text)[0] for text in (data, binary, f"{listed(data)}---\n{binary}")]
    (empty,) = problems(f"{HEAD}data: {{module.yaml: ''}}\nbinaryData: {{x: eA==}}\n")

    start = "declares no component: of a ConfigMap, the keys of data that end with module.yaml or module.yml are module files"
    assert [each.text.partition("; ")[0] for each in found] == [
        f"{start}, and the keys are 'data.functions.yaml'",
        f"{start}, and the keys are 'binaryData.module.yaml'",
        f"{start}, and the keys are 'data.functions.yaml', 'binaryData.module.yaml'",
    ]
    assert empty.text.startswith("declares no component; expected")


@given(st.integers(0, 3), st.integers(1, 6), st.sampled_from(["prot: 8090", "port: x", "port: ["]))
def test_problems_have_locations_in_the_config_map(blank: int, depth: int, wrong: str) -> None:
    """The problems are those of a separate file, with shifted lines and columns."""
    alone = "\n" * blank + MODULE.replace("port: 8090", wrong)
    before = f"{HEAD}data:\n  module.yaml: |\n"
    within = before + indent(alone, " " * (depth + 2))

    found = problems(within)

    lines = before.count("\n")
    assert [(each.line - lines, each.column - depth - 2, each.text) for each in found] == [
        (each.line, each.column, each.text) for each in problems(alone)
    ]


def test_problems_in_a_quoted_text_are_located_at_its_beginning() -> None:
    """The lines of a quoted text are not lines of the file."""
    text = f'{HEAD}data:\n  module.yaml: "kind: io.statefun.kafka.v1/egress\\nspec:\\n  id: x"\n'

    assert {(each.line, each.column) for each in problems(text)} == {(5, 16)}


@pytest.mark.parametrize(
    "text", [HEAD, f"{HEAD}data: {{other.conf: x}}", "apiVersion: v1\nkind: Service\nspec: {}\n"]
)
def test_resources_without_a_module_declare_nothing(text: str) -> None:
    """A file of such resources alone declares no component."""
    (problem,) = problems(text)
    assert problem.text.startswith("declares no component")
    assert len(parse_module(f"{text}\n---\n{MODULE}").all_egresses) == 1


def test_a_config_map_in_a_config_map_is_not_read() -> None:
    """Only the outer ConfigMap is unpacked."""
    inner = f"{HEAD}data:\n  module.yaml: |\n{indent(MODULE, '    ')}"
    text = f"{HEAD}data:\n  module.yaml: |\n{indent(inner, '    ')}"
    assert any("unknown kind 'ConfigMap'" in each.text for each in problems(text))
