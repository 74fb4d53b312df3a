# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from local_servers import free_port

from statefun import RequestReplyHandler, StatefulFunctions
from statefun.inspect.endpoint_checks import endpoint_findings
from statefun.module.loader import parse_module

INGRESS = """
kind: io.statefun.kafka.v1/ingress
spec:
  id: test/in
  address: nowhere:9092
  consumerGroupId: tests
  topics: [{topic: a, valueType: a/T, targets: [there.fns/known, there.fns/unknown]}]
"""


@pytest.fixture
def port() -> Iterator[int]:
    """Serve one function; return the port."""
    with serving(404) as number:
        yield number


@contextmanager
def serving(failed: int, failed_kind: str = "") -> Iterator[int]:
    """Serve one function; answer failures with this status and type, and no content; yield the port."""
    functions = StatefulFunctions()
    functions.register("there.fns/known", lambda ctx, message: None)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            status, reply, kind = 200, b"", "application/octet-stream"
            try:
                reply = RequestReplyHandler(functions).handle_sync(asked)
            except KeyError as error:
                status, reply = failed, b"" if failed == 200 else str(error).encode()
                kind = failed_kind
            self.send_response(status)
            if kind:
                self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            """Do nothing: requests are not logged."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def found(port: int, functions: str, ingress: str = "") -> list[str]:
    """Return the findings about an endpoint with that port."""
    endpoint = f"""
kind: io.statefun.endpoints.v2/http
spec:
  functions: {functions}
  urlPathTemplate: http://127.0.0.1:{port}/{{function.name}}
"""
    module = parse_module(f"{endpoint}---{ingress}" if ingress else endpoint)
    return [str(finding) for finding in endpoint_findings(module)]


def test_an_endpoint_that_has_its_function_is_no_finding(port: int) -> None:
    """The endpoint has answered that it has the function."""
    assert found(port, "there.fns/known") == []


def test_the_functions_of_ingresses_are_asked_for(port: int) -> None:
    """An endpoint of a namespace may lack one of them."""
    (finding,) = found(port, "there.fns/*", INGRESS)
    where = f"function there.fns/unknown: endpoint http://127.0.0.1:{port}/unknown"
    assert f"{where} has answered 404 Not Found (no content type): " in finding


def test_a_namespace_without_known_functions_has_to_answer(port: int) -> None:
    """No target is known for which the endpoint could be asked, so any answer is enough."""
    assert found(port, "there.fns/*") == []


def test_a_server_whose_failures_look_like_successes_is_a_warning() -> None:
    """The server of the playground of Stateful Functions answers 200 when a function throws."""
    with serving(200) as number:
        (finding,) = found(number, "there.fns/known")
        assert finding.startswith("warning: ")
        assert f"127.0.0.1:{number}/known has answered 200 OK (no content type)" in finding
        (unknown,) = found(number, "there.fns/*", INGRESS)
        assert unknown.startswith("error: ")
        assert "function there.fns/unknown" in unknown


@pytest.mark.parametrize("functions", ["there.fns/known", "there.fns/unknown", "there.fns/*"])
def test_a_server_with_an_empty_reply_for_any_function_is_a_warning(functions: str) -> None:
    """A web server may answer anything with status 200 and its default type: each message would be lost."""
    with serving(200, "application/octet-stream") as number:
        (finding,) = found(number, functions)
    assert finding.startswith("warning: ")
    assert "has answered 200 OK (application/octet-stream): no bytes to a request" in finding


def test_an_endpoint_that_is_down_is_an_error() -> None:
    """Messages to its functions would wait."""
    nobody = free_port()
    for functions in ("there.fns/known", "there.fns/*"):
        (finding,) = found(nobody, functions)
        assert finding.endswith("cannot be reached: Connection refused")
