# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from statefun.module.loader import load_module_files, parse_module
from statefun.module.model import Module
from statefun.sdk.errors import ModuleError, Problem

DOCUMENTS = sorted((Path(__file__).parent / "documents").glob("*.yaml"))
EXPECTED = "expected a module file, YAML with the ingresses and egresses of the application"


def test_reads_several_files(
    tmp_path: Path, ingress_text: Callable[..., str], egress_text: Callable[..., str]
) -> None:
    """The components of all files and documents make one module, in order."""
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    first.write_text(f"---\n{ingress_text()}---\n{egress_text()}---\n")
    second.write_text("\ufeff" + egress_text().replace("example/out", "example/more"))

    module = load_module_files([first, second])

    assert [str(ingress.id) for ingress in module.ingresses] == ["example/in"]
    assert [str(egress.id) for egress in module.egresses] == ["example/out", "example/more"]
    assert str(module.egresses[1].location) == f"{second}:1:1"


def test_no_files_are_an_empty_module() -> None:
    """The loader does not require components."""
    module = load_module_files([])

    assert module == Module()


def test_uses_the_process_environment(
    monkeypatch: pytest.MonkeyPatch, egress_text: Callable[..., str]
) -> None:
    """Without an environment given, it is that of the process."""
    monkeypatch.setenv("STATEFUN_TEST_HOST", "host")
    text = egress_text().replace("kafka:", "${STATEFUN_TEST_HOST}:")

    module = parse_module(text)

    assert module.egresses[0].address == "host:9092"


def test_reports_problems_of_all_files(tmp_path: Path, egress_text: Callable[..., str]) -> None:
    """Problems have the order of files and lines; the first one does not stop the loader."""
    (tmp_path / "z.yaml").write_text(egress_text("  x: 1\n").replace("example/out", "out"))
    (tmp_path / "a.yaml").write_text(egress_text() + "---\na: [\n")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    (tmp_path / "binary.yaml").write_bytes(b"\xff")
    names = ["z.yaml", "a.yaml", "none.yaml", "empty.yaml", "binary.yaml", ""]

    with pytest.raises(ModuleError) as raised:
        load_module_files([tmp_path / name for name in names])

    assert str(raised.value).replace(str(tmp_path), "").splitlines() == [
        "[SF101] 7 problems in the module files",
        (
            "  /z.yaml:3:7: spec.id: "
            "'out' is not of the form <namespace>/<name>, such as 'com.example.fns/greeter'"
        ),
        (
            "  /z.yaml:5:3: spec.x: "
            "unknown key 'x'; allowed keys: address, deadLetterTopic, deliverySemantic, id, onRefused, "
            "properties, replayTopic, topics"
        ),
        (
            "  /a.yaml:7:1: not valid YAML: "
            "while parsing a flow node, expected the node content, but found '<stream end>'"
        ),
        f"  /none.yaml:1:1: there is no such file; {EXPECTED}",
        f"  /empty.yaml:1:1: declares no component; {EXPECTED}",
        f"  /binary.yaml:1:1: is not UTF-8 text; {EXPECTED}",
        f"  :1:1: cannot be read: Is a directory; {EXPECTED}",
    ]


def test_reports_duplicate_ids(
    tmp_path: Path, ingress_text: Callable[..., str], egress_text: Callable[..., str]
) -> None:
    """Ids are unique among ingresses and among egresses, over all files and kinds."""
    kinesis = (
        "kind: io.statefun.kinesis.v1/ingress\nspec: {id: example/in, "
        "streams: [{stream: s, valueType: a/T, targets: [a/f]}]}\n"
    )
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    first.write_text(f"{ingress_text()}---\n{egress_text().replace('example/out', 'example/in')}")
    second.write_text(f"{kinesis}---\n{egress_text()}---\n{egress_text()}")

    with pytest.raises(ModuleError) as raised:
        load_module_files([first, second])

    assert [str(problem).replace(str(tmp_path), "") for problem in raised.value.problems] == [
        f"/2.yaml:2:12: spec.id: duplicate ingress id 'example/in'; it is first declared at {first}:3:7".replace(
            str(tmp_path), ""
        ),
        f"/2.yaml:11:7: spec.id: duplicate egress id 'example/out'; it is first declared at {second}:6:7".replace(
            str(tmp_path), ""
        ),
    ]


