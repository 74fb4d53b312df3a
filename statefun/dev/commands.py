# SPDX-License-Identifier: Apache-2.0
"""``statefun dev``: runs an application and a broker on this machine, manages topics, writes and reads records."""

from __future__ import annotations

import argparse
import json
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from statefun.console.command_parser import Actions, CommandParser
from statefun.console.json_output import print_json
from statefun.dev.dev_topics import (
    ADDRESS_VARIABLE,
    LOCAL_PORT,
    cluster_topics,
    default_address,
    describe_topic,
    list_topics,
    new_topic,
)
from statefun.dev.kafka import EmbeddedKafka
from statefun.dev.kafka_storage import forget
from statefun.dev.progress import ProgressLine
from statefun.dev.records import PlacedRecord, follow_records, placed_records, send_record
from statefun.projects.program_arguments import add_program, add_settings
from statefun.runtime.terminal.table import counted, print_table
from statefun.sdk.errors import PlatformError
from statefun.sdk.printable import json_content, printable

_PAGE = 8083
_DATA = Path(".statefun/kafka")
_LOOK = timedelta(milliseconds=500)


def add_arguments(dev: CommandParser) -> None:
    """Add the actions of ``statefun dev`` to its parser."""
    actions = dev.actions()
    _add_run(actions)
    kafka = actions.add(
        "kafka",
        "run a Kafka broker on this machine until Ctrl-C",
        "statefun dev kafka --topic users --topic greetings",
    )
    kafka.add_argument(
        "--port", type=int, default=LOCAL_PORT, help=f"the port for clients (default {LOCAL_PORT})"
    )
    kafka.add_argument(
        "--topic",
        action="append",
        default=[],
        help="create this topic if it does not exist; may be repeated",
    )
    kafka.add_argument(
        "--partitions", type=int, default=1, help="how many partitions new topics get (default 1)"
    )
    kafka.add_argument(
        "--data", type=Path, default=_DATA, help=f"the folder for the records (default {_DATA})"
    )
    kafka.add_argument(
        "--fresh", action="store_true", help="first delete the topics and records of earlier starts"
    )
    topic = actions.add(
        "topic",
        "create, list or describe topics",
        "statefun dev topic list",
    )
    topics = topic.actions("topic_action")
    create = topics.add("create", "create topics", "statefun dev topic create users --partitions 4")
    list_ = topics.add("list", "print a table of all topics", "statefun dev topic list")
    describe = topics.add(
        "describe", "print a table of a topic's partitions", "statefun dev topic describe users"
    )
    create.add_argument("topic", nargs="+")
    create.add_argument(
        "--partitions", type=int, default=1, help="how many partitions each topic gets (default 1)"
    )
    describe.add_argument("topic")
    send = actions.add(
        "send",
        "write a record to a topic",
        "statefun dev send users ada Ada",
        "statefun dev send users ada --tombstone",
    )
    read = actions.add(
        "read",
        "print the records of a topic",
        "statefun dev read greetings",
        "statefun dev read greetings --follow --json",
    )
    for action in (send, read):
        action.add_argument("topic")
    for action in (create, list_, describe, send, read):
        action.add_argument(
            "--address",
            default=default_address(),
            help="host and port of the broker (default: the environment variable "
            f"{ADDRESS_VARIABLE}, or localhost:{LOCAL_PORT})",
        )
    send.add_argument("key")
    value = send.add_argument("value", help="the value; left out with --tombstone")
    send.add_argument(
        "--tombstone",
        action=_WithoutValue,
        value=value,
        help="write a record without a value, which deletes the key from a compacted topic",
    )
    read.add_argument("--follow", action="store_true", help="also print new records, until Ctrl-C")
    read.add_argument(
        "--offsets",
        action="store_true",
        help="print partition, offset and time in front of each record",
    )
    read.add_argument(
        "--headers", action="store_true", help="print name=value of the headers after each record"
    )
    read.add_json("print all parts of each record, as one line of JSON")
    for action in (create, list_, describe):
        action.add_json()


class _WithoutValue(argparse.Action):
    """The option ``--tombstone``: with it, the argument for the value is not required."""

    def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
        # If the value were optional, argparse would not find it after other options.
        self._value: argparse.Action = options.pop("value")
        super().__init__(option_strings, dest, nargs=0, default=False, **options)

    def __call__(self, _parser: object, namespace: argparse.Namespace, *_given: object) -> None:
        """Record that the option is given, and that the value is not required."""
        setattr(namespace, self.dest, True)
        self._value.required = False


