# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import pytest
import yaml
from harness import wait
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from local_servers import free_port
from patience import SECONDS

from statefun import Context, PlatformError, RequestReplyHandler, StatefulFunctions, StringType
from statefun.engine.clock import SystemClock
from statefun.module.loader import parse_module
from statefun.module.model import Module
from statefun.remote.endpoint_functions import with_endpoints
from statefun.runtime.checkpoint import playground_store
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.playground_store import PlaygroundStore, Taken
from statefun.runtime.http_server import RequestHandler
from statefun.runtime.ingress.feedback import FeedbackReader
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.runtime.ingress.playground_inbox import PLAYGROUND_INBOX, PlaygroundInbox
from statefun.runtime.playground.server import Playground
from statefun.sdk import foreign_requests
from statefun.sdk.errors import StatefunError
from statefun.sdk.foreign_requests import is_this_machine

PAGE = Path(__file__).resolve().parents[3] / "docs" / "playground.md"
_PATHS = st.lists(st.sampled_from(["/", "a.fns", "any", "%FF", "%2F", "%00", "%20", "\xe9", "Ada"]))
_LINES = st.tuples(
    st.sampled_from(["PUT", "GET", "POST", "HEAD", "put", "", "P\xe9"]),
    st.one_of(
        _PATHS.map("".join).map("/a.fns/any/{}".format),
        st.sampled_from(["/greetings", "/greetings?wait=\xb2", "//[", "http://[/a", "*", "/%", ""]),
    ),
    st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9", "HTTP/1.-1", "ICY", ""]),
).map(" ".join)
_HEADERS = st.tuples(
    st.sampled_from(
        ["Host", "Origin", "Content-Length", "Content-Type", "Sec-Fetch-Site", "X" * 999]
    )
    | st.sampled_from(["Transfer-Encoding", "Expect", "Connection", "no name", ""]),
    st.sampled_from(["localhost", "[", "http://[", "[::1", "1", "-1", "+1", "\xb2", "9" * 5000, ""])
    | st.sampled_from(["application/vnd.a/b", "application/vnd.\xe9", "chunked", "100-continue"])
    | st.sampled_from(["keep-alive", "x" * 70_000, "a\0b", "cross-site"]),
).map(": ".join)
_TEXTS = st.tuples(_LINES, st.lists(_HEADERS, max_size=4), st.sampled_from(["", "x", "\r\n\r\n"]))
_HOST = "Host: localhost"


@attrs.frozen
class User:
    """A value of a type with a name."""

    name: str


def functions() -> StatefulFunctions:
    """Return functions that are never called."""
    registry = StatefulFunctions()
    for typename in ("a.fns/any", "a/*", "a/a/*", "\xe9/*"):
        registry.register(typename, lambda ctx, message: None)

    @registry.bind("a.fns/users")
    def users(ctx: Context, user: User) -> None:
        pass

    @registry.bind("a.fns/texts")
    def texts(ctx: Context, message: str) -> None:
        pass

    return registry


@attrs.frozen
class Played:
    """A playground, and its accepted messages."""

    port: int
    egress_port: int
    store: PlaygroundStore

    def ask(
        self, method: str, path: str, body: bytes | None = None, port: int = 0, **headers: Any
    ) -> tuple[int, str]:
        """Send a request; return status and text of the answer."""
        with closing(HTTPConnection("127.0.0.1", port or self.port, timeout=SECONDS)) as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            client.request(method, path, body, named)
            answer = client.getresponse()
            return answer.status, answer.read().decode()

    def posted(self) -> list[tuple[bytes, str, bytes]]:
        """Return the accepted messages."""
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
        store.open()
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
            "the path of a message must be /<namespace>/<type>/<id>, but is /a.fns/any",
        ),
        ("PUT", "/a.fns/any/", 404, "the path of a message must be /<namespace>/<type>/<id>"),
        (
            "PUT",
            "/statefun.timers/bucket/1",
            404,
            "the path of a message must be /<namespace>/<type>/<id>",
        ),
        ("POST", "/a.fns/any/Ada", 405, "PUT /<namespace>/<type>/<id> sends a message"),
        ("GET", "/greetings", 405, "PUT /<namespace>/<type>/<id> sends a message"),
    ],
)
def test_invalid_requests_are_refused(
    played: Played, method: str, path: str, status: int, text: str
) -> None:
    """The answer says what to do."""
    found = played.ask(method, path, b"x")
    assert found[0] == status
    assert found[1].startswith(text)
    assert played.posted() == []


