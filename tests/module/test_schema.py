# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from statefun.module.loader import parse_module
from statefun.module.schema import module_schema

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = Path(__file__).parent / "documents"
sys.path.insert(0, str(ROOT / "scripts"))

from generate_docs import documents  # noqa: E402 - a script, which is no package


class _Yaml12(yaml.SafeLoader):
    """Loads documents like an editor, which takes dates as strings."""


_Yaml12.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
EGRESS = "kind: io.statefun.kafka.v1/egress\nspec: {{id: a/b, address: 'kafka:9092'{}}}"
INGRESS = (
    "kind: io.statefun.kafka.v1/ingress\n"
    "spec:\n"
    "  id: a/b\n"
    "  address: ${{ADDRESS}}\n"
    "  consumerGroupId: group\n"
    "  topics: [{{topic: t, valueType: a/b, targets: [a/b]{}}}]\n"
    "{}"
)


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    """Return the validator that an editor checks a document with."""
    schema = module_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_generated_files_are_up_to_date(path: Path) -> None:
    """After a change of a key, ``make docs`` renews them."""
    assert path.read_text() == documents()[path]


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(DOCUMENTS.glob("*.yaml")) if "snippet" not in path.name],
    ids=lambda path: path.name,
)
def test_published_documents_are_valid(validator: Draft202012Validator, path: Path) -> None:
    """The schema has every key of current documents, and accepts all documents of older formats."""
    for document in yaml.load_all(path.read_text(), _Yaml12):
        assert list(validator.iter_errors(document)) == []


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (EGRESS.format(""), True),
        (EGRESS.format(", deliverySemantic: {type: none}"), True),
        (EGRESS.format(", deliverySemantic: {type: exactly-once, transactionTimeout: 5min}"), True),
        (EGRESS.format(", deliverySemantic: {type: '${SEMANTIC}'}"), False),  # says which keys
        (EGRESS.format(", deliverySemantic: {type: sometimes}"), False),
        (EGRESS.format(", deliverySemantic: {type: none, transactionTimeout: 5min}"), False),
        (EGRESS.format(", properties: {linger.ms: 5}"), True),
        (EGRESS.format(", properties: [{linger.ms: 5}, {compression.type: zstd}]"), True),
        (EGRESS.format(", properties: [{linger.ms: 5, compression.type: zstd}]"), False),
        (EGRESS.format(", deadLettertopic: x"), False),
        (INGRESS.format("", ""), True),
        (INGRESS.format(", failurePolicy: skip", ""), True),
        (INGRESS.format(", failurePolicy: '${POLICY}'", ""), True),
        (INGRESS.format(", failurePolicy: ignore", ""), False),
        (
            INGRESS.format("", "  startupPosition: {type: specific-offsets, offsets: {t/0: 5}}"),
            True,
        ),
        (INGRESS.format("", "  startupPosition: {type: specific-offsets}"), False),
        (INGRESS.format("", "  startupPosition: {type: date, date: 2026-01-01}"), True),
        (INGRESS.format("", "  autoOffsetResetPosition: none"), False),
        ("kind: io.statefun.kafka.v2/ingress\nspec: {}", False),
        ("kind: io.statefun.kafka.v1/ingress\nspec: {id: a/b}", False),
    ],
)
def test_the_schema_finds_what_the_loader_finds(
    validator: Draft202012Validator, text: str, is_valid: bool
) -> None:
    """Schema and loader refuse wrong keys and words; other checks are the loader's alone."""
    document = yaml.load(text, _Yaml12)  # noqa: S506 - as above

    assert validator.is_valid(document) == is_valid
    if is_valid and "$" not in text:
        parse_module(text)
