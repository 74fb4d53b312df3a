# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from statefun.kinesis.connection import EgressSettings, FromEnd, IngressSettings
from statefun.module.connectors import ConnectorEgress, ConnectorIngress
from statefun.module.loader import load_module_files, parse_module
from statefun.sdk.errors import ModuleError

DOCUMENTS = Path(__file__).parents[1] / "module" / "documents"
INGRESS = """\
kind: io.statefun.kinesis.v1/ingress
spec:
  id: a/b
  streams: [{stream: s, valueType: a/T, targets: [a/f]}]
"""
EGRESS = "kind: io.statefun.kinesis.v1/egress\nspec:\n  id: a/b\n"


def ingress(text: str) -> tuple[ConnectorIngress, IngressSettings]:
    """Return the ingress in a text, and its settings."""
    [found] = parse_module(text, "folder/m.yaml", {}).connector_ingresses
    return found, found.settings


def egress(text: str) -> tuple[ConnectorEgress, EgressSettings]:
    """Return the egress in a text, and its settings."""
    [found] = parse_module(text, "folder/m.yaml", {}).connector_egresses
    return found, found.settings


def test_the_published_documents_are_read() -> None:
    """Each key of the documents that Flink publishes is read."""
    module = load_module_files([DOCUMENTS / "other-kinds.yaml"], {})

    [read], [written] = module.connector_ingresses, module.connector_egresses
    assert (str(read.id), read.location.line) == ("example/in", 2)
    assert [(each.topic, len(each.targets)) for each in read.topics] == [("stream-1", 2)]
    settings: IngressSettings = read.settings
    assert settings.start == datetime(2020, 2, 1, 4, 15, tzinfo=timezone.utc)
    assert settings.connection.region == "us-west-2"
    assert settings.connection.credentials.access_key_id == "my_access_key_id"
    assert settings.connection.credentials.secret_access_key == "my_secret_access_key"  # noqa: S105 - the document's
    assert settings.connection.client == {"read_timeout": 9.999, "max_pool_connections": 15}
    assert (str(written.id), written.location.line) == ("example/out", 25)
    out: EgressSettings = written.settings
    assert (out.max_outstanding_records, out.threads) == (9999, 10)
    assert out.connection.place == "https://localhost:4567"
    assert out.connection.credentials.profile == "john-doe"
    assert out.connection.credentials.profile_file == "/path/to/profile/config"
    assert not module.unsupported


def test_defaults_are_those_of_the_reference() -> None:
    """The latest position, the identity that boto3 finds, and 1,000 records."""
    read, settings = ingress(INGRESS)
    written, out = egress(EGRESS)

    assert settings.start is FromEnd.LATEST
    assert settings.connection.region is None
    assert settings.connection.place == "Kinesis in the default region"
    assert (out.max_outstanding_records, written.chunk_records) == (1000, 10_000)
    assert read.failure_policy is None


def test_streams_take_what_topics_take() -> None:
    """Streams have value formats and failure policies as topics do."""
    text = INGRESS.replace("valueType: a/T", "valueFormat: {type: text}, failurePolicy: skip")
    read, settings = ingress(text + "  startupPosition: {type: earliest}\n")

    assert str(read.topics[0].value_type) == "io.statefun.types/string"
    assert read.topics[0].failure_policy is not None
    assert settings.start is FromEnd.EARLIEST


def test_a_profile_is_beside_the_module_file() -> None:
    """The path of a profile is relative to the module file, as other paths are."""
    text = INGRESS + "  awsCredentials: {type: profile, profileName: me, profilePath: aws/x}\n"

    _, settings = ingress(text)

    assert settings.connection.credentials.profile_file == "folder/aws/x"


def test_secrets_are_not_shown() -> None:
    """Neither the text of settings nor errors have secrets."""
    keys = "{type: basic, accessKeyId: AKIA, secretAccessKey: hush}"
    read, settings = ingress(INGRESS + f"  awsCredentials: {keys}\n")

    assert "hush" not in f"{read} {settings} {settings.connection.credentials}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            INGRESS + "  awsRegion: {type: here}\n",
            (
                "5:21: spec.awsRegion.type: Invalid AWS region type: here; "
                "valid values are [default, specific, custom-endpoint]"
            ),
        ),
        (
            INGRESS + "  awsRegion: {type: custom-endpoint, id: x}\n",
            "5:14: spec.awsRegion: missing required key 'endpoint': the URL of the endpoint",
        ),
        (
            INGRESS + "  awsCredentials: {type: profile, accessKeyId: x, profileName: y}\n",
            "5:35: spec.awsCredentials.accessKeyId: 'accessKeyId' is only used with type basic",
        ),
        (
            INGRESS + "  startupPosition: {type: group-offsets}\n",
            (
                "5:27: spec.startupPosition.type: Invalid startup position type: group-offsets; "
                "valid values are [earliest, latest, date]"
            ),
        ),
        (
            INGRESS + "  clientConfigProperties: [{MaxConections: 3}]\n",
            (
                "5:44: spec.clientConfigProperties[0].MaxConections: unknown client property "
                "'MaxConections'; did you mean 'MaxConnections'? known are ConnectionTimeout, "
                "SocketTimeout, MaxConnections, UserAgentPrefix, Proxy"
            ),
        ),
        (
            INGRESS + "  clientConfigProperties: [{SocketTimeout: soon}]\n",
            (
                "5:44: spec.clientConfigProperties[0].SocketTimeout: 'soon' is not a whole number "
                "from 1 to 2147483647"
            ),
        ),
        (
            EGRESS + "  maxOutstandingRecords: 0\n",
            "4:26: spec.maxOutstandingRecords: '0' is not a whole number from 1 to 2147483647",
        ),
        (
            INGRESS.replace("valueType: a/T, ", ""),
            (
                "4:13: spec.streams[0]: missing required key 'valueType': the type of the records' "
                "values"
            ),
        ),
        (
            "kind: io.statefun.kinesis.v1/ingress\nspec: {id: a/b}\n",
            (
                "2:7: spec: missing required key 'streams': the streams to read, each with its "
                "valueType and targets"
            ),
        ),
    ],
)
def test_mistakes_are_reported(text: str, problem: str) -> None:
    """Each mistake is one problem, with its place and a correction."""
    with pytest.raises(ModuleError) as raised:
        parse_module(text, "m.yaml", {})

    assert [str(each) for each in raised.value.problems] == [f"m.yaml:{problem}"]
