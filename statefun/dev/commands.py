# SPDX-License-Identifier: Apache-2.0
"""``statefun dev``: a broker on this machine, records into a topic, and records out of one."""

from __future__ import annotations

import argparse
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from statefun.dev.kafka import EmbeddedKafka
from statefun.dev.progress import Progress
from statefun.dev.records import cluster_topics, read_records, send_record
from statefun.runtime.printable import printable
from statefun.sdk.errors import PlatformError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_PORT = 9092
_LOOK = timedelta(milliseconds=500)


def add_commands(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``dev`` and its actions to a command line."""
    dev = commands.add_parser("dev", help="a Kafka on this machine, and records in and out")
    actions = dev.add_subparsers(dest="action", metavar="action", required=True)
    kafka = actions.add_parser("kafka", help="run a Kafka broker on this machine until Ctrl-C")
    kafka.add_argument("--port", type=int, default=_PORT, help=f"for clients (default {_PORT})")
    kafka.add_argument(
        "--topic", action="append", default=[], help="create this topic; may be repeated"
    )
    kafka.add_argument("--partitions", type=int, default=1, help="of each topic (default 1)")
    kafka.add_argument(
        "--data", type=Path, help="keep the records in this folder (default: delete them)"
    )
    send = actions.add_parser("send", help="write a record")
    read = actions.add_parser("read", help="print the records that are in a topic")
    for action in (send, read):
        action.add_argument("--address", default=f"localhost:{_PORT}", help="of the broker")
        action.add_argument("topic")
    send.add_argument("key")
    send.add_argument("value")


def run_command(options: argparse.Namespace) -> None:
    """Carry out the command.

    Raises:
        StatefunError: if it cannot be done.
    """
    match options.action:
        case "kafka":
            _serve(options)
        case "send":
            send_record(options.address, options.topic, options.key, options.value)
        case "read":
            for key, value in read_records(options.address, options.topic):
                print(f"{_text(key)}\t{_text(value)}")


def _serve(options: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the broker ends first
    with Progress("Starting Kafka") as progress:
        kafka = EmbeddedKafka(port=options.port, data=options.data, progress=progress.update)
        kafka.start()
    with kafka:
        present = cluster_topics(kafka.bootstrap_servers).topics
        for topic in options.topic:
            if topic not in present:
                kafka.create_topic(topic, partitions=options.partitions)
        print(f"Kafka is at localhost:{options.port}; Ctrl-C stops it", flush=True)
        while kafka.running:
            time.sleep(_LOOK.total_seconds())
        raise PlatformError(
            f"the broker has ended by itself; its last words are in {kafka.log_file}"
        )


def _text(content: bytes | None) -> str:
    return "-" if content is None else printable(content.decode(errors="backslashreplace"))
