# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import pytest

from statefun.module.loader import parse_module

EGRESS_ITEM = "{meta: {type: io.statefun.kafka/egress, id: a/b}, spec: {address: k}}"
MODULE = "version: '3.0'\nmodule: {meta: {type: remote}, spec: {egresses: %s}}\n"


@pytest.mark.parametrize(
    "text",
    [
        MODULE % f"[{{egress: {EGRESS_ITEM}}}]",
        # meta and spec beside `egress:` instead of inside it
        MODULE % f"[{{egress: , {EGRESS_ITEM[1:]}]",
        # no list
        MODULE % EGRESS_ITEM,
        # `type: remote` beside `meta:` instead of inside it
        MODULE.replace("{type: remote}", ", type: remote") % f"[{{egress: {EGRESS_ITEM}}}]",
        # `spec:` at the left margin
        f"version: '3.0'\nmodule: {{meta: {{type: remote}}}}\nspec: {{egresses: [{{egress: {EGRESS_ITEM}}}]}}",
        # an unquoted version, and a section with nothing but comments
        MODULE.replace("'3.0'", "3.0").replace("egresses", "endpoints: , egresses")
        % f"[{{egress: {EGRESS_ITEM}}}]",
    ],
)
def test_published_indentations_load(text: str) -> None:
    """Documents are accepted with the indentation that they are published with."""
    module = parse_module(text)

    assert [str(egress.id) for egress in module.egresses] == ["a/b"]


@pytest.mark.parametrize(
    "text", [MODULE % "", MODULE % "[]", "version: '1.0'\nmodule: {meta: {type: remote}, spec: {}}"]
)
def test_legacy_modules_may_be_empty(text: str) -> None:
    """A published template has no component, and is valid."""
    module = parse_module(text)

    assert (module.ingresses, module.egresses, module.unsupported) == ((), (), ())


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "just text",
            ["1:1: expected a mapping with the keys kind and spec, but found a single value"],
        ),
        ("- a", ["1:1: expected a mapping with the keys kind and spec, but found a list"]),
        (
            "knd: io.statefun.kafka.v1/egress\nspec: {}",
            ["1:1: knd: unknown key 'knd'; did you mean 'kind'? allowed keys: kind, spec"],
        ),
        (
            "kind: io.statefun.kafka.v1/egres",
            [
                "1:1: missing required key 'spec': the mapping that configures the component",
                (
                    "1:7: kind: unknown kind 'io.statefun.kafka.v1/egres'; "
                    "did you mean 'io.statefun.kafka.v1/egress'? known kinds: "
                    "io.statefun.kafka.v1/ingress, io.statefun.kafka.v1/egress, "
                    "io.statefun.endpoints.v1/http, io.statefun.endpoints.v2/http, "
                    "io.statefun.kinesis.v1/ingress, io.statefun.kinesis.v1/egress, "
                    "io.statefun.file.v1/ingress, io.statefun.file.v1/egress, "
                    "io.statefun.playground.v1/ingress, io.statefun.playground.v1/egress"
                ),
            ],
        ),
        (
            "version: '4.0'\nmodule: {meta: {type: embedded}, spec: []}",
            [
                "1:10: version: Invalid version: 4.0; valid values are [1.0, 2.0, 3.0]",
                "2:23: module.meta.type: Invalid module type: embedded; valid values are [remote]",
                (
                    "2:40: module.spec: expected a mapping with the keys ingresses, egresses, "
                    "endpoints, functions, routers, but found a list"
                ),
            ],
        ),
        (
            "module: {meta: {type: remote}}",
            [
                "1:1: missing required key 'version': one of 1.0, 2.0, 3.0",
                "1:1: missing required key 'spec': the mapping with ingresses and egresses",
            ],
        ),
        (
            "version: '3.0'",
            ["1:1: missing required key 'module': the mapping with meta and spec"],
        ),
        (
            "version: '3.0'\nmodule: {meta: , spec: {ingress: []}}",
            [
                "2:9: module: missing required key 'type': remote",
                (
                    "2:25: module.spec.ingress: unknown key 'ingress'; did you mean 'ingresses'? "
                    "allowed keys: egresses, endpoints, functions, ingresses, routers"
                ),
            ],
        ),
        (
            MODULE % "[{egres: {}}, 5, {egress: {}}, {egress: }]",
            [
                (
                    "2:51: module.spec.egresses[0].egres: "
                    "unknown key 'egres'; did you mean 'egress'? allowed keys: egress"
                ),
                (
                    "2:63: module.spec.egresses[1]: "
                    "expected a mapping with the key egress, but found a single value"
                ),
                (
                    "2:75: module.spec.egresses[2].egress: "
                    "missing required key 'meta': the mapping that names the type"
                ),
                (
                    "2:75: module.spec.egresses[2].egress: "
                    "missing required key 'spec': the mapping that configures the component"
                ),
                (
                    "2:80: module.spec.egresses[3]: "
                    "missing required key 'meta': the mapping that names the type"
                ),
                (
                    "2:80: module.spec.egresses[3]: "
                    "missing required key 'spec': the mapping that configures the component"
                ),
            ],
        ),
        (
            MODULE % "[{egress: {meta: {type: x}, spec: {id: a/b, address: k}}}]",
            [
                (
                    "2:66: module.spec.egresses[0].egress.meta: "
                    "missing required key 'id': the component's name, <namespace>/<name>"
                ),
                (
                    "2:73: module.spec.egresses[0].egress.meta.type: unknown kind 'x'; known kinds: "
                    "io.statefun.kafka/egress, statefun.kafka.io/generic-egress, "
                    "io.statefun.kinesis/egress, statefun.kinesis.io/generic-egress"
                ),
            ],
        ),
        (
            MODULE
            % "[{egress: {meta: {type: io.statefun.kafka/egress}, spec: {id: a/b, address: k}}}]",
            [
                (
                    "2:66: module.spec.egresses[0].egress.meta: "
                    "missing required key 'id': the component's name, <namespace>/<name>"
                ),
                "2:107: module.spec.egresses[0].egress.spec.id: 'id' belongs in meta, not in spec",
            ],
        ),
    ],
)
def test_reports_bad_documents(
    findings: Callable[..., list[str]], text: str, problems: list[str]
) -> None:
    """For a document of no format, the error names the missing keys of each format."""
    found = findings(text)

    assert found == [f"m.yaml:{problem}" for problem in problems]


@pytest.mark.parametrize(
    ("types", "suffix"),
    [("", ""), ("typeUrl: a/B, valueType: a/B, ", ", not both")],
)
def test_legacy_topics_have_one_type(
    findings: Callable[..., list[str]], types: str, suffix: str
) -> None:
    """Either key is right in legacy documents, but not none and not both."""
    item = (
        "{meta: {type: io.statefun.kafka/ingress, id: a/b}, spec: {address: k, "
        f"consumerGroupId: g, topics: [{{topic: t, {types}targets: [a/f]}}]}}}}"
    )
    text = (MODULE % item).replace("egresses", "ingresses")

    found = findings(text)

    assert found == [
        f"m.yaml:2:149: module.spec.ingresses.spec.topics[0]: needs either typeUrl or valueType{suffix}"
    ]
