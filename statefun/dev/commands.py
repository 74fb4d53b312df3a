# SPDX-License-Identifier: Apache-2.0
"""``statefun dev``: a broker on this machine, records into a topic, and records out of one."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message as Record
from confluent_kafka import Producer, TopicPartition

from statefun.dev.kafka import EmbeddedKafka
from statefun.dev.progress import Progress
from statefun.runtime.kafka_client import (
    admin_for,
    cluster_metadata,
    connect,
    partitions_of,
    read_committed,
)
from statefun.sdk.errors import KafkaError, PlatformError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_PORT = 9092
_TIMEOUT = timedelta(seconds=10)
_LOOK = timedelta(milliseconds=500)
_OWNER = "statefun dev"


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
    """Do what the command line asks for.

    Raises:
        StatefunError: if it cannot be done.
    """
    match options.action:
        case "kafka":
            _serve(options)
        case "send":
            _send(options)
        case "read":
            for record in _read(options):
                print(f"{_text(record.key())}\t{_text(record.value())}")


def _serve(options: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the broker ends first
    with Progress("Starting Kafka") as progress:
        kafka = EmbeddedKafka(port=options.port, data=options.data, progress=progress.update)
        kafka.start()
    with kafka:
        address = kafka.bootstrap_servers
        present = cluster_metadata(_OWNER, address, admin_for(_OWNER, address, {}), _TIMEOUT).topics
        for topic in options.topic:
            if topic not in present:
                kafka.create_topic(topic, partitions=options.partitions)
        print(f"Kafka is at localhost:{options.port}; Ctrl-C stops it", flush=True)
        while kafka.running:
            time.sleep(_LOOK.total_seconds())
        raise PlatformError(
            f"the broker has ended by itself; its last words are in {kafka.log_file}"
        )


def _send(options: argparse.Namespace) -> None:
    _partitions(options)
    refused: list[ClientError] = []
    producer = connect(Producer, _OWNER, {"bootstrap.servers": options.address})
    producer.produce(
        options.topic,
        options.value.encode(),
        options.key.encode(),
        on_delivery=lambda error, _: refused.append(error) if error else None,
    )
    if producer.flush(_TIMEOUT.total_seconds()) or refused:
        reason = refused[0].str() if refused else f"no answer within {_TIMEOUT.seconds} s"
        raise KafkaError(f"topic {options.topic} at {options.address}: not written: {reason}")


def _read(options: argparse.Namespace) -> Iterator[Record]:
    starts = [TopicPartition(options.topic, number, 0) for number in _partitions(options)]
    return read_committed(_OWNER, options.address, {}, starts, _TIMEOUT)


def _partitions(options: argparse.Namespace) -> list[int]:
    """Return the partitions of the topic that the command line names."""
    admin = admin_for(_OWNER, options.address, {})
    metadata = cluster_metadata(_OWNER, options.address, admin, _TIMEOUT)
    return partitions_of(_OWNER, options.topic, metadata, options.address)


def _text(content: bytes | str | None) -> str:
    """Return what can be shown of a key or value, without the terminal's control characters."""
    if content is None:
        return "-"
    text = content if isinstance(content, str) else content.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
