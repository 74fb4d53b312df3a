# SPDX-License-Identifier: Apache-2.0
"""The command ``statefun``: checks applications, shows state, handles dead letters, runs a broker and servers."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

from statefun.sdk.errors import EngineError, StatefunError

_PIPE_CLOSED = 128 + signal.SIGPIPE
"""The exit code if the reader of this program's output, such as ``head``, has ended."""


class _Command(NamedTuple):
    """A command of the command line."""

    module: str
    """The module of the command. It is imported only if its command is given, because a command starts at once if
    it imports only what it needs. Its ``add_arguments(parser)`` declares the arguments; ``run_command(options)``
    runs the command, and returns an exit code, or None for success."""
    help: str


_COMMANDS: Mapping[str, _Command] = {
    "validate": _Command(
        "statefun.inspect.validate_command",
        "find all problems of an application before its start",
    ),
    "schema": _Command(
        "statefun.inspect.schema_command", "print the JSON Schema of module files, for editors"
    ),
    "serve": _Command(
        "statefun.serving.serve_command",
        "serve a program's functions to a runtime that calls them over HTTP",
    ),
    "dev": _Command(
        "statefun.dev.commands",
        "run a Kafka broker on this machine, manage topics, write and read records",
    ),
    "outbox": _Command(
        "statefun.inspect.outbox_command", "list or remove records that are not published"
    ),
    "ingress": _Command(
        "statefun.inspect.ingress_command",
        "list the ingresses of a checkpoint; rename or forget an ingress",
    ),
    "watermark": _Command(
        "statefun.inspect.watermark_command",
        "print how far event time has come, and what holds the watermark since when",
    ),
    "du": _Command(
        "statefun.inspect.du_command", "print what of a checkpoint takes how much space"
    ),
    "snapshot": _Command(
        "statefun.inspect.snapshot_command",
        "copy a checkpoint, also while its application runs",
    ),
    "restore": _Command(
        "statefun.inspect.restore_command", "make a new checkpoint from a snapshot"
    ),
    "rescale": _Command(
        "statefun.inspect.rescale_command",
        "divide the state into another number of partitions, while the application does not run",
    ),
    "dlq": _Command(
        "statefun.inspect.dlq_command", "list, show, replay, edit and drop dead letters"
    ),
    "state": _Command(
        "statefun.inspect.state_command",
        "show the state in a checkpoint, also while the application runs; repair it by hand",
    ),
    "send": _Command("statefun.inspect.send_command", "send a message to a function"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; return the exit code: 0 for success, 1 for an error."""
    given = sys.argv[1:] if arguments is None else arguments
    # The options of the program itself take no values, so the first word that is no option is the command.
    options = parser([word for word in given if not word.startswith("-")][:1]).parse_args(given)
    try:
        status: int | None = _module(options.command).run_command(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as head, has ended
        # Python would write the rest of the buffer at its end, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except StatefunError as error:
        print(f"statefun: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        words = _words_of_spark(error)
        if words is None:
            raise
        print(f"statefun: {EngineError(f'Spark has failed: {words}')}", file=sys.stderr)
        return 1
    return status or 0


def parser(names: Sequence[str] = tuple(_COMMANDS)) -> argparse.ArgumentParser:
    """Return the parser of the command line; it knows all commands, but the arguments of the named ones only."""
    statefun = argparse.ArgumentParser(prog="statefun", description=__doc__)
    statefun.add_argument("--version", action="version", version=f"statefun {version('statefun')}")
    commands = statefun.add_subparsers(dest="command", metavar="command", required=True)
    for name, command in _COMMANDS.items():
        arguments = commands.add_parser(name, help=command.help)
        if name in names:
            _module(name).add_arguments(arguments)
    return statefun


def _module(name: str) -> Any:
    return importlib.import_module(_COMMANDS[name].module)


def _words_of_spark(error: Exception) -> str | None:
    """Return the first line of an error of Spark or its JVM; None if the error is not one."""
    if "pyspark" not in sys.modules:
        return None
    # The command has imported Spark already.
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    from statefun.runtime.spark_internals.error_texts import first_words  # noqa: PLC0415 - as above
    from statefun.runtime.spark_internals.jvm import JvmError  # noqa: PLC0415 - as above

    return first_words(error) if isinstance(error, (JvmError, PySparkException)) else None


if __name__ == "__main__":
    sys.exit(main())
