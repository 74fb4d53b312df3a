# SPDX-License-Identifier: Apache-2.0
"""The application: each micro-batch causes the next one, and some of everything."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType

from endurance.sampling import Sampler, write_worker
from statefun import (
    Context,
    KafkaEgressMessage,
    KinesisEgressMessage,
    LongType,
    Message,
    StatefulFunctions,
    StringType,
    ValueSpec,
    egress_message_builder,
    make_json_type,
    message_builder,
)
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings

DELAY = timedelta(seconds=2)
TTL = timedelta(seconds=5)
KINESIS = """
  awsRegion: {{type: custom-endpoint, endpoint: '{kinesis}', id: eu-west-1}}
  awsCredentials: {{type: basic, accessKeyId: tests, secretAccessKey: no-secret}}
"""
MODULE = f"""
kind: io.statefun.kafka.v1/ingress
spec:
  id: endure/kafka-in
  address: '{{kafka}}'
  consumerGroupId: endure
  startupPosition: {{{{type: earliest}}}}
  topics: [{{{{topic: in, valueFormat: {{{{type: text}}}}, targets: [endure/passing]}}}}]
---
kind: io.statefun.kafka.v1/egress
spec:
  id: endure/kafka
  address: '{{kafka}}'
  deliverySemantic: {{{{type: exactly-once}}}}
  deadLetterTopic: dead
---
kind: io.statefun.kinesis.v1/ingress
spec:
  id: endure/kinesis-in
  {KINESIS.strip()}
  streams: [{{{{stream: in, valueFormat: {{{{type: text}}}}, targets: [endure/passing]}}}}]
---
kind: io.statefun.kinesis.v1/egress
spec:
  id: endure/kinesis
  {KINESIS.strip()}
---
kind: io.statefun.file.v1/ingress
spec:
  id: endure/files-in
  onChange: go-on
  # A file that somebody else takes away is known for a week, and so would seem to leak.
  afterRead: delete
  files:
    - path: '{{folder}}/in'
      format: {{{{type: lines}}}}
      valueFormat: {{{{type: text}}}}
      targets: [endure/passing]
---
kind: io.statefun.file.v1/egress
spec: {{{{id: endure/files, folder: '{{folder}}/out', rollEvery: 2s}}}}
---
kind: io.statefun.playground.v1/ingress
spec: {{{{port: {{port}}}}}}
---
kind: io.statefun.playground.v1/egress
spec: {{{{port: {{port}}, topics: [out]}}}}
---
kind: io.statefun.endpoints.v2/http
spec:
  functions: elsewhere/*
  urlPathTemplate: '{{endpoint}}'
  transport: {{{{call: 500ms}}}}
"""
RECORD = make_json_type("io.statefun.playground/EgressRecord")
LINE = make_json_type("endure/line")


def functions(folder: Path) -> StatefulFunctions:
    """Return the functions; workers write what they take into a file of the folder."""
    registry = StatefulFunctions()
    _bind_beat(registry)
    _bind_kept(registry)
    _bind_passing(registry)

    @registry.bind("endure/failing")
    def fail(_ctx: Context, message: Message) -> None:
        raise ValueError(message.as_string())

    @registry.bind("endure/probe")
    def probe(_ctx: Context, message: Message) -> None:
        write_worker(folder, int(message.as_string()))

    return registry


def _bind_beat(registry: StatefulFunctions) -> None:
    @registry.bind("endure/beat", specs=[ValueSpec("beats", LongType)])
    def beat(ctx: Context, message: Message) -> None:
        """Go on with the next micro-batch, at the other address, and cause some of everything."""
        number = int(message.as_string())
        if number < (ctx.storage.beats or 0):
            return  # somebody has begun once more
        ctx.storage.beats = number + 1
        other = str(1 - int(ctx.address.id))
        ctx.send(message_builder("endure/beat", other, str_value=str(number + 1)))
        later = message_builder("endure/later", str(number % 100), str_value=str(number))
        ctx.send_after(DELAY, later)
        ctx.send_after(DELAY, later, cancellation_token=f"token {number}")
        if number % 2 == 0:
            ctx.cancel_delayed_message(f"token {number - 2}")
        targets = {"endure/keeper": number}
        if number % 5 == 0:
            # The first message of each address sets its state, and the second one deletes it.
            targets |= {"endure/failing": number, "elsewhere/counter": number % 1000}
        if number % 10 == 0:
            targets |= {"endure/probe": number}
        for target, id_ in targets.items():
            ctx.send(message_builder(target, str(id_), str_value=str(number)))


def _bind_kept(registry: StatefulFunctions) -> None:
    @registry.bind("endure/later", specs=[ValueSpec("seen", LongType)])
    def count(ctx: Context, _message: Message) -> None:
        ctx.storage.seen = seen = (ctx.storage.seen or 0) + 1
        if seen % 10 == 1:
            ctx.send(KafkaEgressMessage("endure/kafka", topic="later", value=str(seen)))

    @registry.bind("endure/keeper", specs=[ValueSpec("kept", StringType, expire_after_write=TTL)])
    def keep(ctx: Context, message: Message) -> None:
        ctx.storage.kept = message.as_string()


def _bind_passing(registry: StatefulFunctions) -> None:
    @registry.bind("endure/passing", specs=[ValueSpec("last", StringType, expire_after_call=TTL)])
    def pass_on(ctx: Context, message: Message) -> None:
        """Pass on what comes from outside, to everywhere."""
        ctx.storage.last = text = message.as_string()
        id_ = ctx.address.id
        ctx.send(KafkaEgressMessage("endure/kafka", topic="out", key=id_, value=text))
        ctx.send(egress_message_builder("endure/files", {"id": id_, "text": text}, LINE))
        ctx.send_egress(
            KinesisEgressMessage("endure/kinesis", stream="out", partition_key=id_, value=text)
        )
        record = {"topic": "out", "payload": text}
        ctx.send(egress_message_builder("io.statefun.playground/egress", record, RECORD))


def main() -> None:
    """Run as ``options`` in JSON say."""
    options = json.loads(sys.argv[1])
    folder = Path(options["folder"])
    module = parse_module(MODULE.format(**options), str(folder / "module.yaml"))
    settings = Settings.resolve(
        {},
        None,
        checkpoint=folder / "checkpoint",
        state_partitions=1,
        kafka_timeout=timedelta(seconds=60),
        quiet=True,
    )
    application = Application(module, functions(folder), settings)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        application.stop()

    signal.signal(signal.SIGTERM, stop)
    with Sampler(folder, timedelta(seconds=options["every"])), suppress(KeyboardInterrupt):
        application.run()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
