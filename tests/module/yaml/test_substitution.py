# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.module.loader import parse_module
from statefun.module.yaml.substitution import Substitution, SubstitutionError
from statefun.sdk.errors import ModuleError

ENVIRONMENT = {"HOST": "kafka", "EMPTY": "", "NESTED": "${HOST}", "a.b": "dotted"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no references, $5, {x} and $HOST", "no references, $5, {x} and $HOST"),
        ("${HOST}", "kafka"),
        ("${HOST}:9092,${HOST}:9093", "kafka:9092,kafka:9093"),
        ("${HOST:-other}", "kafka"),
        ("${PORT:-9092}", "9092"),
        ("${PORT:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-full}", "full"),
        ("${a.b}", "dotted"),
        ("${PORT:-a:-b\nc}", "a:-b\nc"),
        ("$${HOST}", "${HOST}"),
        ("$$${HOST}", "$${HOST}"),
        ("${NESTED}", "${HOST}"),
    ],
)
def test_replaces_references(text: str, expected: str) -> None:
    """Variables, defaults and escapes are resolved; inserted values are not replaced again."""
    result = Substitution(ENVIRONMENT).apply(text)

    assert result == expected


@given(text=st.text())
def test_escaped_references_stay_as_they_are(text: str) -> None:
    """Doubling the dollar of every reference gives the text itself."""
    escaped = text.replace("${", "$${")

    result = Substitution({}).apply(escaped)

    assert result == text


@given(text=st.text(alphabet="${}:-HOST/file "))
def test_raises_only_substitution_errors(text: str) -> None:
    """Any text is replaced, or is a SubstitutionError with a reason."""
    reasons: tuple[str, ...] | None = None
    try:
        Substitution(ENVIRONMENT).apply(text)
    except SubstitutionError as error:
        reasons = error.texts

    assert reasons != ()


@pytest.mark.parametrize("text", ["${", "${}", "${1X}", "${A B}", "${A:-${HOST}}", "${A-b}"])
def test_refuses_malformed_references(text: str) -> None:
    """Text that only looks like a reference is refused, not kept silently."""
    with pytest.raises(
        SubstitutionError, match=r"is not a valid reference; write \$\{NAME\}"
    ) as raised:
        Substitution(ENVIRONMENT).apply(text)

    assert len(raised.value.texts) == 1


def test_reads_files(tmp_path: Path) -> None:
    """File references are relative to the folder, and lose white space around them."""
    (tmp_path / "password").write_text(" geheim \n")

    relative = Substitution({}, tmp_path).apply("<${file:password}>")
    absolute = Substitution({}).apply(f"<${{file:{tmp_path}/password}}>")

    assert relative == absolute == "<geheim>"


def test_refuses_unusable_files(tmp_path: Path) -> None:
    """Missing files, folders, devices, binary and huge files are refused by their reference."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "huge").write_bytes(b"x" * (1 << 20) + b"x")

    with pytest.raises(SubstitutionError) as raised:
        Substitution({}, tmp_path).apply(
            "${file:none}${file:.}${file:/dev/zero}${file:\0}${file:binary}${file:huge}"
        )

    assert raised.value.texts == (
        "the file of ${file:none} does not exist, or is not a regular file",
        "the file of ${file:.} does not exist, or is not a regular file",
        "the file of ${file:/dev/zero} does not exist, or is not a regular file",
        "the file of ${file:\0} does not exist, or is not a regular file",
        "the file of ${file:binary} must be text in UTF-8",
        "the file of ${file:huge} must not be larger than 1048576 bytes",
    )


def test_refuses_unreadable_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without permission is refused by its reference."""
    (tmp_path / "secret").write_text("x")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)

    with pytest.raises(SubstitutionError) as raised:
        Substitution({}, tmp_path).apply("${file:secret}")

    assert raised.value.texts == ("the file of ${file:secret} cannot be read: Permission denied",)


