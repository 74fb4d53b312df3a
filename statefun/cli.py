# SPDX-License-Identifier: Apache-2.0
"""The command ``statefun``: checks applications, shows state, handles dead letters, runs a broker and servers."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from statefun.console.command_parser import Actions, CommandParser
from statefun.console.completion_command import complete, completed_line
from statefun.console.installed import versions
from statefun.console.standard_streams import (
    give_up_output,
    is_of_output,
    output_failure,
    prepare_streams,
)
from statefun.sdk.errors import EngineError, StatefunError

_FAILED = 1
_USAGE = 2
_INTERRUPTED = 128 + signal.SIGINT
_PIPE_CLOSED = 128 + signal.SIGPIPE
"""The exit code if the reader of this program's output, such as ``head``, has ended."""


class _Command(NamedTuple):
    """A command of the command line."""

    module: str
    """The module of the command. It is imported only if its command is given, because a command starts at once if
    it imports only what it needs. Its ``add_arguments(parser)`` declares the arguments; ``run_command(options)``
    runs the command, and returns an exit code, or None for success."""
    task: str
    """What the command does, as a sentence without capital letter and full stop."""
    examples: Sequence[str]


_COMMANDS: Mapping[str, _Command] = {
    "new": _Command(
        "statefun.projects.new_command",
        "make the folder of a new application, with tests and a demo",
        ["statefun new my-shop"],
    ),
    "run": _Command(
        "statefun.projects.run_command",
        "run a program with Spark, as spark-submit does",
        ["statefun run", "statefun run --conf spark.statefun.available-now=true app.py"],
    ),
    "package": _Command(
        "statefun.projects.package_command",
        "pack a program for the machines of a cluster, and print the commands that run it there",
        ["statefun package app.py", "statefun package app.py --with aiohttp --output build"],
    ),
    "validate": _Command(
        "statefun.inspect.validate_command",
        "find all problems of an application before its start",
        ["statefun validate app.py --connect"],
    ),
    "schema": _Command(
        "statefun.inspect.schema_command",
        "print the JSON Schema of module files, for editors",
        ["statefun schema > module.schema.json"],
    ),
    "serve": _Command(
        "statefun.serving.serve_command",
        "serve a program's functions to a runtime that calls them over HTTP",
        ["statefun serve app.py --port 8000"],
    ),
    "dev": _Command(
        "statefun.dev.commands",
        "run an application and a Kafka broker on this machine, manage topics, write and read records",
        ["statefun dev run", "statefun dev kafka --topic users", "statefun dev send users ada Ada"],
    ),
    "outbox": _Command(
        "statefun.inspect.outbox_command",
        "list or remove records that are not published",
        ["statefun outbox list .statefun/app"],
    ),
    "ingress": _Command(
        "statefun.inspect.ingress_command",
        "list the ingresses of a checkpoint; rename or forget an ingress",
        ["statefun ingress list .statefun/app"],
    ),
    "watermark": _Command(
        "statefun.inspect.watermark_command",
        "print how far event time has come, and what holds the watermark since when",
        ["statefun watermark .statefun/app"],
    ),
    "trace": _Command(
        "statefun.inspect.trace_command",
        "show what has caused a record or an invocation, and what has come of it",
        ["statefun trace .statefun/app greetings/0/17"],
    ),
    "du": _Command(
        "statefun.inspect.du_command",
        "print what of a checkpoint takes how much space",
        ["statefun du .statefun/app"],
    ),
    "snapshot": _Command(
        "statefun.inspect.snapshot_command",
        "copy a checkpoint, also while its application runs",
        ["statefun snapshot .statefun/app backups/monday"],
    ),
    "restore": _Command(
        "statefun.inspect.restore_command",
        "make a new checkpoint from a snapshot",
        ["statefun restore backups/monday .statefun/app"],
    ),
    "rescale": _Command(
        "statefun.inspect.rescale_command",
        "divide the state into another number of partitions, while the application does not run",
        ["statefun rescale .statefun/app --state-partitions 8"],
    ),
    "dlq": _Command(
        "statefun.inspect.dlq_command",
        "list, show, replay, edit and drop dead letters",
        ["statefun dlq list --since 12h", "statefun dlq replay 0/17"],
    ),
    "state": _Command(
        "statefun.inspect.state_command",
        "show the state in a checkpoint, also while the application runs; repair it by hand",
        ["statefun state ls --program app.py"],
    ),
    "send": _Command(
        "statefun.inspect.send_command",
        "send a message to a function",
        ["statefun send com.example.docs/greeter/ada Ada --program app.py"],
    ),
    "status": _Command(
        "statefun.inspect.status_command",
        "print whether an application runs, how far it is, and what of it is paused",
        ["statefun status checkpoint", "statefun status checkpoint --check"],
    ),
    "top": _Command(
        "statefun.inspect.top_command",
        "show the rates of a running application's functions, partitions and egresses, anew every two seconds",
        ["statefun top", "statefun top 8083 --once"],
    ),
    "profile": _Command(
        "statefun.inspect.profile_command",
        "write a flame graph of the functions of a running application",
        ["statefun profile .statefun/app --duration 10s"],
    ),
    "pause": _Command(
        "statefun.inspect.pause_command",
        "let an ingress, an egress or an application wait",
        ["statefun pause checkpoint --egress com.example.docs/greets"],
    ),
    "resume": _Command(
        "statefun.inspect.resume_command",
        "let what was paused go on",
        ["statefun resume checkpoint --egress com.example.docs/greets"],
    ),
    "drain": _Command(
        "statefun.inspect.drain_command",
        "end an application once everything that it has read is delivered and published",
        ["statefun drain checkpoint"],
    ),
    "restart": _Command(
        "statefun.inspect.restart_command",
        "begin a new run of a running application",
        ["statefun restart checkpoint"],
    ),
    "stop": _Command(
        "statefun.inspect.stop_command",
        "end a running application",
        ["statefun stop checkpoint"],
    ),
    "completion": _Command(
        "statefun.console.completion_command",
        "print a script that completes commands, options and files in your shell",
        [
            'eval "$(statefun completion bash)"      # in ~/.bashrc',
            'eval "$(statefun completion zsh)"       # in ~/.zshrc, after compinit',
            "statefun completion fish | source       # in ~/.config/fish/config.fish",
        ],
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name.

    Returns:
        The exit code: 0 for success, 1 for an error, 130 after Ctrl-C. Wrong arguments end the program with 2.
    """
    given = sys.argv[1:] if arguments is None else arguments
    prepare_streams()
    try:
        status = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as head, has ended
        give_up_output()
        return _PIPE_CLOSED
    except StatefunError as error:
        failure = output_failure()
        # A command may have taken a failure of its output for one of the files that it reads.
        if failure is None or not is_of_output(error):
            print(f"statefun: {error}", file=sys.stderr)
        if failure is not None:
            print(f"statefun: {failure}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        shown = _shown(error)
        if shown is None:
            raise
        print(f"statefun: {shown}", file=sys.stderr)
        return _FAILED
    return status or 0


def _run(given: Sequence[str]) -> int | None:
    """Run a command; return its exit code, or None for success."""
    line = completed_line()
    if line is not None:
        complete(parser(_command_in(line.split()[1:])))
    program = parser(_command_in(given))
    if not given:
        program.print_help(sys.stderr)
        return _USAGE
    options, unknown = program.parse_known_args(given)
    if unknown:
        options.parser.refuse_unknown(unknown)
    status: int | None = _module(options.command).run_command(options)
    return status


def parser(names: Sequence[str] = tuple(_COMMANDS)) -> CommandParser:
    """Return the parser of the command line; it knows all commands, but the arguments of the named ones only."""
    statefun = CommandParser(
        prog="statefun",
        description="Runs, checks and inspects applications of stateful functions.",
        epilog="'statefun COMMAND --help' has the arguments of a command, and examples. Exit codes: 0 for success, 1 "
        "for an error or a negative result, 2 for wrong arguments, 130 after Ctrl-C.",
    )
    statefun.add_argument(
        "--version",
        action=_ShowVersions,
        nargs=0,
        help="print the versions of statefun, Python, PySpark and Java",
    )
    commands = Actions(statefun.add_subparsers(dest="command", metavar="command", required=True))
    for name, command in _COMMANDS.items():
        arguments = commands.add(name, command.task, *command.examples)
        if name in names:
            _module(name).add_arguments(arguments)
    return statefun


class _ShowVersions(argparse.Action):
    """The option ``--version``, which looks up the versions only when it is used."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from statefun import __compiled__  # noqa: PLC0415 - as above

        print(versions(is_compiled=__compiled__))
        parser.exit()


def _command_in(words: Sequence[str]) -> list[str]:
    """Return a list with the name of the command in the arguments; an empty list if they have none."""
    # The options of the program itself take no values, so the first word that is no option is the command.
    return [word for word in words if not word.startswith("-")][:1]


def _module(name: str) -> Any:
    return importlib.import_module(_COMMANDS[name].module)


def _shown(error: Exception) -> str | None:
    """Return the sentence for the user about an exception of Spark or of standard output; None for any other one."""
    if is_of_output(error):
        return output_failure()
    words = _words_of_spark(error)
    return None if words is None else str(EngineError(f"Spark has failed: {words}"))


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
