# SPDX-License-Identifier: Apache-2.0
"""An application that numbers the records of each key: by stream ``users``, to stream ``counts``.

Run by itself, it takes the URL of the server and the folder of the checkpoint as its arguments.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from statefun import (
    Context,
    IntType,
    KinesisEgressMessage,
    Message,
    StatefulFunctions,
    ValueSpec,
)
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings
from statefun.runtime.terminal.status_line import StatusLine

REGION = "eu-west-1"
CONNECTION = f"""
  awsRegion: {{type: custom-endpoint, endpoint: URL, id: {REGION}}}
  awsCredentials: {{type: basic, accessKeyId: tests, secretAccessKey: no-secret}}
""".strip()
MODULE = f"""
kind: io.statefun.kinesis.v1/ingress
spec:
  id: test/in
  {CONNECTION}
  startupPosition: START
  streams: [{{stream: users, valueFormat: {{type: text}}, targets: [test.fns/count]}}]
---
kind: io.statefun.kinesis.v1/egress
spec:
  id: test/out
  {CONNECTION}
"""

functions = StatefulFunctions()


@functions.bind("test.fns/count", [ValueSpec("seen", IntType)])
def count(ctx: Context, message: Message) -> None:
    """Number the messages of each address."""
    ctx.storage.seen = (ctx.storage.seen or 0) + 1
    ctx.send_egress(
        KinesisEgressMessage(
            "test/out",
            stream="counts",
            partition_key=ctx.address.id,
            value=f"{ctx.storage.seen} {message.as_string()}",
        )
    )


def module_text(url: str, start: str = "{type: earliest}") -> str:
    """Return the module file."""
    return MODULE.replace("URL", url).replace("START", start)


def application(
    url: str,
    checkpoint: str,
    start: str = "{type: earliest}",
    line: StatusLine | None = None,
) -> Application:
    """Return an application that runs until it is stopped."""
    settings = Settings.resolve({}, None, checkpoint=checkpoint, kafka_timeout=timedelta(minutes=2))
    return Application(parse_module(module_text(url, start)), functions, settings, line=line)


if __name__ == "__main__":
    application(sys.argv[1], sys.argv[2]).run()
