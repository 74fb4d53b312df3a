# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from statefun import RateLimit
from statefun.module.loader import load_module_files, parse_module
from statefun.module.model import Timeouts, Tls
from statefun.sdk.address import TypeName
from statefun.sdk.errors import ModuleError
from statefun.sdk.failure import OnFailure, Retry

SECOND = timedelta(seconds=1)
ENDPOINT = """\
kind: io.statefun.endpoints.v2/http
spec:
  functions: a/*
  urlPathTemplate: http://a/
"""
SECURE = ENDPOINT.replace("http://", "https://")


def test_reads_an_endpoint_of_version_1() -> None:
    """Version 1 has the timeouts next to the URL."""
    (endpoint,) = parse_module(
        """
kind: io.statefun.endpoints.v1/http
spec:
  functions: example/*
  urlPathTemplate: http://bar.foo.com:8080/functions/{function.name}
  maxNumBatchRequests: 10000
  timeouts:
    call: 1minute
    connect: 30seconds
    read: 20seconds
    write: 5seconds
"""
    ).endpoints

    assert endpoint.functions == TypeName("example", "*")
    assert endpoint.url_template == "http://bar.foo.com:8080/functions/{function.name}"
    assert endpoint.max_batch == 10_000
    assert endpoint.timeouts == Timeouts(60 * SECOND, 30 * SECOND, 20 * SECOND, 5 * SECOND)
    assert endpoint.failure_policy is None


def test_reads_limits_of_calls() -> None:
    """They are those of functions that are registered in a program."""
    (endpoint,) = parse_module(
        ENDPOINT
        + """
  detachAfter: 200ms
  maxInFlight: 7
  rateLimit: {calls: 30, per: 1min, resource: payments}
"""
    ).endpoints

    assert endpoint.detach_after == timedelta(milliseconds=200)
    assert endpoint.max_in_flight == 7
    assert endpoint.rate_limit == RateLimit(30, timedelta(minutes=1), "payments")


def test_reads_the_okhttp_transport() -> None:
    """The okhttp transport has its own default timeouts, those of Stateful Functions."""
    (endpoint,) = parse_module(
        ENDPOINT
        + """
  transport:
    type: io.statefun.transports.v1/okhttp
    timeouts:
      call: 2m
"""
    ).endpoints

    assert endpoint.timeouts == Timeouts(120 * SECOND, *(10 * SECOND,) * 3)
    assert endpoint.max_batch == 1000


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_reads_the_async_transport(tmp_path: Path, scheme: str) -> None:
    """Certificates are read when the application starts, relative to the module file."""
    names = {"trusted": "cas.pem", "certificate": "c.pem", "key": "c.key", "password": "pw"}
    for name, beside in names.items():
        (tmp_path / beside).write_text(f"{name}\n")
    file = tmp_path / "module.yaml"
    file.write_text(
        SECURE.replace("https", scheme)
        + """
  transport:
    type: io.statefun.transports.v1/async
    call: 1m
    connect: 7s
    pool_ttl: 3s
    pool_size: 12
    payload_max_bytes: 1000
    trust_cacerts: cas.pem
    client_cert: c.pem
    client_key: c.key
    client_key_password: pw
"""
    )
    (endpoint,) = load_module_files([file]).endpoints

    assert endpoint.timeouts == Timeouts(60 * SECOND, 7 * SECOND)
    assert (endpoint.pool_ttl, endpoint.pool_size, endpoint.max_bytes) == (3 * SECOND, 12, 1000)
    assert endpoint.tls == Tls(b"trusted\n", b"certificate\n", b"key\n", "password")
    assert "certificate" not in repr(endpoint)


def test_the_default_transport_is_async() -> None:
    """Optional keys of an endpoint have the defaults of Stateful Functions."""
    (endpoint,) = parse_module(ENDPOINT).endpoints

    assert endpoint.timeouts == Timeouts(120 * SECOND, 20 * SECOND)
    assert (endpoint.pool_size, endpoint.max_bytes) == (1024, 33_554_432)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("dead-letter", OnFailure.DEAD_LETTER),
        ("{attempts: 3, backoff: 1s}", Retry(3, SECOND)),
        ("{attempts: 5, backoff: 2s, then: skip}", Retry(5, 2 * SECOND, OnFailure.SKIP)),
    ],
)
def test_reads_failure_policies(text: str, policy: OnFailure | Retry) -> None:
    """A policy is a word, or a mapping with attempts and backoff."""
    (endpoint,) = parse_module(f"{ENDPOINT}  failurePolicy: {text}\n").endpoints

    assert endpoint.failure_policy == policy


def test_a_login_in_a_url_is_not_shown() -> None:
    """The repr of an endpoint has no password."""
    (endpoint,) = parse_module(ENDPOINT.replace("//a/", "//ada:secret@a/")).endpoints

    assert "secret" in endpoint.url_template
    assert "secret" not in repr(endpoint)


def test_braces_in_a_login_are_not_shown() -> None:
    """Braces may be a part of a password, from a variable or in the URL of the file."""
    for url in ("http://ada:${SECRET}@a/", "http://ada:{hunter2}@a/"):
        with pytest.raises(ModuleError) as raised:
            parse_module(
                ENDPOINT.replace("http://a/", repr(url)), environment={"SECRET": "{hunter2}"}
            )
        assert "hunter2" not in str(raised.value)
        assert "a text in braces is not a placeholder" in str(raised.value)


