# SPDX-License-Identifier: Apache-2.0
"""The command ``statefun serve``, which serves the functions of a program over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from statefun.console.command_parser import CommandParser
from statefun.module.class_names import classes_of_one_name
from statefun.module.user_program import load_program
from statefun.sdk.errors import ConfigurationError, DefinitionError, PlatformError
from statefun.sdk.event_loop import run_to_end
from statefun.sdk.foreign_requests import is_this_machine
from statefun.sdk.log_lines import FunctionLogLimit, JsonLines, TextLines
from statefun.sdk.request_reply import check_served
from statefun.serving.asgi import HEALTH, MAX_REQUEST_BYTES, asgi

_OWN_LOGGERS = {"statefun", "uvicorn"}
_PORT = 8000
_GRACE_SECONDS = 30
"""How many seconds running requests may still take after Ctrl-C or SIGTERM."""


def add_arguments(serve: CommandParser) -> None:
    """Add the arguments of ``statefun serve`` to its parser."""
    serve.add_argument("app", type=Path, help="the program that registers functions")
    serve.add_argument(
        "--host", default="127.0.0.1", help="the address to listen at (default: this machine only)"
    )
    serve.add_argument(
        "--port", type=int, default=_PORT, help=f"the port, 0 for any free one (default {_PORT})"
    )
    serve.add_argument(
        "--max-request-bytes",
        type=int,
        default=MAX_REQUEST_BYTES,
        help=f"the size of the largest request that is accepted (default {MAX_REQUEST_BYTES:,})",
    )
    serve.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="log lines of text, or of JSON (default: text)",
    )
    serve.add_argument("--access-log", action="store_true", help="log every request")


def run_command(options: argparse.Namespace) -> None:
    """Serve functions until Ctrl-C or SIGTERM; running requests are answered before the end.

    Raises:
        StatefunError: if the program cannot be loaded, does not have exactly one registry of functions, or has
            functions that need event time or take classes of one name; or if uvicorn is missing, or the port
            cannot be used.
    """
    sys.path.insert(0, str(options.app.resolve().parent))  # functions may import while they run
    registries = load_program(options.app).registries
    if len(registries) != 1:
        problem = "has several registries of functions" if registries else "registers no function"
        raise ConfigurationError(
            f"{options.app} {problem}; decorate all functions with @function, or with bind of one "
            "StatefulFunctions"
        )
    (functions,) = registries
    for function in functions:
        check_served(function)
    problems = [*classes_of_one_name(functions)]
    if problems:
        raise DefinitionError("\n  ".join([f"{options.app} cannot be served", *problems]))
    try:
        uvicorn = importlib.import_module("uvicorn")
    except ModuleNotFoundError as error:
        raise PlatformError("serving needs uvicorn; run: pip install 'statefun[serve]'") from error
    sock = _listening(options.host, options.port)
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if options.log_format == "json" else _TextLines())
    handler.addFilter(FunctionLogLimit())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    names = ", ".join(sorted(str(function.typename) for function in functions))
    print(f"serving {names}", flush=True)
    url = _url(options.host, sock.getsockname()[1])
    print(f"at {url} ({HEALTH} shows whether the server runs)", flush=True)
    config = uvicorn.Config(
        asgi(
            functions,
            max_request_bytes=options.max_request_bytes,
            only_this_machine=is_this_machine(options.host),
        ),
        access_log=options.access_log,
        log_level="info" if options.access_log else "warning",
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    with sock:
        # With its own run(), a task of a function that raises SystemExit would end the server.
        run_to_end(lambda _: _served(uvicorn.Server(config).serve(sockets=[sock])))


async def _served(serving: Coroutine[Any, Any, None]) -> None:
    """Await the end of the server, and then cancel the tasks that functions have left running."""
    try:
        await serving
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if (
            left
        ):  # not all at any price: a task may never end, and then Ctrl-C would not help either
            await asyncio.wait(left, timeout=_GRACE_SECONDS)


class _TextLines(TextLines):
    """Formats log records as text; the server's own log records are shown without level and logger."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a log record."""
        if record.name.partition(".")[0] in _OWN_LOGGERS:
            return f"statefun: {logging.Formatter.format(self, record)}"
        return super().format(record)


def _url(host: str, port: int) -> str:
    """Return the URL of the server.

    >>> _url("::1", 8000), _url("127.0.0.1", 8000)
    ('http://[::1]:8000/', 'http://127.0.0.1:8000/')
    """
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise PlatformError(
            f"cannot listen at {host}, port {port}: {error}; choose another address with --host and --port"
        ) from error