def test_values_and_keys_of_modules_are_substituted(
    ingress_text: Callable[..., str], tmp_path: Path
) -> None:
    """References stand in for any value, and for keys such as partitions."""
    (tmp_path / "password").write_text("geheim\n")
    text = ingress_text(
        "  startupPosition: {type: specific-offsets, offsets: {'${TOPIC}/0': '${OFFSET}'}}\n"
        "  properties:\n"
        "    - ssl.key.password: ${file:password}\n"
    ).replace("kafka:9092", "${HOST}:${PORT:-9092}")

    [ingress] = parse_module(
        text, str(tmp_path / "m.yaml"), {"HOST": "h", "TOPIC": "t", "OFFSET": "5"}
    ).ingresses

    assert ingress.address == "h:9092"
    assert ingress.properties == {"ssl.key.password": "geheim"}
    assert "TopicPartition(topic='t', partition=0): 5" in repr(ingress.startup_position)


def test_missing_variables_are_problems(
    ingress_text: Callable[..., str], findings: Callable[..., list[str]]
) -> None:
    """Each missing variable is exactly one problem, with its location."""
    text = ingress_text().replace("kafka:9092", "${HOST}:${PORT}").replace("example/in", "${ID}")

    found = findings(text)

    assert found == [
        (
            "m.yaml:3:7: spec.id: "
            "the environment variable 'ID' is not set; set it, or write ${ID:-default}, or "
            "$${ID} for the text itself"
        ),
        (
            "m.yaml:4:12: spec.address: "
            "the environment variable 'HOST' is not set; set it, or write ${HOST:-default}, or "
            "$${HOST} for the text itself"
        ),
        (
            "m.yaml:4:12: spec.address: "
            "the environment variable 'PORT' is not set; set it, or write ${PORT:-default}, or "
            "$${PORT} for the text itself"
        ),
    ]


LEAK = "s3cr3t"
LEAKY_MODULE = """\
kind: io.statefun.kafka.v1/ingress
spec:
  id: ${S}
  address: [a]
  ${S}: 1
  consumerGroupId: "${S}\\ud800"
  autoOffsetResetPosition: ${S}
  startupPosition: {type: specific-offsets, offsets: {"${S}": "${S}", "${S}/0": 1, "${S}/00": 2}}
  topics:
    - topic: ${S}
      valueType: ${S}
      targets: ["${S}", "${S}/*"]
    - topic: ${S}
      valueType: ${S}
      targets: ["${S}"]
  properties:
    - x: ${S}
      y: ${S}
    - auto.offset.reset: ${S}
---
kind: ${S}
spec: ${S}
---
version: ${S}
module: {meta: {type: "${S}"}, spec: {ingresses: [{ingress: {meta: {type: "${S}"}}}]}}
---
kind: io.statefun.kafka.v1/egress
spec:
  id: ${S}
  deliverySemantic: {type: exactly-once, transactionTimeout: "${S}", "${S}": 1}
---
kind: io.statefun.kafka.v1/egress
spec: {id: a/b, deliverySemantic: {type: "${S}"}}
---
kind: io.statefun.kafka.v1/ingress
spec: {startupPosition: {type: date, date: "${S}"}}
---
kind: io.statefun.endpoints.v2/http
spec: {functions: "${S}", urlPathTemplate: "${S}", maxNumBatchRequests: "${S}"}
---
kind: io.statefun.kinesis.v1/egress
spec: {id: a/b, awsCredentials: {type: "${S}"}, awsRegion: {type: specific, id: "${S}", x: "${S}"}}
"""


def test_errors_quote_references_instead_of_secrets() -> None:
    """A secret in a wrong place is not quoted in any error."""
    with pytest.raises(ModuleError) as raised:
        parse_module(LEAKY_MODULE, environment={"S": LEAK})

    shown = "".join(traceback.format_exception(raised.value)) + repr(raised.value.problems)
    assert len(raised.value.problems) > 30
    assert LEAK not in shown
    assert "'${S}'" in shown


def test_reprs_of_components_have_no_secrets(ingress_text: Callable[..., str]) -> None:
    """The repr of a component shows the names of properties, not their values."""
    text = ingress_text("  properties: {ssl.key.password: '${S}'}\n")

    module = parse_module(text, environment={"S": LEAK})

    assert module.ingresses[0].properties == {"ssl.key.password": LEAK}
    assert LEAK not in repr(module)
    assert "ssl.key.password" in repr(module)