def test_invalid_values_are_refused(played: Played) -> None:
    """The answer has the reason; no value is stored."""
    status, text = played.ask("PUT", "/a.fns/any/Ada", b"\xff")
    assert (status, "Content-Type: application/vnd.<typename>" in text) == (415, True)
    status, text = played.ask("PUT", "/a.fns/any/Ada", b"x", Content_Type="application/vnd.no")
    assert status == 415
    vendor = "application/vnd.com.example/Unnamed"
    status, text = played.ask("PUT", "/a.fns/texts/Ada", b"x", Content_Type=vendor)
    assert (status, text) == (
        415,
        (
            "no handler of a.fns/texts takes values of type com.example/Unnamed: they take str. "
            "Add one with .on(...), or give a class this type, also one that was renamed: "
            'make_json_type("com.example/Unnamed", cls)\n'
        ),
    )
    status, text = played.ask("PUT", "/a.fns/any/Ada", bytes(1_000_001), Content_Type=vendor)
    assert (status, text) == (413, "a message must have at most 1,000,000 bytes\n")
    assert played.posted() == []


def test_values_that_nobody_can_read_are_refused(played: Played) -> None:
    """By their type, whoever reads them, or by the handler that takes them."""
    for path, typename, body in (
        ("/a.fns/any/Ada", "io.statefun.types/string", b"Ada"),
        ("/a.fns/any/Ada", "io.statefun.types/int", b"\x0f"),
        ("/a.fns/texts/Ada", "io.statefun.types/string", b"\xff"),
        ("/a.fns/users/Ada", "com.example/User", b"{"),
        ("/a.fns/users/Ada", "com.example/User", b'{"name": 1}'),
    ):
        headers: dict[str, Any] = {"Content-Type": f"application/vnd.{typename}"}
        status, text = played.ask("PUT", path, body, **headers)
        assert (status, text.startswith(f"the value cannot be decoded as {typename}: ")) == (
            400,
            True,
        )
    assert played.posted() == []
    headers = {"Content-Type": "application/vnd.com.example/User"}
    assert played.ask("PUT", "/a.fns/users/Ada", b'{"name": "Ada"}', **headers)[0] == 200
    assert played.ask("PUT", "/a.fns/any/Ada", b"{", **headers)[0] == 200


