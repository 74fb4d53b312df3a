# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.sdk.shown_uris import shown_uri, without_secrets

PLANTED = st.text(st.sampled_from("XYZ+/= %&#?@:;"), min_size=6).map(lambda text: f"s3cret{text}")


@given(password=PLANTED, code=PLANTED, name=st.sampled_from(["code", "sig", ""]))
def test_nothing_of_a_secret_is_shown(password: str, code: str, name: str) -> None:
    """Neither of a login nor of a query; nor by an error that quotes the URI or what it means."""
    uri = f"https://ada:{quote(password, safe='')}@host:1/path?{name}={quote(code, safe='')}&a=b"

    shown = [shown_uri(uri)]
    shown += [
        without_secrets(f"404 for {each!r}!", uri) for each in (uri, code, password, quote(code))
    ]

    assert not [text for text in shown if "s3cret" in text]
    assert shown[0] == f"https://host:1/path?{name}=***&a=***"


@pytest.mark.parametrize("login", ["ghp_0815", "ghp_0815:"])
def test_a_token_in_the_place_of_a_user_is_a_secret(login: str) -> None:
    """Some servers take a token so, without a password; a user of HDFS is none."""
    error = "401 for ghp_0815"

    assert without_secrets(error, f"https://{login}@host/greeter") == "401 for ***"
    assert without_secrets(error, "https://ghp_0815:password@host/greeter") == error
    assert without_secrets("org.apache.hadoop", "hdfs://hadoop@namenode/") == "org.apache.hadoop"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("/a path/is it?/x=y", "/a path/is it?/x=y"),
        ("hdfs://namenode/checkpoint", "hdfs://namenode/checkpoint"),
        ("s3://bucket/a?SECRET", "s3://bucket/a?***"),
        ("s3://bucket/a?x=1;y=2#z=3", "s3://bucket/a?x=***;y=***"),
        ("http+unix:///run/a.sock/fn?code=KEY", "http+unix:///run/a.sock/fn?code=***"),
        ("https://{function.name}.host/fn?code=KEY", "https://{function.name}.host/fn?code=***"),
        ("", ""),
    ],
)
def test_what_is_no_secret_is_shown(uri: str, shown: str) -> None:
    """So that a reader knows which endpoint, folder or registry is meant."""
    assert shown_uri(uri) == shown


def test_texts_without_a_uri_stay_as_they_are() -> None:
    """There is nothing in them to hide."""
    assert without_secrets("it is closed", "") == "it is closed"
    assert without_secrets("is at none of a", "s3://bucket?scheme=none&x=a") == "is at none of a"
