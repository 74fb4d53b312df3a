# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import attrs
import pytest
from local_servers import free_port

from statefun import Context, PlatformError, StatefulFunctions, StringType
from statefun.module.loader import parse_module
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.playground_store import PlaygroundStore
from statefun.runtime.playground_server import Playground


def functions() -> StatefulFunctions:
    """Return functions that are never called."""
    registry = StatefulFunctions()
    registry.register("a.fns/any", lambda ctx, message: None)

    @registry.bind("a.fns/texts")
    def texts(ctx: Context, message: str) -> None:
        pass

    return registry


@attrs.frozen
class Played:
    """A playground, and what it has accepted."""

    port: int
    egress_port: int
    store: PlaygroundStore

    def ask(
        self, method: str, path: str, body: bytes | None = None, port: int = 0, **headers: Any
    ) -> tuple[int, str]:
        """Send a request; return status and text of the answer."""
        with closing(HTTPConnection("127.0.0.1", port or self.port, timeout=10)) as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            client.request(method, path, body, named)
            answer = client.getresponse()
            return answer.status, answer.read().decode()

    def posted(self) -> list[tuple[bytes, str, bytes]]:
        """Return what was accepted."""
        found = self.store.posted(0, self.store.readable(0))
        return [(target, typename, value) for _, target, typename, value in found]


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    """Serve an ingress and an egress."""
    port, egress_port = free_port(), free_port()
    module = parse_module(
        f"""
kind: io.statefun.playground.v1/ingress
spec: {{port: {port}}}
---
kind: io.statefun.playground.v1/egress
spec: {{port: {egress_port}, topics: [greetings, more]}}
"""
    )
    with (
        closing(PlaygroundStore(Folder.at(tmp_path))) as store,
        Playground(module, functions(), store),
    ):
        yield Played(port, egress_port, store)


def test_a_message_is_accepted_as_it_is(played: Played) -> None:
    """Its content type names the value's type; the path may be escaped."""
    vendor: dict[str, Any] = {"Content_Type": "application/vnd.com.example/User; charset=utf-8"}
    assert played.ask("PUT", "/a.fns/any/Ada%20L%2F1", b"{}", **vendor) == (200, "")
    assert played.posted() == [(b"Ada L/1\0a.fns/any", "com.example/User", b"{}")]


@pytest.mark.parametrize(
    "headers", [{}, {"Content_Type": "application/x-www-form-urlencoded"}], ids=["none", "curl"]
)
def test_text_without_a_type_is_a_string(played: Played, headers: dict[str, Any]) -> None:
    """As ``curl -X PUT -d`` sends it."""
    assert played.ask("PUT", "/a.fns/texts/Ada", "Grüße".encode(), **headers)[0] == 200
    ((_, typename, value),) = played.posted()
    assert typename == "io.statefun.types/string"
    assert StringType.serializer().deserialize(value) == "Grüße"


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        (
            "PUT",
            "/a.fns/text/Ada",
            404,
            "no function a.fns/text is registered; did you mean a.fns/texts?",
        ),
        (
            "PUT",
            "/a.fns/any",
            404,
            "a message goes to /<namespace>/<type>/<id>, which /a.fns/any is not",
        ),
        ("PUT", "/a.fns/any/", 404, "a message goes to /<namespace>/<type>/<id>"),
        ("PUT", "/statefun.timers/bucket/1", 404, "a message goes to /<namespace>/<type>/<id>"),
        ("POST", "/a.fns/any/Ada", 405, "PUT /<namespace>/<type>/<id> sends a message"),
        ("GET", "/greetings", 405, "PUT /<namespace>/<type>/<id> sends a message"),
    ],
)
def test_requests_that_mean_nothing_are_refused(
    played: Played, method: str, path: str, status: int, text: str
) -> None:
    """The answer says what to do."""
    found = played.ask(method, path, b"x")
    assert found[0] == status
    assert found[1].startswith(text)
    assert played.posted() == []


def test_values_that_cannot_be_are_refused(played: Played) -> None:
    """Each with its reason; nothing of them is kept."""
    status, text = played.ask("PUT", "/a.fns/any/Ada", b"\xff")
    assert (status, "Content-Type: application/vnd.<typename>" in text) == (415, True)
    status, text = played.ask("PUT", "/a.fns/any/Ada", b"x", Content_Type="application/vnd.no")
    assert status == 415
    vendor = "application/vnd.com.example/User"
    status, text = played.ask("PUT", "/a.fns/texts/Ada", b"x", Content_Type=vendor)
    assert (status, text) == (415, "no handler of a.fns/texts takes com.example/User\n")
    status, text = played.ask("PUT", "/a.fns/any/Ada", bytes(1_000_001), Content_Type=vendor)
    assert (status, text) == (413, "a message has at most 1,000,000 bytes\n")
    assert played.posted() == []


