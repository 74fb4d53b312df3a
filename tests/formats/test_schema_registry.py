# SPDX-License-Identifier: Apache-2.0
"""What is made of the answers of a schema registry, or of whatever answers in its place."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from statefun import FunctionError, Message, TypedValue, ValueDecodeError
from statefun.formats import unknown_schemas
from statefun.formats.schema_registry import make_schema_registry_type
from statefun.formats.unknown_schemas import UnknownSchemas
from statefun.sdk.types import SimpleType

TEXT = '"string"'
KNOWN = 200, json.dumps({"schema": TEXT}).encode()
UNKNOWN = 404, b'{"error_code": 40403, "message": "Schema not found"}'
PROPERTIES = {"max.retries": "0"}


class Registry:
    """A server that answers whatever it was given."""

    def __init__(self) -> None:
        self.answer = UNKNOWN
        self.asked = 0
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked += 1
                status, body = registry.answer
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
def registry() -> Iterator[Registry]:
    """Run a server."""
    made = Registry()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


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
    monkeypatch.setattr(unknown_schemas, "_REMEMBERED", timedelta(0))
    assert [registry.read() for _ in range(20)] == ["Ada"] * 20
    assert registry.asked == 3


@pytest.mark.parametrize(
    "answer",
    [
        (404, b'{"message": "no Route matched with those values"}'),
        (404, b'{"error_code": "40403", "message": "no"}'),
        (404, b"[]"),
        (200, b"<html>Please log in</html>"),
        (200, b"{}"),
        (200, b""),
        (200, b"[]"),
        (200, b"7"),
        (200, b'{"schema": 7}'),
        (200, b'{"schema": "<html>"}'),
        (200, b'{"schema": "\\"string\\"", "schemaType": 7}'),
        (200, b'{"schema": "\\"string\\"", "references": 7}'),
        (302, b""),
    ],
)
def test_invalid_answers_are_failures_of_the_registry(
    registry: Registry, answer: tuple[int, bytes]
) -> None:
    """The answer is not cached: the next value is read as soon as the registry has the schema."""
    registry.answer = answer
    for _ in range(2):
        with pytest.raises(FunctionError, match="the schema registry"):
            registry.read()
    registry.answer = KNOWN

    assert registry.read() == "Ada"


@pytest.mark.parametrize("body", [b"{}", b'{"id": "7"}', b'{"id": -1}', b"<html>", b"", b"[]"])
def test_a_schema_is_registered_when_it_has_a_number(registry: Registry, body: bytes) -> None:
    """Any other answer fails the writing of the value, and is not cached."""
    type_ = registry.type()
    registry.answer = (200, body)
    with pytest.raises(
        FunctionError, match=r"the schema registry at \S+ does not register the schema"
    ):
        type_.serializer().serialize("Ada")
    registry.answer = (200, b'{"id": 7}')

    assert type_.serializer().serialize("Ada") == b"\0\0\0\0\x07\x06Ada"


def test_unknown_schemas_take_little_memory() -> None:
    """Malformed values can have any schema id."""
    unknown = UnknownSchemas()
    for number in range(30_000):
        unknown.add(number)

    assert unknown.has(29_999)
    assert len(unknown._since) <= 10_000  # noqa: SLF001 - there is no other way to see it