def test_reports_duplicate_endpoints(findings: Callable[..., list[str]]) -> None:
    """Two endpoints cannot have the same functions, nor two playgrounds the same port."""
    endpoint = (
        "kind: io.statefun.endpoints.v2/http\nspec: {functions: a/*, urlPathTemplate: 'http://a'}\n"
    )

    found = findings(f"{endpoint}---\n{endpoint}")

    assert found == [
        (
            "m.yaml:5:19: spec.functions: "
            "duplicate endpoint functions 'a/*'; it is first declared at m.yaml:2:19"
        )
    ]


def _outcome(text: str) -> Module | tuple[Problem, ...]:
    try:
        return parse_module(text, environment={"A": "b"})
    except ModuleError as error:
        return error.problems


def _parses_or_reports(text: str) -> None:
    """Nothing else is raised, problems have a place, and nothing is dropped silently."""
    outcome = _outcome(text)
    if isinstance(outcome, Module):
        assert outcome != Module() or "version" in text  # only these may declare nothing
    else:
        assert outcome
        assert all(problem.line > 0 and problem.column > 0 for problem in outcome)


@given(text=st.text())
def test_any_text_parses_or_is_reported(text: str) -> None:
    """No text raises anything but a ModuleError."""
    _parses_or_reports(text)


@settings(max_examples=300)
@given(text=st.text(alphabet="a0'\"\\xU&*!%@`[]{}:,-?|>#~<=$ \n\t", max_size=60))
def test_any_punctuation_parses_or_is_reported(text: str) -> None:
    """No combination of YAML's syntax raises anything but a ModuleError."""
    _parses_or_reports(text)


WORDS = st.sampled_from(
    ["", "a/b", "a/*", "${A}", "${", "5", "5s", "earliest", "type", "date", "id", "spec", "t/0"]
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | WORDS | st.text(),
    lambda trees: st.lists(trees, max_size=3) | st.dictionaries(WORDS, trees, max_size=3),
    max_leaves=8,
)


@given(tree=TREES)
def test_any_structure_parses_or_is_reported(tree: object) -> None:
    """No structure raises anything but a ModuleError."""
    _parses_or_reports(yaml.safe_dump(tree))


def _places(tree: object) -> Iterator[tuple[object, object]]:
    """Every list and mapping of a tree, with each of its indices and keys."""
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield tree, key
            yield from _places(value)


@settings(max_examples=200, deadline=None)
@given(document=st.sampled_from(DOCUMENTS), trees=st.lists(TREES, min_size=1), seed=st.integers())
def test_any_mutation_parses_or_is_reported(document: Path, trees: list[object], seed: int) -> None:
    """No real document with a replaced value raises anything but a ModuleError."""
    chance = random.Random(seed)
    roots: list[object] = list(yaml.load_all(document.read_text(), yaml.BaseLoader))
    for tree in trees:
        container, key = chance.choice(list(_places(roots)))
        value = copy.deepcopy(tree)
        if isinstance(container, list) and isinstance(key, int):
            container[key] = value
        elif isinstance(container, dict):
            container[chance.choice([key, "id", "type", "spec"])] = value

    _parses_or_reports(yaml.safe_dump_all(roots))


@settings(max_examples=300, deadline=None)
@given(document=st.sampled_from(DOCUMENTS), data=st.data())
def test_any_damage_parses_or_is_reported(document: Path, data: st.DataObject) -> None:
    """No real document with a part cut out or put in raises anything but a ModuleError."""
    text = document.read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    inserted = data.draw(st.text(alphabet='a"\\U[]{}:,-&*!%|> \n\t\0', max_size=8))

    _parses_or_reports(text[:start] + inserted + text[end:])