def test_a_message_needs_a_length(played: Played) -> None:
    """A connection that ends in the middle of a message has sent none."""
    with socket.create_connection(("127.0.0.1", played.port)) as client:
        client.sendall(b"PUT /a.fns/any/Ada HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 411")
    with socket.create_connection(("127.0.0.1", played.port)) as client:
        client.sendall(
            b"PUT /a.fns/any/Ada HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf"
        )
    assert played.ask("PUT", "/a.fns/any/Ada", b"x")[0] == 200
    assert len(played.posted()) == 1


def test_records_are_taken(played: Played) -> None:
    """The oldest first; a wait has an end."""
    played.store.publish("a/out/0", None, "{}", [("greetings", b"Hello"), ("greetings", b"{}")])
    port = played.egress_port
    assert played.ask("GET", "/greetings", port=port) == (200, "Hello")
    assert played.ask("GET", "/greetings?wait=0", port=port) == (200, "{}")
    assert played.ask("GET", "/greetings?wait=0", port=port) == (204, "")
    status, text = played.ask("GET", "/greeting", port=port)
    assert (status, text) == (404, "there is no topic 'greeting'; there are greetings, more\n")
    for wait in ("long", "9" * 5000):
        assert played.ask("GET", f"/greetings?wait={wait}", port=port)[0] == 400
    assert played.ask("PUT", "/a.fns/any/Ada", b"x", port=port)[0] == 405


def test_pages_of_others_cannot_use_it(played: Played) -> None:
    """A browser on this machine could otherwise be made to take records."""
    played.store.publish("a/out/0", None, "{}", [("greetings", b"Hello")])
    port = played.egress_port
    assert played.ask("GET", "/greetings", port=port, Sec_Fetch_Site="cross-site")[0] == 403
    assert played.ask("GET", "/greetings", port=port) == (200, "Hello")


def test_the_body_of_a_refused_request_is_no_request(played: Played) -> None:
    """A page of somebody else could otherwise send one within it."""
    hidden = b"PUT /a.fns/any/Ada HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
    for method in (b"POST", b"GET", b"PUT"):
        with socket.create_connection(("127.0.0.1", played.port)) as client:
            client.sendall(
                method
                + b" / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n"
                + b"Content-Length: %d\r\n\r\n%b" % (len(hidden), hidden)
            )
            answer = b""
            with suppress(ConnectionResetError):
                while part := client.recv(1000):
                    answer += part
        assert answer.count(b"HTTP/1.1") <= 1
    assert played.posted() == []


def test_names_that_others_make_point_here_are_refused(played: Played) -> None:
    """A page can do that with its own name, and then it is of the same origin."""
    strangers: list[dict[str, Any]]
    strangers = [{"Host": "attacker.example"}, {"Origin": "http://attacker.example"}]
    for headers in strangers:
        assert played.ask("PUT", "/a.fns/any/Ada", b"x", **headers)[0] == 403
    here: dict[str, Any] = {"Origin": "http://localhost:3000"}
    assert played.ask("PUT", "/a.fns/any/Ada", b"x", **here)[0] == 200
    assert len(played.posted()) == 1


def test_a_client_that_has_gone_takes_nothing(played: Played) -> None:
    """The record is for the next one."""
    with socket.create_connection(("127.0.0.1", played.egress_port)) as client:
        client.sendall(b"GET /greetings HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)
    played.store.publish("a/out/0", None, "{}", [("greetings", b"Hello")])
    assert played.ask("GET", "/greetings", port=played.egress_port) == (200, "Hello")


def test_an_application_that_has_stopped_accepts_nothing(played: Played) -> None:
    """A connection that is still open is told so, and the request is no error of the application's."""
    with closing(HTTPConnection("127.0.0.1", played.port, timeout=10)) as client:
        answers = []
        for _ in range(2):
            client.request("PUT", "/a.fns/any/Ada", b"x")
            answer = client.getresponse()
            answers.append((answer.status, answer.read()))
            played.store.close()

    assert answers == [(200, b""), (503, b"the application has stopped\n")]


def test_a_port_that_is_taken_is_an_error(played: Played, tmp_path: Path) -> None:
    """It says which."""
    module = parse_module(f"kind: io.statefun.playground.v1/ingress\nspec: {{port: {played.port}}}")
    with (
        pytest.raises(PlatformError, match=f"cannot listen at 127.0.0.1, port {played.port}: "),
        Playground(module, functions(), played.store),
    ):
        pass


def test_an_ingress_and_an_egress_may_share_a_port(played: Played) -> None:
    """The methods differ."""
    port = free_port()
    module = parse_module(
        f"""
kind: io.statefun.playground.v1/ingress
spec: {{port: {port}}}
---
kind: io.statefun.playground.v1/egress
spec: {{port: {port}, topics: [a]}}
"""
    )
    played.store.publish("a/out/0", None, "{}", [("a", b"x")])
    with Playground(module, functions(), played.store):
        assert played.ask("PUT", "/a.fns/any/Ada", b"x", port=port)[0] == 200
        assert played.ask("GET", "/a", port=port) == (200, "x")
        status, text = played.ask("DELETE", "/a", port=port)
        assert (status, text.count(" and ")) == (405, 1)