@pytest.mark.parametrize(
    "host",
    [
        "functions.svc.",
        "[::1]:8000",
        "127.0.0.1",
        f"{'a' * 63}.example",
        "{function.name}.svc",
        "a_b",
    ],
)
def test_hosts_that_may_exist_are_hosts(host: str) -> None:
    """Also absolute names, addresses, and names that differ by function."""
    (endpoint,) = parse_module(ENDPOINT.replace("http://a/", f'"http://{host}/"')).endpoints

    assert endpoint.url_template == f"http://{host}/"


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_reports_missing_keys(findings: Callable[..., list[str]], version: str) -> None:
    """An endpoint needs functions and a URL."""
    found = findings(f"kind: io.statefun.endpoints.{version}/http\nspec: {{}}\n")

    assert [problem.split(":")[4] for problem in found] == [
        " missing required key 'functions'",
        " missing required key 'urlPathTemplate'",
    ]


_NO_URL = "is not a URL with one of the schemes http, https, http+unix"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            ENDPOINT.replace("a/*", "a/b*"),
            (
                "3:14: spec.functions: 'a/b*' is invalid syntax for target functions. "
                "Only <namespace>/<name> or <namespace>/* are supported."
            ),
        ),
        (
            ENDPOINT.replace("http://a/", "ftp://a/"),
            f"4:20: spec.urlPathTemplate: 'ftp://a/' {_NO_URL}",
        ),
        (
            ENDPOINT.replace("http://a/", "http://["),
            f"4:20: spec.urlPathTemplate: 'http://[' {_NO_URL}",
        ),
        (
            ENDPOINT.replace("http://a/", "http://a:b/"),
            f"4:20: spec.urlPathTemplate: 'http://a:b/' {_NO_URL}",
        ),
        (
            ENDPOINT.replace("http://a/", "http:///a"),
            f"4:20: spec.urlPathTemplate: 'http:///a' {_NO_URL}",
        ),
        *(
            (
                ENDPOINT.replace("http://a/", f"http://{host}/"),
                (
                    f"4:20: spec.urlPathTemplate: 'http://{host}/' has a host that cannot exist: each part "
                    "between dots has 1 to 63 characters"
                ),
            )
            for host in ("functions..svc:8000", ".svc", f"{'a' * 64}.example")
        ),
        (
            ENDPOINT.replace("http://a/", "http+unix:///a/socket"),
            (
                "4:20: spec.urlPathTemplate: 'http+unix:///a/socket' names no socket; the URL's "
                "path must begin with a file that ends in .sock"
            ),
        ),
        (
            ENDPOINT.replace("http://a/", '"http://a/{function.id}"'),
            (
                "4:20: spec.urlPathTemplate: {function.id} is not a placeholder; "
                "the only placeholder is {function.name}"
            ),
        ),
        (
            ENDPOINT + "  maxNumBatchRequests: 0\n",
            "5:24: spec.maxNumBatchRequests: '0' is not a whole number from 1 to 2147483647",
        ),
        (
            ENDPOINT + "  timeouts: {call: 1s}\n",
            (
                "5:3: spec.timeouts: unknown key 'timeouts'; allowed keys: detachAfter, failurePolicy, "
                "functions, maxInFlight, maxNumBatchRequests, rateLimit, transport, urlPathTemplate"
            ),
        ),
        (
            ENDPOINT + "  transport: {type: io.statefun.transports.v1/http2}\n",
            (
                "5:21: spec.transport.type: Invalid transport type: io.statefun.transports.v1/http2; "
                "valid values are [io.statefun.transports.v1/async, io.statefun.transports.v1/okhttp]"
            ),
        ),
        (
            ENDPOINT + "  transport: {timeouts: {call: soon}}\n",
            (
                "5:32: spec.transport.timeouts.call: 'soon' is not a duration; write a whole number "
                "and a unit (d, h, min, s, ms, us or ns), such as '15min'; "
                "without a unit it is milliseconds"
            ),
        ),
        (
            ENDPOINT + "  transport: {call: 0}\n",
            ("5:21: spec.transport.call: '0' is out of range; the least duration is 1 ms"),
        ),
        (
            SECURE + "  transport: {trust_cacerts: missing.pem}\n",
            "5:30: spec.transport.trust_cacerts: cannot be read: No such file or directory",
        ),
        (
            SECURE + "  transport: {trust_cacerts: ~no-such-user/ca.pem}\n",
            "5:30: spec.transport.trust_cacerts: is not the path of a file",
        ),
        (
            SECURE + '  transport: {trust_cacerts: "a\\0b"}\n',
            "5:30: spec.transport.trust_cacerts: is not the path of a file",
        ),
        (
            ENDPOINT + "  transport: {trust_cacerts: /dev/null}\n",
            "3:3: spec: 'trust_cacerts' is only used with https",
        ),
        (
            SECURE + "  transport: {client_cert: /dev/null}\n",
            "3:3: spec: 'client_cert' and 'client_key' are only used together",
        ),
        (
            ENDPOINT + "  failurePolicy: ignore\n",
            (
                "5:18: spec.failurePolicy: Invalid failurePolicy: ignore; "
                "valid values are [fail, skip, dead-letter]"
            ),
        ),
        (
            ENDPOINT + "  failurePolicy: {attempts: 1, backoff: 1s}\n",
            ("5:29: spec.failurePolicy.attempts: '1' is not a whole number from 2 to 2147483647"),
        ),
        (
            f"{ENDPOINT}---\n{ENDPOINT}",
            (
                "8:14: spec.functions: duplicate endpoint functions 'a/*'; it is first declared at "
                "m.yaml:3:14"
            ),
        ),
    ],
)
def test_reports_bad_values(findings: Callable[..., list[str]], text: str, problem: str) -> None:
    """Each mistake is one problem that says what is valid."""
    found = findings(text)

    assert found == [f"m.yaml:{problem}"]
