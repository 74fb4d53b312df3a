# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from statefun.module.loader import load_module_files

DOCUMENTS = Path(__file__).parents[1] / "documents"
KINESIS = """\
kind: io.statefun.kinesis.v1/ingress
spec:
  id: a/b
  streams: [{stream: s, valueType: a/T, targets: [a/f]}]
"""


def test_known_kinds_are_set_aside() -> None:
    """Every kind that cannot be run yet loads with all of its keys."""
    module = load_module_files([DOCUMENTS / "other-kinds.yaml"], {})

    assert (module.ingresses, module.egresses) == ((), ())
    assert [(other.kind, other.id, other.location.line) for other in module.unsupported] == [
        ("io.statefun.kinesis.v1/ingress", "example/in", 2),
        ("io.statefun.kinesis.v1/egress", "example/out", 25),
    ]


@pytest.mark.parametrize(
    ("kind", "required"),
    [
        ("io.statefun.kinesis.v1/ingress", ["id", "streams"]),
        ("io.statefun.kinesis.v1/egress", ["id"]),
    ],
)
def test_reports_missing_keys(
    findings: Callable[..., list[str]], kind: str, required: list[str]
) -> None:
    """Required keys must exist also in kinds that cannot run."""
    found = findings(f"kind: {kind}\nspec: {{}}\n")

    assert [problem.split(":")[4] for problem in found] == [
        f" missing required key '{key}'" for key in required
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            KINESIS + "  awsRegion: {type: here}\n",
            (
                "5:21: spec.awsRegion.type: Invalid AWS region type: here; "
                "valid values are [default, specific, custom-endpoint]"
            ),
        ),
        (
            KINESIS + "  awsRegion: {type: custom-endpoint, id: x}\n",
            "5:14: spec.awsRegion: missing required key 'endpoint': the URL of the endpoint",
        ),
        (
            KINESIS + "  awsCredentials: {type: profile, accessKeyId: x, profileName: y}\n",
            "5:35: spec.awsCredentials.accessKeyId: 'accessKeyId' is only used with type basic",
        ),
        (
            KINESIS + "  startupPosition: {type: group-offsets}\n",
            (
                "5:27: spec.startupPosition.type: Invalid startup position type: group-offsets; "
                "valid values are [earliest, latest, date]"
            ),
        ),
    ],
)
def test_reports_bad_values(findings: Callable[..., list[str]], text: str, problem: str) -> None:
    """Each mistake is one problem with a correction."""
    found = findings(text)

    assert found == [f"m.yaml:{problem}"]
