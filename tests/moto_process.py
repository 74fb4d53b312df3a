# SPDX-License-Identifier: Apache-2.0
"""A process with moto's server of S3's protocol: ``python moto_process.py PORT``.

moto checks a condition and writes in two steps, and serves requests in threads. So of two requests at once to create an
object, both could succeed. Here each request is handled alone, once all of its content has come: a client that is
stopped in the middle of a request stops no other one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from io import BytesIO
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

_inner = DomainDispatcherApplication(create_backend_app)
_one_at_a_time = threading.Lock()


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Handle a request after the one before it."""
    if not environ.get("wsgi.input_terminated"):
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = BytesIO(environ["wsgi.input"].read(length))
    with _one_at_a_time:
        return list(_inner(environ, start_response))


class _Handler(WSGIRequestHandler):
    """Answers ``Expect: 100-continue`` once: Python's server and werkzeug both do, and Hadoop's uploads fail at the second."""

    def handle_expect_100(self) -> bool:
        return True


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=_Handler)
