# SPDX-License-Identifier: Apache-2.0
"""``statefun top``: shows the rates of a running application's functions, partitions and egresses."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import attrs

from statefun.console.argument_types import argument
from statefun.console.command_parser import CommandParser
from statefun.inspect.admin_client import AdminClient
from statefun.module.yaml.durations import parse_duration
from statefun.runtime.admin.admin_tokens import VARIABLE
from statefun.runtime.http_server import ListenAddress
from statefun.runtime.terminal.table import table_lines, terminal_size

_PORT = 8083
"""The port of the documentation's examples, which is also that of Kafka Connect."""
_CLEARED = "\x1b[H\x1b[J"
"""Moves a terminal's cursor to the upper left corner, and clears the rest of the screen."""
_UNKNOWN = "-"
_STATUS = {"state", "batch", "counts", "seconds_since_commit"}
"""Members by which the status of an application is known."""
_TEXTS = 2
"""The number of lines above the tables."""
_Row = tuple[str, ...]
_Parts = Sequence[Mapping[str, Any]]


def add_arguments(top: CommandParser) -> None:
    """Add the arguments of ``statefun top`` to its parser."""
    top.add_argument(
        "address",
        nargs="?",
        type=argument(ListenAddress.parse),
        default=ListenAddress.parse(_PORT),
        help="where the application serves its admin API, as in its setting admin: a port of this machine, or "
        f"HOST:PORT (default: {_PORT}); a token comes from the variable {VARIABLE}",
    )
    top.add_argument(
        "--every",
        type=argument(_interval),
        default=timedelta(seconds=2),
        help="how often to look, such as 500ms (default: 2s)",
    )
    top.add_argument(
        "--once", action="store_true", help="look twice, print the rates between, and end"
    )
    top.add_json("print each look as one line of JSON")


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun top``, until Ctrl-C unless ``--once`` was given.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the application does not answer, or stops answering.
    """
    client = AdminClient(options.address, os.environ.get(VARIABLE, "").strip())
    before = _Look.of(client)
    while True:
        time.sleep(options.every.total_seconds())
        look = _Look.of(client)
        answers = look.since(before)
        lines = [json.dumps(answers)] if options.json else list(_lines(**answers))
        if sys.stdout.isatty() and not options.once and not options.json:
            columns, rows = terminal_size()
            print(_CLEARED + "\n".join(_fitted(lines, columns)[: rows - 1]), flush=True)
        else:
            print("\n".join(lines), flush=True)
        if options.once:
            return
        before = look


@attrs.frozen
class _Look:
    """The answers of an application's admin API at one moment."""

    at: float
    """The monotonic time of this machine, in seconds."""
    status: Mapping[str, Any]
    functions: _Parts
    ingresses: _Parts
    egresses: _Parts

    @classmethod
    def of(cls, client: AdminClient) -> _Look:
        status = client.get("/status")
        if not (isinstance(status, dict) and status.keys() >= _STATUS):  # of another server
            raise client.no_api()
        lists = map(client.get, ("/functions", "/ingresses", "/egresses"))
        return cls(time.monotonic(), status, *lists)

    def since(self, before: _Look) -> dict[str, Any]:
        """Return the answers, with the rates of functions and egresses since an earlier look.

        Args:
            before: the earlier look; a counter that a restart has set back since then has the rate 0.
        """
        seconds = self.at - before.at
        return {
            "status": self.status,
            "functions": _with_rates(self.functions, before.functions, "invocations", seconds),
            "ingresses": self.ingresses,
            "egresses": _with_rates(self.egresses, before.egresses, "records", seconds),
        }


def _with_rates(parts: _Parts, before: _Parts, count: str, seconds: float) -> _Parts:
    """Return the functions or egresses, each with the growth of its count per second since an earlier look."""
    counts = {each["name"]: each[count] for each in before}
    return [
        {
            **each,
            f"{count}_per_second": max(0, each[count] - counts.get(each["name"], 0)) / seconds,
        }
        for each in parts
    ]


def _lines(
    status: Mapping[str, Any], functions: _Parts, ingresses: _Parts, egresses: _Parts
) -> Iterator[str]:
    yield (
        f"{status['state'].lower()}, batch {status['batch']}, "
        f"last commit {status['seconds_since_commit']:.0f} s ago"
    )
    counts = status["counts"]
    yield (
        f"in {status['records_read_per_second']:,.0f}/s | out {status['records_published_per_second']:,.0f}/s | "
        f"lag {status['lag']:,} | backlog {status['backlog']:,} | calls under way {status['calls_under_way']:,} | "
        f"retries {counts['retries']:,} | dead letters {counts['dead_letters']:,}"
    )
    for rows in (_functions(functions), _partitions(ingresses), _egresses(egresses)):
        if len(rows) > 1:
            yield ""
            yield from table_lines(rows)


def _fitted(lines: Sequence[str], columns: int) -> list[str]:
    """Return lines that a terminal does not wrap, as it would scroll the first ones away; tables are cut.

    >>> _fitted(["running, batch 184", "in 194/s | out 452/s | lag 0", "", "function  calls/s"], 14)
    ['running, batch', '184', 'in 194/s | out', '452/s | lag 0', '', 'function  call']
    """
    texts, tables = lines[:_TEXTS], lines[_TEXTS:]
    wrapped = [part for text in texts for part in textwrap.wrap(text, columns)]
    return [*wrapped, *(line[:columns] for line in tables)]


def _functions(functions: _Parts) -> list[_Row]:
    busiest = sorted(functions, key=lambda each: (-each["invocations_per_second"], each["name"]))
    return [
        ("function", "calls/s", "calls", "mean", "retries", "failures"),
        *(
            (
                each["name"],
                f"{each['invocations_per_second']:,.1f}",
                f"{each['invocations']:,}",
                _UNKNOWN
                if each["mean_seconds"] is None
                else f"{each['mean_seconds'] * 1000:.3f} ms",
                f"{each['retries']:,}",
                ", ".join(f"{code} {count:,}" for code, count in sorted(each["failures"].items()))
                or "0",
            )
            for each in busiest
        ),
    ]


def _partitions(ingresses: _Parts) -> list[_Row]:
    partitions = [
        (each["lag"], ingress["name"], each)
        for ingress in ingresses
        for each in ingress["partitions"]
    ]
    partitions.sort(key=lambda each: (-each[0], each[1], each[2]["topic"], each[2]["partition"]))
    return [
        ("ingress", "topic", "partition", "next offset", "lag"),
        *(
            (name, each["topic"], each["partition"], f"{each['offset']:,}", f"{lag:,}")
            for lag, name, each in partitions
        ),
    ]


def _egresses(egresses: _Parts) -> list[_Row]:
    return [
        ("egress", "state", "records/s", "records", "waiting"),
        *(
            (
                each["name"],
                each["state"].lower(),
                f"{each['records_per_second']:,.1f}",
                f"{each['records']:,}",
                f"{each['waiting_records']:,}",
            )
            for each in egresses
        ),
    ]


def _interval(text: str) -> timedelta:
    interval = parse_duration(text)
    if not interval:
        raise ValueError("must be more than zero")
    return interval
