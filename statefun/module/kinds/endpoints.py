# SPDX-License-Identifier: Apache-2.0
"""Reads endpoints: the kinds ``io.statefun.endpoints.v2/http`` and ``io.statefun.endpoints.v1/http``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import attrs

from statefun.module.model import FUNCTION_NAME, Endpoint, Timeouts, Tls
from statefun.module.urls import is_https, socket_file
from statefun.module.yaml.components import Component
from statefun.module.yaml.nodes import Node, ScalarNode
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import (
    choice,
    duration,
    file_content,
    functions,
    integer,
    member,
    text,
)
from statefun.module.yaml.shapes import Key, Shape, Values, described, expect, schema_of
from statefun.sdk.address import TypeName
from statefun.sdk.failure import FailurePolicy, OnFailure, Retry
from statefun.sdk.limits import RateLimit

_SCHEMES = ("http", "https", "http+unix")
_LONGEST_LABEL = 63
_PLACEHOLDER = re.compile(r"\{[^}]*\}?")


@described(schema_of(text))
def url(node: Node, problems: Problems) -> str:
    """Read the URL of an endpoint, which may contain ``{function.name}``."""
    template = text(node, problems)
    scalar = expect(node, ScalarNode, "a URL", problems)
    quoted = "the URL" if "@" in scalar.source else scalar.quoted  # it may hold a password
    try:
        parts = urlsplit(template.replace(FUNCTION_NAME, "name"))
        place = parts.path if parts.scheme.endswith("+unix") else parts.hostname
        _ = parts.port
    except ValueError:  # such as an unclosed bracket of an IPv6 address
        place, parts = None, urlsplit("")
    if parts.scheme not in _SCHEMES or not place:
        sentence = f"{quoted} is not a URL with one of the schemes {', '.join(_SCHEMES)}"
        raise problems.report(node.location, node.path, sentence)
    if not parts.scheme.endswith("+unix") and not _can_exist(place):
        sentence = (
            f"{quoted} has a host that cannot exist: each part between dots has 1 to 63 characters"
        )
        raise problems.report(node.location, node.path, sentence)
    file = socket_file(template)
    if parts.scheme.endswith("+unix") and (file is None or FUNCTION_NAME in file):
        sentence = (
            f"{quoted} names no socket; the URL's path must begin with a file that ends in .sock"
        )
        raise problems.report(node.location, node.path, sentence)
    for placeholder in _PLACEHOLDER.findall(template):
        if placeholder != FUNCTION_NAME:
            is_safe = placeholder in scalar.source and "@" not in scalar.source
            what = placeholder if is_safe else "a text in braces"
            sentence = f"{what} is not a placeholder; the only placeholder is {FUNCTION_NAME}"
            raise problems.report(node.location, node.path, sentence)
    return template


def _can_exist(host: str) -> bool:
    """Return whether a host is an IPv6 address, or a name whose labels are neither empty nor too long (RFC 1035)."""
    labels = host.removesuffix(".").split(".")
    return ":" in host or all(0 < len(label) <= _LONGEST_LABEL for label in labels)


@described(schema_of(duration))
def _time(node: Node, problems: Problems) -> timedelta:
    time = duration(node, problems)
    if isinstance(node, ScalarNode) and time < timedelta(milliseconds=1):
        sentence = f"{node.quoted} is out of range; the least duration is 1 ms"
        raise problems.report(node.location, node.path, sentence)
    return time


def _timeout(name: str, doc: str, default: str, example: str) -> Key[timedelta]:
    return Key(name, _time, doc, default=default, example=example)


FUNCTIONS = Key(
    "functions",
    functions,
    "the functions behind the endpoint: <namespace>/<name>, or <namespace>/* for all other functions "
    "of a namespace",
    required=True,
    example="com.example.fns/*",
)
URL_TEMPLATE = Key(
    "urlPathTemplate",
    url,
    f"the URL; {FUNCTION_NAME} in it stands for the name of the function",
    required=True,
    example=f"https://functions/{FUNCTION_NAME}",
)
MAX_BATCH = Key(
    "maxNumBatchRequests",
    integer(1),
    "the largest number of messages in a request",
    default=1000,
    example=100,
)
_ATTEMPTS = Key(
    "attempts",
    integer(2),
    "the number of attempts, the first one included",
    required=True,
    example=5,
)
_BACKOFF = Key(
    "backoff",
    _time,
    "the wait before the second attempt; each later wait is twice as long as the one before",
    required=True,
    example="10s",
)
_THEN = Key(
    "then",
    member("then", OnFailure),
    "the policy after the last attempt",
    default="(dead-letter if an egress has a deadLetterTopic, else fail)",
    example="dead-letter",
)
_RETRY = Shape((_ATTEMPTS, _BACKOFF, _THEN))
_WORD = member("failurePolicy", OnFailure)


@described({"title": "policy", "anyOf": [schema_of(_WORD), _RETRY.schema]})
def _policy(node: Node, problems: Problems) -> FailurePolicy:
    """Read a failure policy: a word, or a mapping that describes retries."""
    if isinstance(node, ScalarNode):
        return _WORD(node, problems)
    values = _RETRY.read(node, problems)
    return Retry(values[_ATTEMPTS], values[_BACKOFF], values.get(_THEN))


FAILURE_POLICY = Key(
    "failurePolicy",
    _policy,
    "what happens to a message on which a function fails: fail stops the application, skip leaves "
    "the message out, dead-letter makes it a dead letter, and a mapping tries again first",
    default="(dead-letter if an egress has a deadLetterTopic, else fail)",
    example={"attempts": 5, "backoff": "10s", "then": "dead-letter"},
)
DETACH_AFTER = Key(
    "detachAfter",
    _time,
    "how long a micro-batch waits for a request; a request that takes longer goes on, while the "
    "micro-batch is committed without it",
    default="1s",
    example="200ms",
)
MAX_IN_FLIGHT = Key(
    "maxInFlight",
    integer(1),
    "how many calls of the endpoint a worker process makes at a time",
    default="(any number)",
    example=100,
)
_CALLS = Key(
    "calls",
    integer(1),
    "the largest number of calls in a period",
    required=True,
    example=100,
)
_PER = Key("per", _time, "the length of a period", default="1s", example="1min")
_RESOURCE = Key(
    "resource",
    text,
    "the name of a resource: endpoints and functions with the same resource share one limit",
    example="payments",
)
_RATE = Shape((_CALLS, _PER, _RESOURCE))


@described(_RATE.schema)
def _rate_limit(node: Node, problems: Problems) -> RateLimit:
    """Read how many calls a worker process may begin in a period, such as 100 calls per second."""
    values = _RATE.read(node, problems)
    per = values.get(_PER, timedelta(seconds=1))
    return RateLimit(values[_CALLS], per, values.get(_RESOURCE))


RATE_LIMIT = Key(
    "rateLimit",
    _rate_limit,
    "how many calls of the endpoint a worker process may begin in a period",
    default="(any number)",
    example={"calls": 100, "per": "1s"},
)
_CALL_DOC = "the time limit of a request, with all its attempts"
_CONNECT_DOC = "the time limit of opening a connection"
CALL = _timeout("call", _CALL_DOC, "1min", "10s")
CONNECT = _timeout("connect", _CONNECT_DOC, "10s", "5s")
READ = _timeout("read", "how long to wait for the next bytes of a reply", "10s", "5s")
WRITE = _timeout("write", "the time limit of sending a request", "10s", "5s")
TIMEOUTS = Key(
    "timeouts",
    Shape((CALL, CONNECT, READ, WRITE)).reader,
    "the time limits of the parts of a request",
    default={"call": "1min", "connect": "10s", "read": "10s", "write": "10s"},
    example={"call": "30s"},
)
_CALL_FLAT = _timeout("call", f"{_CALL_DOC}; timeouts.call overrides it", "2min", "10s")
_CONNECT_FLAT = _timeout("connect", f"{_CONNECT_DOC}; timeouts.connect overrides it", "20s", "5s")
_TRANSPORT_TIMEOUTS = Key(
    "timeouts",
    Shape((CALL, CONNECT, READ, WRITE)).reader,
    "the time limits of the parts of a request",
    default="(async: call 2min, connect 20s; okhttp: call 1min, and 10s each)",
    example={"call": "30s"},
)
TYPE = Key(
    "type",
    choice(
        "transport type",
        {f"io.statefun.transports.v1/{name}": name for name in ("async", "okhttp")},
    ),
    "the transport, which decides the defaults of the timeouts and nothing else",
    default="io.statefun.transports.v1/async",
    example="io.statefun.transports.v1/okhttp",
)
POOL_TTL = _timeout("pool_ttl", "how long to keep an idle connection", "15s", "5s")
POOL_SIZE = Key(
    "pool_size",
    integer(1),
    "the largest number of connections of a process",
    default=1024,
    example=64,
)
MAX_BYTES = Key(
    "payload_max_bytes",
    integer(1),
    "the largest size of a request or reply, in bytes",
    default=33_554_432,
    example=1_000_000,
)
TRUSTED = Key(
    "trust_cacerts",
    file_content,
    "the file with the certificate authorities to trust, in PEM",
    default="(the certificate authorities of the machine)",
    example="cacerts.pem",
)
CERTIFICATE = Key(
    "client_cert",
    file_content,
    "the file with the client's certificate, in PEM",
    example="client.pem",
)
PRIVATE_KEY = Key(
    "client_key",
    file_content,
    "the file with the client's private key, in PEM",
    example="client.key",
)
PASSWORD = Key(
    "client_key_password",
    file_content,
    "the file with the password of the private key",
    example="client.password",
)
TRANSPORT = Key(
    "transport",
    Shape(
        (
            TYPE,
            _TRANSPORT_TIMEOUTS,
            _CALL_FLAT,
            _CONNECT_FLAT,
            POOL_TTL,
            POOL_SIZE,
            MAX_BYTES,
            TRUSTED,
            CERTIFICATE,
            PRIVATE_KEY,
            PASSWORD,
        )
    ).reader,
    "how to reach the functions",
    example={"type": "io.statefun.transports.v1/async"},
)

_OKHTTP = Timeouts(timedelta(minutes=1), *(timedelta(seconds=10),) * 3)
_ASYNC = Timeouts(timedelta(minutes=2), timedelta(seconds=20))


@attrs.frozen
class EndpointKind:
    """A kind of endpoint; the kinds differ in the keys for timeouts and transport."""

    shape: Shape

    def read(self, component: Component, problems: Problems) -> Endpoint:
        """Read a component of this kind as an endpoint; report its problems."""
        values = self.shape.read(component.spec, problems)
        transport = values.get(TRANSPORT)
        defaults = _OKHTTP
        others: dict[str, Any] = {}
        sections: list[tuple[Values, tuple[Key[timedelta], ...]]] = []
        if TIMEOUTS in self.shape.keys and (timeouts := values.get(TIMEOUTS)):
            sections.append((timeouts, (CALL, CONNECT, READ, WRITE)))
        if TRANSPORT in self.shape.keys:
            defaults = _ASYNC
        if transport is not None:
            if transport.get(TYPE) == "okhttp":
                defaults = _OKHTTP
            sections.append((transport, (_CALL_FLAT, _CONNECT_FLAT)))
            if nested := transport.get(_TRANSPORT_TIMEOUTS):
                sections.append((nested, (CALL, CONNECT, READ, WRITE)))
            others = _present(
                transport, {"pool_ttl": POOL_TTL, "pool_size": POOL_SIZE, "max_bytes": MAX_BYTES}
            )
            others["tls"] = _tls(transport, component, values.get(URL_TEMPLATE, ""), problems)
        times = {
            key.name: section[key] for section, keys in sections for key in keys if key in section
        }
        others |= _present(
            values,
            {
                "max_batch": MAX_BATCH,
                "failure_policy": FAILURE_POLICY,
                "detach_after": DETACH_AFTER,
                "max_in_flight": MAX_IN_FLIGHT,
                "rate_limit": RATE_LIMIT,
            },
        )
        return Endpoint(
            functions=TypeName.parse(values[FUNCTIONS]),
            url_template=values[URL_TEMPLATE],
            location=component.location,
            timeouts=attrs.evolve(defaults, **times),
            **others,
        )


def _present(values: Values, keys: Mapping[str, Key[Any]]) -> dict[str, Any]:
    return {name: values[key] for name, key in keys.items() if key in values}


def _tls(transport: Values, component: Component, url_template: str, problems: Problems) -> Tls:
    keys = (TRUSTED, CERTIFICATE, PRIVATE_KEY, PASSWORD)
    written_keys = [key.name for key in keys if transport.attempted(key)]
    spec = component.spec
    if written_keys and url_template and not is_https(url_template):
        problems.report(spec.location, spec.path, f"{written_keys[0]!r} is only used with https")
    if transport.attempted(CERTIFICATE) != transport.attempted(PRIVATE_KEY):
        text = f"{CERTIFICATE.name!r} and {PRIVATE_KEY.name!r} are only used together"
        problems.report(spec.location, spec.path, text)
    password = transport.get(PASSWORD)
    return Tls(
        transport.get(TRUSTED),
        transport.get(CERTIFICATE),
        transport.get(PRIVATE_KEY),
        None if password is None else password.decode(errors="surrogateescape").rstrip("\r\n"),
    )


_LIMITS = (DETACH_AFTER, MAX_IN_FLIGHT, RATE_LIMIT)
_ENDPOINT = (FUNCTIONS, URL_TEMPLATE, MAX_BATCH, FAILURE_POLICY, *_LIMITS)
ENDPOINTS: Mapping[str, EndpointKind] = MappingProxyType(
    {
        "io.statefun.endpoints.v1/http": EndpointKind(Shape((*_ENDPOINT, TIMEOUTS))),
        "io.statefun.endpoints.v2/http": EndpointKind(Shape((*_ENDPOINT, TRANSPORT))),
    }
)
