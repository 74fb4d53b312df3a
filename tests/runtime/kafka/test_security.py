# SPDX-License-Identifier: Apache-2.0
"""Encrypted and authenticated connections, and secrets that stay secret."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attrs
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from harness import KafkaHarness, run
from hypothesis import given
from hypothesis import strategies as st
from local_servers import free_port
from object_store import BUCKET, ObjectStore
from patience import SECONDS

from statefun import StatefulFunctions
from statefun.dev import EmbeddedKafka
from statefun.runtime.kafka.security import translate
from statefun.sdk.errors import ConfigurationError, KafkaError

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
SECRET = "plan7ed-s3cret"  # noqa: S105 - of this test's own broker
STORE_PASSWORD = "st0re-s3cret"  # noqa: S105 - the same
CODE = "plan7ed-c0de"
STORE_SECRETS = ("not a secret", "not%20a%20secret")
"""The secret key in the query of the test's object store."""


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"linger.ms": "5"}, {"linger.ms": "5"}),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
        ),
        (
            {"sasl.jaas.config": f"{PLAIN} required username=a password='b c';"},
            {"sasl.username": "a", "sasl.password": "b c"},
        ),
        (
            {
                "sasl.jaas.config": f'{OAUTH} required clientId="a" clientSecret="b" scope="c";',
                "sasl.oauthbearer.token.endpoint.url": "https://tokens",
                "sasl.login.callback.handler.class": "x.y.OAuthBearerLoginCallbackHandler",
            },
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "a",
                "sasl.oauthbearer.client.secret": "b",
                "sasl.oauthbearer.scope": "c",
                "sasl.oauthbearer.token.endpoint.url": "https://tokens",
            },
        ),
        (
            {
                "sasl.jaas.config": f'{KERBEROS} required useKeyTab=true keyTab="/k" '
                'principal="a@B" serviceName="kafka";'
            },
            {
                "sasl.kerberos.keytab": "/k",
                "sasl.kerberos.principal": "a@B",
                "sasl.kerberos.service.name": "kafka",
            },
        ),
        (
            {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"},
            {"ssl.ca.location": "/ca.pem"},
        ),
        ({"ssl.truststore.certificates": "PEM"}, {"ssl.ca.pem": "PEM"}),
        (
            {
                "ssl.keystore.location": "/k.p12",
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.password": "x",
            },
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
        ),
        (
            {
                "ssl.keystore.location": "/k.pem",
                "ssl.keystore.type": "PEM",
                "ssl.key.password": "x",
            },
            {
                "ssl.certificate.location": "/k.pem",
                "ssl.key.location": "/k.pem",
                "ssl.key.password": "x",
            },
        ),
        (
            {"ssl.keystore.certificate.chain": "C", "ssl.keystore.key": "K"},
            {"ssl.certificate.pem": "C", "ssl.key.pem": "K"},
        ),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            {"sasl.username": "a", "ssl.ca.location": "/x"},
            {"sasl.username": "a", "ssl.ca.location": "/x"},
        ),
    ],
)
def test_javas_names_are_translated(properties: dict[str, str], expected: dict[str, str]) -> None:
    """Each kind of login and store means the same to both clients."""
    assert translate("ingress a/b", properties) == expected


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"ssl.provider": "X"}, "property ssl.provider has no counterpart in librdkafka"),
        ({"sasl.jaas.config": SECRET}, "must have the form"),
        (
            {"sasl.jaas.config": f"x.y.Other required a='{SECRET}';"},
            "but is Other",
        ),
        ({"sasl.jaas.config": f"{SCRAM} required username=a;"}, "needs the option password"),
        (
            {"sasl.jaas.config": f"{OAUTH} required clientId=a clientSecret='{SECRET}';"},
            "OAuth needs the property sasl.oauthbearer.token.endpoint.url",
        ),
        (
            {"ssl.truststore.location": "/x.jks"},
            "only certificates in PEM form: convert the certificates",
        ),
        (
            {"ssl.keystore.location": "/x.jks"},
            "a keystore of type JKS cannot be read by librdkafka: convert",
        ),
        ({"sasl.login.callback.handler.class": "a.B"}, "only Kafka's own OAuthBearerLogin"),
    ],
)
def test_a_setting_without_a_counterpart_is_an_error(
    properties: dict[str, str], reason: str
) -> None:
    """The error names the property and a remedy, and shows no value."""
    with pytest.raises(ConfigurationError) as caught:
        translate("egress a/b", properties)

    assert caught.value.message.startswith("egress a/b: property ")
    assert reason in caught.value.message
    assert SECRET not in str(caught.value)


