# SPDX-License-Identifier: Apache-2.0
"""What the servers of the driver take for a request, and what they refuse."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus

import attrs
import pytest
from patience import SECONDS

from statefun.runtime.http_server import RequestHandler, Server, answering

HOST = "Host: localhost"
ORIGIN = "Origin: http://attacker.example"
HIDDEN = "GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"


@attrs.frozen
class Served:
    """A server, and the requests that it has served."""

    port: int
    requests: list[tuple[str, str, bytes]]
    """Method, path and content of each request."""

    def statuses(self, sent: str) -> list[int]:
        """Send text, and nothing after it; return the status of each answer."""
        found = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as client:
            client.sendall(sent.encode("latin-1"))
            client.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                while received := client.recv(65536):
                    found += received
        return [int(line[9:12]) for line in found.split(b"\r\n") if line.startswith(b"HTTP/")]


def request(method: str, *headers: str, content: str = "") -> str:
    """Return the text of a request."""
    return "\r\n".join([f"{method} / HTTP/1.1", *headers, "", content])


@pytest.fixture
def server() -> Iterator[Served]:
    """Serve requests with and without content, for this machine alone."""
    requests: list[tuple[str, str, bytes]] = []

    class Handler(RequestHandler):
        @answering
        def serve(self) -> None:
            content = self.body() if self.command == "PUT" else b""
            requests.append((self.command, self.path, content))
            self.answer(HTTPStatus.OK)

        do_PUT = do_GET = serve  # noqa: N815 - the server's

    with Server(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Served(serving.server_port, requests)
        finally:
            serving.shutdown()
            thread.join()


@pytest.mark.parametrize("method", ["PUT", "GET"])
@pytest.mark.parametrize(
    "header",
    ["Content-Length : {}", "Content-Length\t: {}", "X:\r\n Content-Length: {}", ": {}"],
    ids=["blank", "tabulator", "folded", "nameless"],
)
def test_the_content_of_a_request_is_never_a_request(
    server: Served, method: str, header: str
) -> None:
    """Other parsers take these lines for the length of the content, or for none: nothing is served."""
    named = header.format(len(HIDDEN))

    assert server.statuses(request(method, HOST, named, content=HIDDEN)) == [400]
    assert server.requests == []


def test_chunks_are_no_requests(server: Served) -> None:
    """However their header is written."""
    chunks = f"{len(HIDDEN):x}\r\n{HIDDEN}\r\n0\r\n\r\n"

    for header, status in (
        ("Transfer-Encoding: chunked", 200),
        ("Transfer-Encoding : chunked", 400),
    ):
        assert server.statuses(request("GET", HOST, header, content=chunks)) == [status]
    assert [path for _, path, _ in server.requests] == ["/"]


def test_a_request_without_length_is_the_last_of_its_connection(server: Served) -> None:
    """What follows may be its content."""
    assert server.statuses(request("PUT", HOST, content=HIDDEN)) == [411]
    assert server.requests == []


@pytest.mark.parametrize(
    "line",
    ["no header", "no\rheader", "X: a\r\rY: b", "X: a\0b", "From me", " folded: a"],
    ids=["no colon", "no colon, return", "hidden end", "zero", "envelope", "folded"],
)
def test_no_line_hides_the_headers_after_it(server: Served, line: str) -> None:
    """Python's parser would drop them, and with them the origin of a page's request."""
    for headers in ((HOST, line, ORIGIN), (line, HOST, ORIGIN), (HOST, ORIGIN, line)):
        sent = request("PUT", "Content-Length: 2", *headers, content="hi")
        assert server.statuses(sent) == [400]
    assert server.requests == []


@pytest.mark.parametrize(
    "header",
    [
        HOST,
        "Content-Length: 2",
        "Content-Type: text/plain",
        "Origin: http://localhost",
        "Sec-Fetch-Site: none",
    ],
)
def test_headers_that_decide_occur_once(server: Served, header: str) -> None:
    """Which of two counts, other parsers may decide differently."""
    needed = [each for each in (HOST, "Content-Length: 2") if each != header]
    again = header.upper().partition(":")[0] + ": attacker.example"

    assert server.statuses(request("PUT", *needed, header, again, content="hi")) == [400]
    assert server.requests == []


def test_requests_of_usual_clients_are_served(server: Served) -> None:
    """Other headers may occur twice, have no value, or any character in it; lines may end without a return."""
    usual = [
        "Accept: */*",
        "Accept: text/html",
        "X-Empty:",
        "X-Blank: \t",
        "X-Name: Gr\xfc\xdfe: \x85",
    ]
    sent = request("PUT", HOST, *usual, "Content-Length: 2", content="hi")
    last = request("GET", HOST, *usual, "Connection: close")

    assert server.statuses(sent + sent.replace("\r", "") + last) == [200, 200, 200]
    assert [content for _, _, content in server.requests] == [b"hi", b"hi", b""]


def test_a_form_of_parts_is_no_mistake(server: Served) -> None:
    """Python's parser of mails looks for its parts in the headers."""
    form = "Content-Type: multipart/form-data; boundary=x"
    sent = request("PUT", HOST, form, "Content-Length: 2", "Connection: close", content="hi")

    assert server.statuses(sent) == [200]


@pytest.mark.parametrize(
    "sent",
    [
        "GET /\r\n",
        "GET /\r\n\r\n",
        "GET / HTTP/0.9\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\n",
        "\r\n",
        "GET",
    ],
)
def test_a_request_without_headers_ends_no_thread(server: Served, sent: str) -> None:
    """Also one of the first form of HTTP, or one that breaks off."""
    server.statuses(sent)

    assert server.statuses(request("GET", HOST, "Connection: close") + "\r\n")[-1] == 200
