# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from base64 import b64encode
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


def _somehow_encoded(text: str, draw: st.DrawFn) -> str:
    """Return a text with some of its characters encoded, with digits of either case."""
    return "".join(
        draw(
            st.sampled_from(
                [
                    *([each] if each not in "%&#;" else []),
                    "".join(f"%{byte:02x}" for byte in each.encode()),
                    "".join(f"%{byte:02X}" for byte in each.encode()),
                ]
            )
        )
        for each in text
    )


@given(code=st.text("XYZ+/= %?@:;é", min_size=6).map(lambda text: f"s3cret{text}"), data=st.data())
def test_secrets_are_not_shown_in_other_spellings(code: str, data: st.DataObject) -> None:
    """The error of a library has a URI as the library writes it, which encodes other characters."""
    ours, theirs = (
        data.draw(st.composite(lambda draw: _somehow_encoded(code, draw))()) for _ in "ab"
    )

    assert without_secrets(f"cannot open url={theirs}!", f"https://host/fn?code={ours}") == (
        "cannot open url=***!"
    )


@pytest.mark.parametrize(
    ("uri", "secret"),
    [
        ("https://host/fn?code=plan+7ed%2fs3cret%3d", "plan+7ed/s3cret%3D"),
        ("https://host/fn?code=plan7ed%2fs3cret%2bx%3d%3d", "plan7ed/s3cret%2Bx%3D%3D"),
        ("https://ada:p%40ss%2fw0rd@host/fn", "p%40ss%2Fw0rd"),
        ("https://ada:p%40ss%2fw0rd@host/fn", "p@ss/w0rd"),
    ],
)
def test_secrets_are_not_shown_as_yarl_writes_them(uri: str, secret: str) -> None:
    """It decodes what need not be encoded, and writes hexadecimal digits in upper case."""
    assert without_secrets(f"url={secret}!", uri) == "url=***!"


@pytest.mark.parametrize("login", ["ghp_0815", "ghp_0815:"])
def test_a_token_in_the_place_of_a_user_is_a_secret(login: str) -> None:
    """Some servers take a token so, without a password; a user of HDFS is none."""
    error = "401 for ghp_0815"

    for scheme in ("https", "HTTPS"):
        assert without_secrets(error, f"{scheme}://{login}@host/greeter") == "401 for ***"
    assert without_secrets(error, "https://ghp_0815:password@host/greeter") == error
    assert without_secrets("org.apache.hadoop", "hdfs://hadoop@namenode/") == "org.apache.hadoop"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("/a path/is it?/x=y", "/a path/is it?/x=y"),
        ("hdfs://namenode/checkpoint", "hdfs://namenode/checkpoint"),
        ("s3://bucket/a?SECRET", "s3://bucket/a?***"),
        ("https://host/fn?SECRET&v=1", "https://host/fn?***&v=***"),
        ("https://host/fn?v=1&SECRET", "https://host/fn?v=***&***"),
        ("https://host/fn?v=&w=1&=2", "https://host/fn?v=***&w=***&=***"),
        ("s3://bucket/a?x=1;y=2#z=3", "s3://bucket/a?x=***;y=***"),
        ("http+unix:///run/a.sock/fn?code=KEY", "http+unix:///run/a.sock/fn?code=***"),
        ("https://{function.name}.host/fn?code=KEY", "https://{function.name}.host/fn?code=***"),
        ("", ""),
    ],
)
def test_what_is_no_secret_is_shown(uri: str, shown: str) -> None:
    """So that a reader knows which endpoint, folder or registry is meant."""
    assert shown_uri(uri) == shown


@given(
    user=st.text("ada%+ é", min_size=2),
    password=st.text("XYZ+/= %&#?@:;é", min_size=2),
    code=st.sampled_from(["utf-8", "latin-1"]),
    is_padded=st.booleans(),
)
def test_a_login_is_not_shown_as_a_header_has_it(
    user: str, password: str, code: str, *, is_padded: bool
) -> None:
    """An endpoint may quote the header Authorization, which everybody can decode."""
    uri = f"https://{quote(user, safe='')}:{quote(password, safe='')}@host/fn"
    header = b64encode(f"{user}:{password}".encode(code)).decode()
    header = header if is_padded else header.rstrip("=")

    assert without_secrets(f"401 for Basic {header}!", uri) == "401 for Basic ***!"


@given(value=st.text("abc+/ %é", min_size=1, max_size=5), name=st.sampled_from(["code", "a b"]))
def test_a_short_value_is_not_shown_after_its_name(value: str, name: str) -> None:
    """Elsewhere it may be part of any text."""
    uri = f"https://host/fn?slot=1&{quote(name)}={quote(value, safe='')}"

    for text in (value, quote(value), quote(value, safe="")):
        shown = without_secrets(f"no ?{name}={text}&slot=1, slot=12, barcode={value}!", uri)
        assert shown == f"no ?{name}=***&slot=***, slot=12, barcode={value}!"


def test_a_query_without_a_name_is_a_secret() -> None:
    """An error may quote it; the name of a value is none."""
    uri = "https://host/fn?t0k3n-SECRET&slot-name="

    assert without_secrets("t0k3n-SECRET of slot-name", uri) == "*** of slot-name"


def test_texts_without_a_uri_stay_as_they_are() -> None:
    """There is nothing in them to hide."""
    assert without_secrets("it is closed", "") == "it is closed"
    assert without_secrets("is at none of a", "s3://bucket?scheme=none&x=a") == "is at none of a"