@contextmanager
def served_elsewhere(registry: StatefulFunctions, port: int = 0) -> Iterator[int]:
    """Serve functions by the protocol of endpoints, at a port or any free one; yield the port."""

    class Served(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                status, reply = 200, RequestReplyHandler(registry).handle_sync(asked)
            except StatefunError as error:
                status, reply = 500, str(error).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", port), Served) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _with_endpoint(there: int, port: int) -> Module:
    """Return a module with an endpoint at the port ``there``, and a playground at ``port``."""
    return parse_module(
        f"""
kind: io.statefun.endpoints.v2/http
spec: {{functions: a.fns/*, urlPathTemplate: 'http://127.0.0.1:{there}/'}}
---
kind: io.statefun.playground.v1/ingress
spec: {{port: {port}}}
"""
    )


def test_an_endpoint_is_asked_whether_it_has_a_function(played: Played) -> None:
    """A name that it does not know is refused; while it is down, messages are accepted."""
    port = free_port()
    with served_elsewhere(functions()) as there:
        module = _with_endpoint(there, port)
        registry = with_endpoints(StatefulFunctions(), module)
        with Playground(module, registry, played.store):
            played.store.open()
            for _ in range(2):
                status, text = played.ask("PUT", "/a.fns/ayn/Ada", b"x", port=port)
                assert status == 404
                assert text.startswith(
                    "the endpoint of a.fns/ayn does not seem to have it: it has answered 500 "
                )
                assert played.ask("PUT", "/a.fns/any/Ada", b"x", port=port)[0] == 200
    with Playground(module, registry, played.store):
        played.store.open()
        assert played.ask("PUT", "/a.fns/ayn/Ada", b"x", port=port)[0] == 200
    assert len(played.posted()) == 3


def test_an_endpoint_that_was_down_is_asked_again(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that was accepted meanwhile does not confirm the name of its function."""
    monkeypatch.setattr("statefun.runtime.posted_messages._ASK_AGAIN", timedelta(0))
    port, there = free_port(), free_port()
    module = _with_endpoint(there, port)
    with Playground(module, with_endpoints(StatefulFunctions(), module), played.store):
        played.store.open()
        assert played.ask("PUT", "/a.fns/ayn/Ada", b"x", port=port)[0] == 200
        with served_elsewhere(functions(), there):
            assert played.ask("PUT", "/a.fns/ayn/Ada", b"x", port=port)[0] == 404
            assert played.ask("PUT", "/a.fns/any/Ada", b"x", port=port)[0] == 200


def test_the_answers_of_an_endpoint_are_known_for_its_newest_functions(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients may invent names without end."""
    monkeypatch.setattr("statefun.runtime.posted_messages._MOST_KNOWN", 4)
    port, there = free_port(), free_port()
    module = _with_endpoint(there, port)
    names = ["any", "users", "texts", "more", "most"]
    with Playground(module, with_endpoints(StatefulFunctions(), module), played.store):
        played.store.open()
        all_functions = functions()
        for name in names[-2:]:
            all_functions.register(f"a.fns/{name}", lambda ctx, message: None)
        with served_elsewhere(all_functions, there):
            for name in names:
                assert played.ask("PUT", f"/a.fns/{name}/Ada", b"x", port=port)[0] == 200
        with served_elsewhere(StatefulFunctions(), there):
            answers = [
                played.ask("PUT", f"/a.fns/{name}/Ada", b"x", port=port)[0]
                for name in reversed(names)
            ]

    assert answers == [200, 200, 200, 200, 404]


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


_WITHOUT_FIXTURE_CHECK = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@_WITHOUT_FIXTURE_CHECK
@given(_TEXTS.map(lambda text: (text[0], [_HOST, *text[1]], text[2])) | _TEXTS | st.binary())
def test_whatever_is_sent_has_an_answer_or_a_clean_end(
    played: Played, caplog: pytest.LogCaptureFixture, sent: Any
) -> None:
    """No request, of HTTP or not, makes the server fail."""
    caplog.clear()
    if not isinstance(sent, bytes):
        line, headers, body = sent
        sent = "\r\n".join([line, *headers, "", body]).encode("latin-1")
    answer = b""
    for port in (played.port, played.egress_port):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client,
            suppress(OSError),
        ):
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            while part := client.recv(10_000):
                answer += part
    assert re.findall(rb"(?:^|\n)HTTP/(?!1\.1 [1245]\d\d )", answer) == []
    assert b" 500 " not in answer
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("header", ["Host: [", "Origin: http://[", "Host: [::1"])
def test_a_host_that_is_none_has_an_answer(played: Played, header: str) -> None:
    """The host is not this machine."""
    with socket.create_connection(("127.0.0.1", played.port), timeout=SECONDS) as client:
        client.sendall(f"PUT /a.fns/any/x HTTP/1.1\r\n{header}\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 403")


_NAMES = st.sampled_from(["a", "a/a", " a", "a ", "\xe9"])
_ADDRESSES = st.tuples(_NAMES, _NAMES, st.binary(min_size=1, max_size=9))


@_WITHOUT_FIXTURE_CHECK
@given(st.lists(_ADDRESSES, min_size=2, max_size=2, unique=True))
def test_no_two_paths_are_one_address(
    played: Played, addresses: list[tuple[str, str, bytes]]
) -> None:
    """What a path cannot say exactly is refused."""
    paths = ["/".join(["", *(quote(part, safe="") for part in parts)]) for parts in addresses]
    statuses = [played.ask("PUT", path, b"x")[0] for path in paths]
    targets = [target for target, _, _ in played.posted()]
    played.store.forget(played.store.readable(0))
    assert set(statuses) <= {200, 400, 404}
    assert len(set(targets)) == len(targets) == statuses.count(200)


def test_ids_that_are_no_text_are_refused(played: Played) -> None:
    """They would otherwise be one address: that of the character for what is unknown."""
    answers = [played.ask("PUT", f"/a.fns/any/{id_}", b"x") for id_ in ("%FF", "%FE")]
    assert [(status, "must be UTF-8 text" in text) for status, text in answers] == [(400, True)] * 2
    assert played.posted() == []


@_WITHOUT_FIXTURE_CHECK
@example("Gr\xfc\xdfe")
@example("\xe0\x85\xa0\u3000")  # bytes of these are blanks of Latin-1
@given(st.text(st.characters(min_codepoint=0x80, exclude_categories=["Cs"]), min_size=1))
def test_a_path_may_be_plain_text(played: Played, text: str) -> None:
    """As curl sends it: the same address as the escaped path."""
    with socket.create_connection(("127.0.0.1", played.port), timeout=SECONDS) as client:
        head = f"PUT /a.fns/any/{text} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
        client.sendall(head.encode())
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    assert played.ask("PUT", f"/a.fns/any/{quote(text)}", b"x")[0] == 200
    targets = [target.decode() for target, _, _ in played.posted()]
    played.store.forget(played.store.readable(0))
    assert targets == [f"{text}\0a.fns/any"] * 2


def test_a_query_may_be_plain_text(played: Played) -> None:
    """It is read as its escaped form is."""
    with socket.create_connection(("127.0.0.1", played.egress_port), timeout=SECONDS) as client:
        head = "GET /greetings?wait=\xe0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        client.sendall(head.encode())
        client.shutdown(socket.SHUT_WR)
        plain = b"".join(iter(lambda: client.recv(1000), b"")).decode()
    _, escaped = played.ask("GET", "/greetings?wait=%C3%A0", port=played.egress_port)
    assert plain.startswith("HTTP/1.1 400")
    assert plain.endswith(escaped)


def test_many_clients_connect_at_once(played: Played) -> None:
    """All of 200 clients are served."""
    together, statuses = threading.Barrier(200), []

    def ask() -> None:
        together.wait()
        statuses.append(played.ask("PUT", "/a.fns/any/Ada", b"x")[0])

    clients = [threading.Thread(target=ask) for _ in range(200)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert statuses == [200] * 200


def test_answers_are_sent_at_once(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of an answer waits until the client has acknowledged another part."""
    found = []
    setup = BaseHTTPRequestHandler.setup

    def noting(handler: BaseHTTPRequestHandler) -> None:
        setup(handler)
        found.append(handler.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(BaseHTTPRequestHandler, "setup", noting)
    assert played.ask("PUT", "/a.fns/any/Ada", b"x")[0] == 200
    assert 0 not in found


def test_records_are_taken(played: Played) -> None:
    """The oldest first; nothing is waited for unless that is asked for."""
    played.store.publish("a/out/0", None, "{}", [("greetings", b"Hello"), ("greetings", b"{}")])
    port = played.egress_port
    assert played.ask("GET", "/greetings", port=port) == (200, "Hello")
    assert played.ask("GET", "/greetings?wait=1", port=port) == (200, "{}")
    assert played.ask("GET", "/greetings?wait=1", port=port) == (204, "")
    assert played.ask("GET", "/greetings", port=port) == (204, "")
    status, text = played.ask("GET", "/greeting", port=port)
    assert (status, text) == (404, "there is no topic 'greeting'; the topics are greetings, more\n")
    for seconds in ("long", "9" * 5000):
        assert played.ask("GET", f"/greetings?wait={seconds}", port=port)[0] == 400
    assert played.ask("PUT", "/a.fns/any/Ada", b"x", port=port)[0] == 405


@pytest.mark.parametrize("delivers", [True, False], ids=["running", "paused"])
def test_the_ports_open_when_the_query_looks_for_messages(
    played: Played, tmp_path: Path, *, delivers: bool
) -> None:
    """Not before: the messages of a whole start would come at once, without what each causes."""
    port = free_port()
    module = parse_module(f"kind: io.statefun.playground.v1/ingress\nspec: {{port: {port}}}")
    folder, clock = Folder.at(tmp_path), SystemClock()
    inbox = PlaygroundInbox(played.store, WaitingGauge(folder), clock)
    reader = FeedbackReader(folder, clock, {PLAYGROUND_INBOX: inbox}, delivers=lambda: delivers)
    with Playground(module, functions(), played.store):
        with pytest.raises(ConnectionRefusedError):
            played.ask("PUT", "/a.fns/any/Ada", b"x", port=port)
        start = reader.initial_offset()
        assert reader.latest_offset(start) == start
        assert played.ask("PUT", "/a.fns/any/Ada", b"x", port=port)[0] == 200
        assert (reader.latest_offset(start) != start) == delivers


def test_ready_is_logged_when_a_message_is_accepted(played: Played, caplog: Any) -> None:
    """Whoever waits for the line may send at once."""
    caplog.set_level(logging.INFO, "statefun")
    port, statuses = free_port(), list[int]()

    def send(line: logging.LogRecord) -> bool:
        if "is ready" in line.msg:
            statuses.append(played.ask("PUT", "/a.fns/any/Ada", b"x", port=port)[0])
        return True

    module = parse_module(f"kind: io.statefun.playground.v1/ingress\nspec: {{port: {port}}}")
    caplog.handler.addFilter(send)
    try:
        with Playground(module, functions(), played.store):
            assert statuses == []
            played.store.open()
            assert statuses == [200]
    finally:
        caplog.handler.removeFilter(send)


def test_another_host_is_refused_with_the_way_out(played: Played, caplog: Any) -> None:
    """As in a container, which others reach by its name; with a host set, they can use it."""
    caplog.set_level(logging.INFO, "statefun")
    assert played.ask("PUT", "/a.fns/any/Ada", b"x", Host="statefun:8090") == (
        403,
        (
            "the playground answers neither pages of other web sites nor other machines (Host: "
            "statefun:8090); if other machines or containers may use the playground, add host: 0.0.0.0 to the spec of "
            "module.yaml:2:1; if a proxy on this machine uses another name, add that, such as hosts: "
            "[playground.example.com]\n"
        ),
    )
    port = free_port()
    text = f"kind: io.statefun.playground.v1/ingress\nspec: {{port: {port}, host: 0.0.0.0}}"
    with Playground(parse_module(text), functions(), played.store):
        played.store.open()
        assert played.ask("PUT", "/a.fns/any/A", b"x", port=port, Host="statefun:8090")[0] == 200
    assert caplog.messages == [
        f"the playground is ready: PUT http://0.0.0.0:{port}/<namespace>/<type>/<id> sends a message"
    ]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("localhost", 200),
        ("192.0.2.1", 200),
        ("[2001:db8::1]", 200),
        ("statefun", 200),
        ("Statefun.Localhost", 200),
        ("host.docker.internal", 200),
        ("printer.local.", 200),
        ("statefun.default.svc", 200),
        ("statefun.default.svc.cluster.local", 200),
        ("a-machine.example", 200),
        ("Play.Example", 200),
        ("play.example.", 200),
        ("attacker.example", 403),
        ("play.example.attacker.example", 403),
        ("local.attacker.example", 403),
        ("127.0.0.1.attacker.example", 403),
    ],
)
def test_pages_of_other_sites_cannot_take_the_place_of_a_host(
    played: Played, monkeypatch: pytest.MonkeyPatch, name: str, status: int
) -> None:
    """The name of a page may lead to this machine: only names that no site has, and listed ones, are accepted."""
    monkeypatch.setattr(foreign_requests, "gethostname", lambda: "A-Machine")
    monkeypatch.setattr(foreign_requests, "getfqdn", lambda: "A-Machine.example")
    monkeypatch.setattr(foreign_requests, "_own_names", foreign_requests._own_names.__wrapped__)  # noqa: SLF001 - not those of another test
    port = free_port()
    both = f"port: {port}, host: 0.0.0.0"
    module = parse_module(
        f"""
kind: io.statefun.playground.v1/ingress
spec: {{{both}}}
---
kind: io.statefun.playground.v1/egress
spec: {{{both}, topics: [a], hosts: [Play.Example]}}
"""
    )
    named: dict[str, Any] = {"Host": f"{name}:{port}"}
    page: dict[str, Any] = {**named, "Origin": f"http://{name}:{port}"}
    played.store.publish("a/out/0", None, "{}", [("a", b"x")])
    with Playground(module, functions(), played.store):
        played.store.open()
        answers = [
            played.ask("PUT", "/a.fns/any/Ada", b"x", port=port, **named),
            played.ask("PUT", "/a.fns/any/Ada", b"x", port=port, **page),
            played.ask("GET", "/a", port=port, **page),
        ]

    assert [found for found, _ in answers] == [status] * 3
    if status == 403:
        assert answers[0][1] == (
            f"the playground answers neither pages of other web sites nor other machines (Host: {name}:{port}); "
            "if the playground has this name, add it to the spec of module.yaml:2:1, such as "
            "hosts: [playground.example.com]\n"
        )


@pytest.mark.parametrize("host", ["", "host: 0.0.0.0, "])
def test_a_listed_host_is_accepted(
    played: Played, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Also on this machine alone, as a proxy passes it on. Nobody asks the DNS, which may not answer."""
    monkeypatch.setattr(foreign_requests, "getfqdn", pytest.fail)
    monkeypatch.setattr(foreign_requests, "_own_names", foreign_requests._own_names.__wrapped__)  # noqa: SLF001 - not those of another test
    port = free_port()
    spec = f"port: {port}, {host}hosts: [play.example]"
    text = f"kind: io.statefun.playground.v1/ingress\nspec: {{{spec}}}"
    with Playground(parse_module(text), functions(), played.store):
        played.store.open()
        for name, status in (("play.example", 200), ("statefun", 200 if host else 403)):
            assert played.ask("PUT", "/a.fns/any/A", b"x", port=port, Host=name)[0] == status


def test_ready_says_who_can_use_a_port_without_a_host(played: Played, caplog: Any) -> None:
    """Another line says nothing where the published port of a container ends at its own 127.0.0.1."""
    caplog.set_level(logging.INFO, "statefun")
    port = free_port()
    module = parse_module(f"kind: io.statefun.playground.v1/ingress\nspec: {{port: {port}}}")
    with Playground(module, functions(), played.store):
        played.store.open()
    assert caplog.messages == [
        (
            f"the playground is ready: PUT http://127.0.0.1:{port}/<namespace>/<type>/<id> sends a message; "
            "only for clients on this machine, since its spec has no host: 0.0.0.0"
        )
    ]


def test_the_documented_compose_file_fits_its_module_file() -> None:
    """Its ports are those of the module file, which listens for other containers, too."""
    blocks = re.findall(r"```ya?ml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (text,) = (block for block in blocks if "host:" in block)
    (compose,) = (yaml.safe_load(block) for block in blocks if "services:" in block)
    module = parse_module(text)
    both: list[Any] = [*module.playground_ingresses, *module.playground_doors]
    doors = [(each.host, each.port) for each in both]
    published = compose["services"]["statefun"]["ports"]
    assert [is_this_machine(host) for host, _ in doors] == [False, False]
    assert published == [f"127.0.0.1:{port}:{port}" for _, port in doors]


def test_pages_of_other_sites_cannot_use_the_playground(played: Played) -> None:
    """A browser on this machine could otherwise be made to take records."""
    played.store.publish("a/out/0", None, "{}", [("greetings", b"Hello")])
    port = played.egress_port
    assert played.ask("GET", "/greetings", port=port, Sec_Fetch_Site="cross-site")[0] == 403
    assert played.ask("GET", "/greetings", port=port) == (200, "Hello")


def test_the_body_of_a_refused_request_is_no_request(played: Played) -> None:
    """Else a page of another site could hide a request in it."""
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
    strangers = [
        {"Host": "attacker.example"},
        {"Host": "["},
        {"Origin": "http://attacker.example"},
        {"Origin": "http://192.0.2.1"},
        {"Origin": "http://["},
    ]
    for headers in strangers:
        assert played.ask("PUT", "/a.fns/any/Ada", b"x", **headers)[0] == 403
    here: dict[str, Any] = {"Origin": "http://localhost:3000"}
    assert played.ask("PUT", "/a.fns/any/Ada", b"x", **here)[0] == 200
    assert len(played.posted()) == 1


def test_a_client_that_has_disconnected_takes_no_record(played: Played) -> None:
    """The record is put back, and the next client gets it."""
    with socket.create_connection(("127.0.0.1", played.egress_port)) as client:
        client.sendall(b"GET /greetings?wait=30 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)
    played.store.publish("a/out/0", None, "{}", [("greetings", b"Hello")])
    answer = played.ask("GET", "/greetings?wait=30", port=played.egress_port)
    assert answer == (200, "Hello")


def test_a_record_that_is_sent_while_the_application_stops_is_returned_once(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is closed only when it knows which records clients have."""
    port, sent = free_port(), threading.Event()
    kind = "io.statefun.playground.v1/egress"
    module = parse_module(f"kind: {kind}\nspec: {{port: {port}, topics: [greetings]}}")
    answer = RequestHandler.answer

    def answered_late(handler: RequestHandler, *arguments: Any) -> None:
        answer(handler, *arguments)
        sent.set()
        wait(lambda: store.is_closed)

    monkeypatch.setattr(RequestHandler, "answer", answered_late)
    folder = tmp_path / "stopped"
    folder.mkdir()
    with (
        closing(PlaygroundStore(Folder.at(folder))) as store,
        Playground(module, functions(), store),
    ):
        store.open()
        store.publish("a/out/0", None, "{}", [("greetings", b"Hello"), ("greetings", b"more")])
        assert played.ask("GET", "/greetings", port=port) == (200, "Hello")
        assert sent.wait(SECONDS)
    with closing(PlaygroundStore(Folder.at(folder))) as next_run:
        record = next_run.take("greetings", 0)
        assert record is not None
        assert record.payload == b"more"
        next_run.taken(record)


def test_clients_that_have_disconnected_do_not_disorder_records(played: Played) -> None:
    """The requests that a client has given up take no records before its next one."""
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", played.egress_port)) as client:
            client.sendall(b"GET /greetings?wait=600 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.05)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(played.ask, "GET", "/greetings?wait=30", port=played.egress_port)
        time.sleep(0.2)
        records = [("greetings", b"%d" % number) for number in range(6)]
        played.store.publish("a/out/0", None, "{}", records)
        answers = [first.result(SECONDS)]
    answers += [played.ask("GET", "/greetings", port=played.egress_port) for _ in range(5)]

    assert answers == [(200, str(number)) for number in range(6)]


def test_clients_that_have_disconnected_take_no_places(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that polls with a time limit of its own does not lock others out."""
    monkeypatch.setattr("statefun.runtime.connections._MOST", 3)
    monkeypatch.setattr("statefun.runtime.playground.server._LONGEST_WAIT_SECONDS", 6000)
    port = free_port()
    kind = "io.statefun.playground.v1/egress"
    module = parse_module(f"kind: {kind}\nspec: {{port: {port}, topics: [greetings]}}")
    served, take = list[str](), played.store.take

    def noting(topic: str, *others: Any) -> Taken | None:
        served.append(topic)
        return take(topic, *others)

    monkeypatch.setattr(played.store, "take", noting)

    def is_answered() -> bool:
        with suppress(ConnectionError):
            return played.ask("GET", "/greetings", port=port)[0] == 204
        return False

    with Playground(module, functions(), played.store), ExitStack() as clients:
        played.store.open()
        for _ in range(3):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(b"GET /greetings?wait=6000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait(lambda: len(served) == 3)  # a connection whose request is not read yet makes room
        assert not is_answered()
        clients.close()
        wait(is_answered)


def test_too_many_messages_are_refused_for_now(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may try again when the application has read some."""
    monkeypatch.setattr(playground_store, "MOST_RECORDS", 2)
    asked = [played.ask("PUT", "/a.fns/texts/Ada", b"hello") for _ in range(3)]
    played.store.forget(1)
    asked.append(played.ask("PUT", "/a.fns/texts/Ada", b"hello"))

    assert [status for status, _ in asked] == [200, 200, 503, 200]
    assert "too many messages wait" in asked[2][1]
    assert "again later" in asked[2][1]


def test_an_application_that_has_stopped_accepts_nothing(played: Played) -> None:
    """An open connection gets an answer that says so; the request is no error of the application."""
    with closing(HTTPConnection("127.0.0.1", played.port, timeout=SECONDS)) as client:
        answers = []
        for _ in range(2):
            client.request("PUT", "/a.fns/any/Ada", b"x")
            answer = client.getresponse()
            answers.append((answer.status, answer.read()))
            played.store.close()

    assert answers == [(200, b""), (503, b"the application has stopped\n")]


def test_a_port_that_is_taken_is_an_error(played: Played, tmp_path: Path) -> None:
    """The error names the port."""
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
        played.store.open()
        assert played.ask("PUT", "/a.fns/any/Ada", b"x", port=port)[0] == 200
        assert played.ask("GET", "/a", port=port) == (200, "x")
        status, text = played.ask("DELETE", "/a", port=port)
        assert (status, text.count(" and ")) == (405, 1)
