# SPDX-License-Identifier: Apache-2.0
"""The greeter of the playground as it is there, in our words: ``playground.py PORT``."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from statefun import *

functions = StatefulFunctions()
REQUEST = make_json_type(typename="example/GreetRequest")
RECORD = make_json_type(typename="io.statefun.playground/EgressRecord")


@functions.bind(typename="example/person", specs=[ValueSpec(name="visits", type=IntType)])
def person(context, message):
    """Count the visits, and tell the greeter."""
    context.storage.visits = (context.storage.visits or 0) + 1
    request = message.as_type(REQUEST)
    request["visits"] = context.storage.visits
    context.send(
        message_builder(
            target_typename="example/greeter",
            target_id=request["name"],
            value=request,
            value_type=REQUEST,
        )
    )


@functions.bind(typename="example/greeter")
def greeter(context, message):
    """Greet."""
    request = message.as_type(REQUEST)
    text = f"Welcome {request['name']}, for the {request['visits']}. time"
    context.send_egress(
        egress_message_builder(
            target_typename="io.statefun.playground/egress",
            value={"topic": "greetings", "payload": text},
            value_type=RECORD,
        )
    )


handler = RequestReplyHandler(functions)


class Server(BaseHTTPRequestHandler):
    """Answers requests of the runtime."""

    def do_POST(self):
        """Answer one."""
        request = self.rfile.read(int(self.headers["Content-Length"]))
        reply = handler.handle_sync(request)
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        """Be quiet."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Server).serve_forever()
