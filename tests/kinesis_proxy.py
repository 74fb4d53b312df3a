# SPDX-License-Identifier: Apache-2.0
"""A proxy before a server of Kinesis's protocol that throttles, and takes parts of requests only."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, final

from patience import SECONDS

_THROTTLED = "ProvisionedThroughputExceededException"


@final
class KinesisProxy:
    """Passes requests on, or does not."""

    def __init__(self, port: int, seed: int = 0) -> None:
        self._target = port
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.throttled: Counter[str] = Counter()
        """How many requests of each operation are still to be throttled."""
        self.refused_share = 0.0
        """Which share of the records of ``PutRecords`` is throttled."""
        self.refused = 0
        """How many records were."""
        self.put: list[list[tuple[str, str]]] = []
        """The streams and keys of the records in each request."""
        self.gone: set[str] = set()
        """The sequence numbers of records whose time of retention is over."""
        self.unfollowed = 0
        """How many answers to ``GetRecords`` are still to have no next iterator."""
        self.behind: int | None = None
        """By how many milliseconds the records that are read are behind the newest one."""
        self.instead: dict[str, tuple[int, str, bytes]] = {}
        """What is answered to an operation: a status, a content type and a body."""
        self.asked: Counter[str] = Counter()
        """How many requests came, by operation."""

    def __enter__(self) -> KinesisProxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                operation = self.headers["X-Amz-Target"].rpartition(".")[2]
                status, answer = proxy.answer(operation, dict(self.headers), body)
                kind = "application/x-amz-json-1.1"
                if operation in proxy.instead:
                    status, kind, answer = proxy.instead[operation]
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                """Say nothing."""

        return Handler

    def answer(self, operation: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Return the status and content of an answer."""
        with self._lock:
            self.asked[operation] += 1
            if self.throttled[operation] > 0:
                self.throttled[operation] -= 1
                text = {"__type": _THROTTLED, "message": "Rate exceeded"}
                return 400, json.dumps(text).encode()
        if operation == "PutRecords":
            return self._put(headers, json.loads(body))
        status, content = self._passed(headers, body)
        if operation == "GetRecords" and status == HTTPStatus.OK:
            found = json.loads(content)
            if self.behind is not None:
                found["MillisBehindLatest"] = self.behind
            with self._lock:
                if self.unfollowed > 0:
                    self.unfollowed -= 1
                    del found["NextShardIterator"]
            found["Records"] = [
                each for each in found["Records"] if each["SequenceNumber"] not in self.gone
            ]
            content = json.dumps(found).encode()
        return status, content

    def _put(self, headers: dict[str, str], request: dict[str, Any]) -> tuple[int, bytes]:
        """Pass a part of the records on."""
        records = request["Records"]
        with self._lock:
            self.put.append([(request["StreamName"], each["PartitionKey"]) for each in records])
            taken = [self._random.random() >= self.refused_share for _ in records]
            self.refused += taken.count(False)
        passed = [record for record, is_taken in zip(records, taken, strict=True) if is_taken]
        answers = iter(())
        if passed:
            body = json.dumps(request | {"Records": passed}).encode()
            status, content = self._passed(headers, body)
            if status != 200:
                return status, content
            answers = iter(json.loads(content)["Records"])
        refusal = {"ErrorCode": _THROTTLED, "ErrorMessage": "Rate exceeded for shard"}
        whole = [next(answers) if is_taken else refusal for is_taken in taken]
        answer = {"FailedRecordCount": taken.count(False), "Records": whole}
        return 200, json.dumps(answer).encode()

    def _passed(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self._target, timeout=SECONDS)
        kept = {
            name: value
            for name, value in headers.items()
            if name.lower() not in {"host", "content-length", "accept-encoding"}
        }
        connection.request("POST", "/", body, kept)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content
