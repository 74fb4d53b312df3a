# SPDX-License-Identifier: Apache-2.0
"""What is made of the answers of a schema registry, or of whatever answers in its place."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from statefun import FunctionError, Message, TypedValue, ValueDecodeError
from statefun.formats import schema_registry
from statefun.formats.recent_failures import RecentFailures
from statefun.formats.schema_registry import make_schema_registry_type
from statefun.sdk.types import SimpleType

TEXT = '"string"'
KNOWN = 200, json.dumps({"schema": TEXT}).encode()
UNKNOWN = 404, b'{"error_code": 40403, "message": "Schema not found"}'
PROPERTIES = {"max.retries": "0"}


class Registry:
    """A server that answers whatever it was given; nothing at all, if that is None."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] | None = UNKNOWN
        self.of_schema: dict[int, tuple[int, bytes]] = {}
        """The answers for schemas that have one of their own, by their numbers."""
        self.asked = 0
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked += 1
                number = self.path.partition("?")[0].rpartition("/")[2]
                answer = registry.answer
                if number.isdecimal():
                    answer = registry.of_schema.get(int(number), answer)
                if answer is None:
                    return
                status, body = answer
                self.send_response(status)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def type(self) -> SimpleType[object]:
        """Return a type whose schemas are there."""
        return make_schema_registry_type(
            f"test.formats/of-{self.server.server_port}",
            self.url,
            schema=TEXT,
            subject="subject",
            properties=PROPERTIES,
        )

    def read(self, number: int = 1) -> object:
        """Decode a value with a schema of that number."""
        type_ = self.type()
        value = TypedValue(type_.typename, struct.pack(">bI", 0, number) + b"\x06Ada")
        return Message("a/b", "c", value).as_type(type_)


def test_a_value_without_a_whole_header_is_refused(registry: Registry) -> None:
    """The error counts its bytes."""
    value = TypedValue(registry.type().typename, b"\0\0")

    with pytest.raises(
        ValueDecodeError, match="must begin with a zero byte and a schema id, but has only 2 bytes"
    ):
        Message("a/b", "c", value).as_type(registry.type())


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Run a server whose failures are remembered until :func:`forget`, however long a test takes."""
    monkeypatch.setattr(schema_registry, "_UNKNOWN", timedelta(days=1))
    monkeypatch.setattr(schema_registry, "_FAILED", timedelta(days=1))
    forget(monkeypatch)
    made = Registry()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all failures, as the time does."""
    monkeypatch.setattr(schema_registry, "_failures", RecentFailures())


def test_an_unknown_schema_is_requested_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a short time it is requested again; once it is registered, it is fetched once."""
    for _ in range(20):
        with pytest.raises(ValueDecodeError, match="the registry has no schema with id 1"):
            registry.read()
    with pytest.raises(ValueDecodeError, match="the registry has no schema with id 2"):
        registry.read(2)
    assert registry.asked == 2

    registry.answer = KNOWN
    forget(monkeypatch)
    assert [registry.read() for _ in range(20)] == ["Ada"] * 20
    assert registry.asked == 3


@pytest.mark.parametrize(
    "answer",
    [
        (404, b'{"message": "no Route matched with those values"}'),
        (404, b'{"error_code": "40403", "message": "no"}'),
        (404, b"[]"),
        (500, b'{"error_code": 50001, "message": "no"}'),
        (200, b"<html>Please log in</html>"),
        (200, b"{}"),
        (200, b""),
        (200, b"[]"),
        (200, b"7"),
        (200, b'{"schema": 7}'),
        (200, b'{"schema": "<html>"}'),
        (200, b'{"schema": "\\"Nowhere\\""}'),
        (200, b'{"schema": "\\"string\\"", "schemaType": 7}'),
        (200, b'{"schema": "\\"string\\"", "references": 7}'),
        (302, b""),
    ],
)
def test_invalid_answers_are_failures_of_the_registry(
    registry: Registry, answer: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one request, and costs no other schema one; later, the registry is asked again."""
    registry.answer = KNOWN
    registry.of_schema[2] = answer
    for _ in range(20):
        assert registry.read(1) == "Ada"
        with pytest.raises(
            FunctionError, match=r"the schema registry at \S+ gives no valid answer"
        ):
            registry.read(2)
    assert registry.asked == 2
    del registry.of_schema[2]
    forget(monkeypatch)

    assert registry.read(2) == "Ada"


def test_a_registry_without_an_answer_is_asked_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests for further schemas would take as long; cached schemas are there."""
    registry.of_schema[1] = KNOWN
    registry.answer = None
    assert registry.read(1) == "Ada"
    for number in range(2, 22):
        with pytest.raises(FunctionError, match=r"the schema registry at \S+ does not answer"):
            registry.read(number)
    with pytest.raises(FunctionError, match=r"the schema registry at \S+ does not answer"):
        registry.type().serializer().serialize("Ada")
    assert registry.read(1) == "Ada"
    assert registry.asked == 2
    registry.answer = KNOWN
    forget(monkeypatch)

    assert registry.read(2) == "Ada"


def test_an_error_of_a_registry_is_short(registry: Registry) -> None:
    """A proxy may answer with a page, and each schema has its own error."""
    registry.answer = 404, b"x" * 100_000

    with pytest.raises(FunctionError) as failed:
        registry.read()

    assert len(str(failed.value)) < 1000


def test_the_client_of_a_registry_caches_nothing(registry: Registry) -> None:
    """Its cache has no limit."""
    registry.answer = KNOWN
    for number in range(20):
        registry.read(number)

    client: Any = schema_registry._client(registry.url, tuple(PROPERTIES.items()))  # noqa: SLF001 - its cache
    assert not client._cache.schema_id_index  # noqa: SLF001 - there is no other way to see it
    assert registry.asked == 20


@pytest.mark.parametrize(
    "answer",
    [
        *[(200, body) for body in (b"{}", b'{"id": "7"}', b'{"id": -1}', b"<html>", b"", b"[]")],
        (409, b'{"error_code": 409, "message": "incompatible"}'),
        (404, b'{"error_code": 40401, "message": "no subject"}'),
        (422, b'{"error_code": 42201, "message": "invalid"}'),
    ],
)
def test_a_schema_is_registered_when_it_has_a_number(
    registry: Registry, answer: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other answer fails the writing of values, with one request; later, the registry is asked again."""
    type_ = registry.type()
    registry.answer = answer
    for _ in range(20):
        with pytest.raises(
            FunctionError, match=r"the schema registry at \S+ does not register the schema"
        ):
            type_.serializer().serialize("Ada")
    assert registry.asked == 1
    registry.answer = (200, b'{"id": 7}')
    forget(monkeypatch)

    assert type_.serializer().serialize("Ada") == b"\0\0\0\0\x07\x06Ada"