def _add_run(actions: Actions) -> None:
    run = actions.add(
        "run",
        "run an application on this machine, and start it again when its files change; print the records",
        "statefun dev run",
        "statefun dev run app.py --conf spark.statefun.records-per-batch=100",
    )
    add_program(run)
    add_settings(run)
    run.add_argument(
        "--master",
        metavar="URL",
        default="local[*]",
        help="where Spark runs (default: on all cores of this machine)",
    )
    run.add_argument(
        "--port",
        type=int,
        default=LOCAL_PORT,
        help=f"the port of the broker, which is started if none listens there (default {LOCAL_PORT}); the environment "
        f"variable {ADDRESS_VARIABLE} names another broker",
    )
    run.add_argument(
        "--admin", default=str(_PAGE), help=f"the port of the live page (default {_PAGE})"
    )
    run.add_argument(
        "--open",
        action=argparse.BooleanOptionalAction,
        help="open the live page in the browser (default: in a terminal)",
    )
    run.add_argument(
        "--data", type=Path, default=_DATA, help=f"the folder for the records (default {_DATA})"
    )


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun dev``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    match options.action:
        case "run":
            # Other actions start sooner without PySpark.
            from statefun.dev.run_action import run_action  # noqa: PLC0415 - as above

            run_action(options)
        case "kafka":
            _serve(options)
        case "topic":
            _topic(options)
        case "send":
            if options.tombstone and options.value is not None:
                options.parser.error("give a value or --tombstone, not both")
            send_record(options.address, options.topic, options.key, options.value)
        case "read":
            read = follow_records if options.follow else placed_records
            for record in read(options.address, options.topic):
                print(_line(record, options), flush=options.follow)


def _serve(options: argparse.Namespace) -> None:
    # SIGTERM raises an exception, as Ctrl-C does, so that the broker ends before the command.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.fresh:
        forget(options.data)
    with ProgressLine("Starting Kafka") as progress:
        kafka = EmbeddedKafka(port=options.port, data=options.data, progress=progress.update)
        kafka.start()
    with kafka:
        present = cluster_topics(kafka.bootstrap_servers).topics
        for topic in options.topic:
            if topic not in present:
                kafka.create_topic(topic, partitions=options.partitions)
        print(
            f"Kafka is at localhost:{options.port}, and keeps its records in {options.data}; "
            "stop it with Ctrl-C",
            flush=True,
        )
        while kafka.running:
            time.sleep(_LOOK.total_seconds())
        raise PlatformError(
            f"the broker has ended unexpectedly; read its log, {kafka.log_file}, for the reason"
        )


def _topic(options: argparse.Namespace) -> None:
    match options.topic_action:
        case "create":
            for name in options.topic:
                new_topic(options.address, name, options.partitions)
                if not options.json:
                    print(f"created topic {name} with {counted(options.partitions, 'partition')}")
            if options.json:
                print_json(
                    [{"topic": name, "partitions": options.partitions} for name in options.topic]
                )
        case "list":
            topics = list_topics(options.address)
            if options.json:
                print_json(
                    [
                        {
                            "topic": each.name,
                            "partitions": len(each.offsets),
                            "records": each.records,
                        }
                        for each in topics
                    ]
                )
                return
            rows = [(each.name, f"{len(each.offsets)}", f"{each.records:,}") for each in topics]
            if rows:
                print_table([("topic", "partitions", "records"), *rows])
            print(f"{counted(len(rows), 'topic') if rows else 'no topics'} at {options.address}")
        case "describe":
            topic = describe_topic(options.address, options.topic)
            if options.json:
                print_json(
                    [
                        {"partition": number, "first_offset": first, "next_offset": end}
                        for number, (first, end) in enumerate(topic.offsets)
                    ]
                )
                return
            offsets = [
                (f"{number}", f"{first}", f"{end}", f"{end - first:,}")
                for number, (first, end) in enumerate(topic.offsets)
            ]
            print_table([("partition", "first offset", "next offset", "records"), *offsets])


def _line(record: PlacedRecord, options: argparse.Namespace) -> str:
    """Return the line that ``statefun dev read`` prints for a record."""
    time_ = None if record.timestamp is None else f"{record.timestamp:%Y-%m-%dT%H:%M:%S.%f}"[:-3]
    if options.json:
        return json.dumps(
            {
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": time_ and f"{time_}Z",
                "key": json_content(record.key),
                "value": json_content(record.value),
                "headers": [[name, json_content(value)] for name, value in record.headers],
            }
        )
    place = (f"{record.partition}/{record.offset}", f"{time_}Z" if time_ else "-")
    headers = ",".join(f"{printable(name)}={_text(value)}" for name, value in record.headers)
    cells = [
        *(place if options.offsets else ()),
        _text(record.key),
        _text(record.value),
        *((headers or "-",) if options.headers else ()),
    ]
    return "\t".join(cells)


def _text(content: bytes | None) -> str:
    return "-" if content is None else printable(content.decode(errors="backslashreplace"))
