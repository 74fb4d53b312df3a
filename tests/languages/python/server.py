# SPDX-License-Identifier: Apache-2.0
"""One function of the published Python SDK that does what its messages say: ``server.py PORT``."""

import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import uvicorn

from statefun import (
    Context,
    LongType,
    Message,
    RequestReplyHandler,
    StatefulFunctions,
    StringType,
    ValueSpec,
    kafka_egress_message,
    make_json_type,
    message_builder,
)

COMMANDS = make_json_type("com.example.languages/commands")
TOPIC = os.environ.get("RESULTS_TOPIC", "results")

functions = StatefulFunctions()


@functions.bind(
    "com.example.languages/python",
    specs=[
        ValueSpec("total", LongType),
        ValueSpec("note", StringType, expire_after_write=timedelta(hours=1)),
    ],
)
def run(context: Context, message: Message) -> None:
    """Execute the commands of a message, in order."""
    for command in message.as_type(COMMANDS):
        execute(context, command)


def execute(context: Context, command: dict[str, Any]) -> None:
    """Execute one command."""
    storage = context.storage
    match command["do"]:
        case "add":
            storage.total = (storage.total or 0) + command["by"]
            report(context, name=command["name"], total=storage.total)
        case "send":
            context.send(addressed(command))
        case "after":
            delay = timedelta(milliseconds=command["milliseconds"])
            context.send_after(delay, addressed(command), command.get("token", ""))
        case "cancel":
            context.cancel_delayed_message(command["token"])
        case "remember":
            storage.note = command["text"]
        case "forget":
            del storage.note
        case "recall":
            report(context, name=command["name"], note=storage.note)
        case "fail":
            raise RuntimeError(command["text"])
        case unknown:
            raise ValueError(f"unknown command: {unknown}")


def addressed(command: dict[str, Any]) -> Message:
    """Return the message that a command sends."""
    commands = command["commands"]
    return message_builder(command["to"], command["id"], value=commands, value_type=COMMANDS)


def report(context: Context, name: str, **facts: object) -> None:
    """Send a record to Kafka."""
    own = context.address
    record = {"name": name, "address": f"{own.typename}/{own.id}", **facts}
    value = json.dumps(record)
    context.send_egress(
        kafka_egress_message("com.example.languages/out", topic=TOPIC, key=own.id, value=value)
    )


handler = RequestReplyHandler(functions)


async def application(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Answer a request; uvicorn answers 500 to one for which this raises."""
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    reply = await handler.handle_async(body)
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", str(len(reply)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


class Server(uvicorn.Server):
    """A server that says when it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        print("ready", flush=True)  # noqa: T201 - whoever has started it waits for this


if __name__ == "__main__":
    port = int(sys.argv[1])
    Server(uvicorn.Config(application, port=port, lifespan="off", access_log=False)).run()