@given(st.text(min_size=1), st.text(min_size=1), st.sampled_from("\"'"))
def test_any_password_survives_quoting(username: str, password: str, quote: str) -> None:
    """From a quoted option, librdkafka gets the same value as Java."""

    def quoted(text: str) -> str:
        return quote + re.sub(rf"([\\{quote}])", r"\\\1", text) + quote

    jaas = f"{SCRAM} required username={quoted(username)} password={quoted(password)};"

    assert translate("a", {"sasl.jaas.config": jaas}) == {
        "sasl.username": username,
        "sasl.password": password,
    }


@attrs.frozen
class Secured:
    """A broker with a listener that takes TLS and SCRAM only."""

    broker: EmbeddedKafka
    address: str
    certificate: Path

    def properties(self, password: str) -> str:
        """Return the properties of a client, as YAML."""
        return textwrap.indent(
            f"security.protocol: SASL_SSL\n"
            f"sasl.mechanism: SCRAM-SHA-512\n"
            f'sasl.jaas.config: \'{SCRAM} required username="ada" password="{password}";\'\n'
            f"ssl.truststore.type: PEM\n"
            f"ssl.truststore.location: {self.certificate}\n",
            "    ",
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Start a broker with a self-signed certificate."""
    folder = tmp_path_factory.mktemp("certificates")
    keystore, certificate = folder / "broker.p12", folder / "ca.pem"
    keytool = shutil.which("keytool") or "keytool"
    store = ("-keystore", str(keystore), "-storepass", STORE_PASSWORD, "-storetype", "PKCS12")
    subprocess.run(
        [
            *(keytool, "-genkeypair", "-alias", "broker", "-keyalg", "EC", *store),
            *("-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-ext", "bc=ca:true"),
        ],
        check=True,
        capture_output=True,
    )
    pem = subprocess.run(
        [keytool, "-exportcert", "-rfc", "-alias", "broker", *store],
        check=True,
        capture_output=True,
    ).stdout
    certificate.write_bytes(pem)
    port, secure, controller = (free_port() for _ in range(3))
    listeners = f"PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure}"
    config = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(keystore),
        "ssl.keystore.password": STORE_PASSWORD,
    }
    with EmbeddedKafka(port=port, config=config) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion("ada", info, SECRET.encode())
        for future in admin.alter_user_scram_credentials([upsertion]).values():
            future.result(10)
        yield Secured(broker, f"127.0.0.1:{secure}", certificate)


APP = """
import statefun
from statefun import Context, KafkaEgressMessage, Message, function, message_builder

@function("t.fns/relay")
def relay(ctx: Context, message: Message) -> None:
    for egress in ("test/out", "test/other"):
        ctx.send(KafkaEgressMessage(egress, topic="secured-out", value=message.raw_value()))
    ctx.send(message_builder("t.far/f", "Ada", str_value="hello"))

if __name__ == "__main__":
    statefun.run()
"""


ELSEWHERE = """
kind: io.statefun.endpoints.v2/http
spec:
  functions: t.far/*
  urlPathTemplate: http://127.0.0.1:{port}/f?code={code}
  failurePolicy: dead-letter
---
kind: io.statefun.file.v1/ingress
spec:
  id: test/files
  failurePolicy: dead-letter
  files: [{{path: '{folder}', format: {{type: json-lines, idField: name}}, valueType: t/user, targets: [t.fns/relay]}}]
"""


@pytest.fixture
def refusing() -> Iterator[int]:
    """Return the port of a server that has no functions: it answers 404."""

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.long(minutes=0.8)
@pytest.mark.broker
@pytest.mark.spark
def test_records_travel_encrypted_and_nobody_sees_a_secret(
    secured: Secured, store_server: ObjectStore, refusing: int, tmp_path: Path
) -> None:
    """Reading and writing use TLS and SCRAM; no log, error, page of Spark's UI, dead letter or checkpoint has a secret.

    There are passwords of Kafka, and secrets in the queries of an endpoint and of a folder.
    """
    kafka = KafkaHarness(secured.broker, "secured")
    topics = {name: kafka.topic(name) for name in ("in", "out", "letters")}
    (tmp_path / "secret").write_text(SECRET)
    properties = secured.properties(f"${{file:{tmp_path}/secret}}")
    module = kafka.module({topics["in"]: ["t.fns/relay"]}, semantic="exactly-once")
    ingress, egress = module.replace(kafka.address, secured.address).split("---\n")
    other = egress.replace("test/out", "test/other").replace("exactly-once", "at-least-once")
    egress += f"  deadLetterTopic: {topics['letters']}\n"
    documents = [f"{each}  properties:\n{properties}" for each in (ingress, egress, other)]
    store_server.folder("secured").write("users.jsonl", b"{no JSON\n")
    folder = store_server.location("secured/*.jsonl")
    documents.append(ELSEWHERE.format(port=refusing, code=CODE, folder=folder))
    module = "---\n".join(documents)
    (tmp_path / "module.yaml").write_text(module)
    (tmp_path / "app.py").write_text(APP.replace("secured-out", topics["out"]))
    kafka.send(topics["in"], [("Ada", "hello")])
    port = free_port()
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [
                *(str(Path(sys.executable).parent / "spark-submit"), "--driver-memory", "1g"),
                *("--conf", f"spark.ui.port={port}", "--conf", "spark.statefun.debug=true"),
                str(tmp_path / "app.py"),
            ],
            env={key: value for key, value in os.environ.items() if "PYSPARK_SUBMIT" not in key},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        deadline = time.monotonic() + SECONDS
        while len(kafka.receive(topics["out"])) < 2 or len(kafka.receive(topics["letters"])) < 2:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        seen = [page(port, path) for path in ("environment", "SQL", "StreamingQuery", "jobs")]
        seen += [page(port, f"SQL/execution/?id={number}") for number in range(2)]
    finally:
        process.terminate()
        process.wait(SECONDS)

    assert [record.value for record in kafka.receive(topics["out"])] == ["hello"] * 2
    files = [path for path in (tmp_path / ".statefun").rglob("*") if path.is_file()]
    letters = {
        letter.headers.get("statefun-topic"): letter for letter in kafka.receive(topics["letters"])
    }
    by_file, by_endpoint = letters[f"s3a://{BUCKET}/secured/*.jsonl"], letters[None]
    assert "code=***" in by_endpoint.headers["statefun-error-message"]
    shown = [str(letter) for letter in (by_file, by_endpoint)]
    texts = [*seen, *shown, log.read_text(), *(path.read_text(errors="replace") for path in files)]
    assert len(files) > 5
    assert all("spark" in text.lower() for text in seen)
    assert not [
        text for text in texts for secret in (SECRET, CODE, *STORE_SECRETS) if secret in text
    ]


def page(port: int, path: str) -> str:
    """Fetch a page of Spark's UI."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as response:
        text: str = response.read().decode()
    return text


@pytest.mark.broker
@pytest.mark.spark
def test_a_wrong_password_is_an_error_without_it(
    secured: Secured, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The error has the address that refuses the login, and no secret."""
    kafka = KafkaHarness(secured.broker, "wrong")
    module = kafka.module({"in": ["t.fns/relay"]}).replace(kafka.address, secured.address)
    properties = secured.properties(f"wrong-{SECRET}")
    functions = StatefulFunctions()
    functions.register("t.fns/relay", lambda _context, _message: None)

    with caplog.at_level(logging.DEBUG), pytest.raises(KafkaError) as caught:
        run(module.replace("---\n", f"  properties:\n{properties}---\n"), functions, checkpoint)

    assert secured.address in caught.value.message
    assert SECRET not in f"{caught.value} {caught.value.__cause__} {caplog.text}"
