# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from statefun.runtime.admin.module_texts import module_text


@pytest.mark.parametrize(
    "line",
    [
        "pwd: hunter2",
        "encryption_key: hunter2",
        "encryptionKey: hunter2",
        "cookie: session=hunter2",
        "bearer: hunter2",
        "connection: Server=db;Uid=shop;Pwd=hunter2",
        "url: jdbc:sqlserver://db;user=shop;password=first,hunter2",
        "url: jdbc:oracle:thin:shop/hunter2@//db:1521/x",
        "connection: Host=db;Password=first hunter2;Port=1",
        "headers: [{name: X-Api-Key, value: hunter2}]",
        "password: hunter2",
        "passwords: {ada: hunter2}",
        "passwords: [{ada: [{key: hunter2}]}]",
        "credentials: {user: ada, value: hunter2}",
        "auth: {basic: 'ada:hunter2'}",
        "auth: {type: {basic: 'ada:hunter2'}}",
        "auth: {type: [hunter2]}",
        "password: {default: hunter2}",
        "apiKeys: {hunter2: ops}",
        "apiKeys: [{hunter2: ops}]",
        "tokens: {? hunter2 : [ops]}",
        "password: {name: shop, value: hunter2}",
        "users: {'https://ada:hunter2@host/x': 1}",
        "{'https://ada:hunter2@host/x': 1, <<: {acks: all}}: 1",
        "headers: {X-Gateway: Bearer hunter2}",
        "headers: ['X-Gateway: basic hunter2']",
        "pem: '-----BEGIN PRIVATE KEY----- hunter2'",
        "pem: '-----BEGIN RSA PRIVATE KEY----- hunter2'",
    ],
)
def test_values_that_may_be_secret_are_left_out(tmp_path: Path, line: str) -> None:
    """Specs of connectors of other packages have any keys; too many are hidden rather than too few."""
    file = tmp_path / "module.yaml"
    file.write_text(f"kind: com.example.v1/ingress\nspec:\n  {line}\n")

    text = module_text(file)
    assert text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "line",
    [
        "url: https://functions:8080/greeter",
        "properties: [{name: acks, value: all}]",
        "entry: {key: {type: text}, value: text}",
        "password: ${KAFKA_PASSWORD}",
        "connection: Host=db;Port=1",
        "url: jdbc:oracle:thin:@//db:1521/x",
        "awsCredentials: {type: profile}",
        "properties: {<<: {acks: all}, type: basic}",
        "pem: -----BEGIN CERTIFICATE----- MIIB",
    ],
)
def test_values_that_are_no_secrets_stay(tmp_path: Path, line: str) -> None:
    """A reader has to see what is configured."""
    file = tmp_path / "module.yaml"
    file.write_text(f"spec:\n  {line}")

    assert module_text(file) == file.read_text()


def test_a_text_inside_keeps_its_form(tmp_path: Path) -> None:
    """A value of a header ends with its line, and before its quotation mark."""
    file = tmp_path / "module.yaml"
    file.write_text(
        'data:\n  module.yaml: |\n    mechanism: basic\n    topic: users\n    header: "Bearer hunter2"\n'
    )

    assert module_text(file) == file.read_text().replace("hunter2", "***")
