# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from statefun.module.yaml.nodes import (
    MAX_ALIASED_NODES,
    MAX_DEPTH,
    BrokenNode,
    ListNode,
    MapNode,
    Node,
    ScalarNode,
    compose,
)
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.substitution import Substitution


def _compose(text: str) -> tuple[list[Node], list[str]]:
    problems = Problems()
    documents = compose(text, "m.yaml", Substitution({}), problems)
    return documents, [str(problem) for problem in problems.in_file_order(["m.yaml"])]


def _plain(node: Node) -> object:
    """The content of a node, without its location."""
    if isinstance(node, MapNode):
        return {entry.key.text: _plain(entry.value) for entry in node.entries}
    if isinstance(node, ListNode):
        return [_plain(item) for item in node.items]
    assert isinstance(node, ScalarNode)
    return None if node.is_null else node.text


WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="$\ufeff")
)
TREES = st.recursive(
    st.none() | WORDS,
    lambda trees: st.lists(trees, max_size=4) | st.dictionaries(WORDS, trees, max_size=4),
    max_leaves=20,
)


@given(tree=st.lists(TREES) | st.dictionaries(WORDS, TREES))
def test_nodes_have_the_texts_lists_and_mappings_of_the_file(tree: object) -> None:
    """Composing is the inverse of dumping strings, lists and mappings."""
    text = yaml.safe_dump(tree, allow_unicode=True)

    [document], problems = _compose(text)

    assert problems == []
    assert _plain(document) == tree


def test_scalars_stay_as_written() -> None:
    """YAML 1.1's numbers, booleans, dates and sexagesimals remain the text that they are."""
    text = "[5, 0x1F, 1_000, 1.50, yes, NO, 2020-02-01 04:15:00.00 Z, 12:30, =, <<, ~, '', null]"

    [document], problems = _compose(text)

    assert problems == []
    assert _plain(document) == [
        *(
            "5",
            "0x1F",
            "1_000",
            "1.50",
            "yes",
            "NO",
            "2020-02-01 04:15:00.00 Z",
            "12:30",
            "=",
            "<<",
        ),
        *(None, "", None),
    ]


def test_nodes_have_locations_and_paths() -> None:
    """Line, column and path count from the start of the file."""
    [first, second], _ = _compose("a:\n  - b\n  - c: d\n---\ne:   f\n")

    assert isinstance(first, MapNode)
    items = first.get("a")
    assert isinstance(items, ListNode)
    mapping = items.items[1]
    assert isinstance(mapping, MapNode)
    assert [str(items.location), str(mapping.entries[0].value.location)] == [
        "m.yaml:2:3",
        "m.yaml:3:8",
    ]
    assert [items.path, mapping.path, mapping.entries[0].value.path] == ["a", "a[1]", "a[1].c"]
    assert isinstance(second, MapNode)
    assert str(second.entries[0].value.location) == "m.yaml:5:6"


def test_long_values_are_shortened() -> None:
    """Messages quote the beginning of the text in the file."""
    [document], _ = _compose("x" * 100)

    assert isinstance(document, ScalarNode)
    assert document.quoted == f"'{'x' * 77}...'"


@pytest.mark.parametrize("text", ["", "---\n", "---\n---\n", "# a comment\n", "\ufeff"])
def test_empty_documents_are_skipped(text: str) -> None:
    """An empty text between two separators is not a document."""
    documents, problems = _compose(text)

    assert (documents, problems) == ([], [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b\n c: d", "2:3: not valid YAML: mapping values are not allowed here"),
        (
            "a: [b",
            (
                "1:6: not valid YAML: while parsing a flow sequence, "
                "expected ',' or ']', but got '<stream end>'"
            ),
        ),
        (
            "a: b\nc: 'd\ne: f\n---\ng: h\n",
            (
                "2:4: not valid YAML: this quote is not closed: while scanning a quoted scalar, "
                "found unexpected document separator"
            ),
        ),
        (
            'a: "b\nc: d\n',
            (
                "1:4: not valid YAML: this quote is not closed: while scanning a quoted scalar, "
                "found unexpected end of stream"
            ),
        ),
        ("a: *b", "1:4: not valid YAML: found undefined alias 'b'"),
        ("a: b\nc: \x00", "2:4: not valid YAML: the character U+0000 is not allowed"),
        ('a: "\\UFFFFFFFF"', "1:7: not valid YAML: an escape or a version number is out of range"),
        ('a: "\\ud800"', "1:4: a: contains characters that are not Unicode text"),
        ("a: 1\nb: 2\na: 3\n", "3:1: a: duplicate key 'a'; it first appears at m.yaml:1:1"),
        ("a: {[b]: c}", "1:5: a: a key must be a string"),
        ("a:\n  ~: c", "2:3: a: a key must be a string"),
        ("a: !!binary eA==", "1:4: a: the YAML tag '!!binary' is not supported; remove it"),
        ("a: !b {}", "1:4: a: the YAML tag '!b' is not supported; remove it"),
    ],
)
def test_problems_have_locations_and_paths(text: str, problem: str) -> None:
    """Text that cannot be composed is a problem with its line, column and key."""
    documents, problems = _compose(text)

    assert problems == [f"m.yaml:{problem}"]
    assert documents


def test_python_tags_construct_nothing() -> None:
    """Tags that other loaders execute are refused."""
    [document], problems = _compose("!!python/object/apply:os.system ['exit 1']")

    assert isinstance(document, BrokenNode)
    assert problems == [
        ("m.yaml:1:1: the YAML tag '!!python/object/apply:os.system' is not supported; remove it")
    ]


def test_documents_before_a_syntax_error_are_kept() -> None:
    """Problems of these documents can be reported together with the syntax error."""
    documents, problems = _compose("a: b\n---\nc: [\n")

    assert len(problems) == 1
    assert isinstance(documents[0], MapNode)
    assert isinstance(documents[1], BrokenNode)


def test_aliases_stand_for_their_anchor() -> None:
    """An alias has the value of its anchor."""
    [document], problems = _compose("a: &x [1, 2]\nb: *x\n")

    assert problems == []
    assert _plain(document) == {"a": ["1", "2"], "b": ["1", "2"]}


def test_documents_that_aliases_make_huge_are_refused() -> None:
    """The document is refused before it takes much memory."""
    lines = ["a0: &a0 [x, x]"]
    lines += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 20)
    ]

    [document], problems = _compose("\n".join(lines))

    assert isinstance(document, BrokenNode)
    [problem] = problems
    assert f"aliases make the document larger by more than {MAX_ALIASED_NODES} nodes" in problem


@pytest.mark.parametrize("text", ["&a [*a, *a]", "&a {b: *a}", "- &a [[*a]]\n- *a"])
def test_recursive_aliases_are_refused(text: str) -> None:
    """A node cannot contain itself."""
    documents, problems = _compose(text)

    assert isinstance(documents[0], BrokenNode)
    [problem] = problems
    assert problem.endswith(f": aliases make the document nest deeper than {MAX_DEPTH} levels")


@pytest.mark.parametrize("bracket", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused(bracket: str) -> None:
    """However deep a document nests, the stack does not overflow."""
    documents, problems = _compose(bracket * 100_000)

    assert isinstance(documents[0], BrokenNode)
    [problem] = problems
    assert f"not valid YAML: the document nests deeper than {MAX_DEPTH} levels" in problem
