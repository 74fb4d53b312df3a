# SPDX-License-Identifier: Apache-2.0
"""The greeter on the playground: without Kafka, by HTTP."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from subprocess import Popen
from urllib.parse import quote

from running import HERE, LOG, PATIENCE_SECONDS, fresh_checkpoint, submitted, wait_for_interrupt

from statefun.dev.progress import ProgressLine

USERS = ["Ada", "Grace", "Alan", "Ada", "Grace", "Ada"]
INGRESS = int(os.environ.get("PLAYGROUND_PORT", "8090"))
EGRESS = int(os.environ.get("PLAYGROUND_EGRESS_PORT", "8091"))
CURL = f"""
  $ curl -X PUT -H "Content-Type: application/vnd.com.example/User" \\
      -d '{{"name": "Ada"}}' localhost:{INGRESS}/com.example.fns/greeter/Ada
  $ curl localhost:{EGRESS}/greetings"""


def greet_by_http() -> None:
    """Send users and show their greetings; on a terminal, go on until Ctrl-C."""
    module = HERE / "greeter" / "playground.yaml"
    print("Launching the greeter:")
    print("  $ spark-submit --conf spark.statefun.module=examples/greeter/playground.yaml \\")
    print("      examples/greeter/app.py")
    options = ("--conf", f"spark.statefun.module={module}")
    with (
        fresh_checkpoint() as checkpoint,
        submitted(None, "greeter", checkpoint, *options, is_short=True) as process,
    ):
        with ProgressLine("Starting Spark"):
            send_until_accepted(process, USERS[0])
            first = take()
        print(f"  {first}")
        for user in USERS[1:]:
            put(user)
        for _ in USERS[1:]:
            print(f"  {take()}")
        print(f"\nTry it yourself:\n{CURL}\n")
        if sys.stdin.isatty():
            print("The greeter answers until Ctrl-C.")
            wait_for_interrupt(process)
        process.send_signal(signal.SIGTERM)
        process.wait()


def put(user: str) -> int:
    """Send a user; return the status."""
    client = HTTPConnection("127.0.0.1", INGRESS, timeout=PATIENCE_SECONDS)
    headers = {"Content-Type": "application/vnd.com.example/User"}
    path = f"/com.example.fns/greeter/{quote(user, safe='')}"
    client.request("PUT", path, json.dumps({"name": user}).encode(), headers)
    status = client.getresponse().status
    client.close()
    return status


def send_until_accepted(process: Popen[bytes], user: str) -> None:
    """Send the first user, as soon as there is somebody who takes it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if put(user) == HTTPStatus.OK:
                return
        except (OSError, HTTPException):
            time.sleep(0.1)
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the program has failed; what it said:\n{LOG.read_text()}")


def take() -> str:
    """Take the next greeting."""
    client = HTTPConnection("127.0.0.1", EGRESS, timeout=PATIENCE_SECONDS)
    client.request("GET", f"/greetings?wait={PATIENCE_SECONDS}")
    text = client.getresponse().read().decode()
    client.close()
    if not text:
        sys.exit(f"no greeting has come; what the program said:\n{LOG.read_text()}")
    return text
