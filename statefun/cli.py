# SPDX-License-Identifier: Apache-2.0
"""The command ``statefun``: checks applications, shows state, handles dead letters, runs a broker and servers."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import attrs
from pyspark.errors import PySparkException

from statefun.dev import commands as dev_commands
from statefun.inspect import (
    dlq_command,
    du_command,
    ingress_command,
    outbox_command,
    rescale_command,
    snapshot_command,
    state_command,
)
from statefun.inspect.clusters import cluster_findings, position_findings
from statefun.inspect.connector_checks import connector_findings
from statefun.inspect.endpoint_checks import endpoint_findings
from statefun.inspect.published_markers import marker_findings
from statefun.inspect.stored_findings import checkpoint_findings
from statefun.inspect.validation import Validation, declared_module, validate
from statefun.module.model import Module
from statefun.module.schema import module_schema
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.spark_internals.error_texts import first_words
from statefun.runtime.spark_internals.jvm import JvmError
from statefun.runtime.terminal.table import counted
from statefun.sdk.errors import ConfigurationError, EngineError, StatefunError
from statefun.serving import serve_command

_PATIENCE = timedelta(seconds=15)
"""How long ``validate`` waits for the answer of a cluster or another server."""

_PIPE_CLOSED = 128 + signal.SIGPIPE
"""The exit code if the reader of this program's output, such as ``head``, has ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; return the exit code: 0 for success, 1 for an error."""
    commands = parser()
    options = commands.parse_args(arguments)
    problem = dlq_command.problem_of(options) if options.command == "dlq" else None
    if problem is not None:
        commands.error(problem)
    try:
        status = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as head, has ended
        # Python would write the rest of the buffer at its end, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except StatefunError as error:
        print(f"statefun: {error}", file=sys.stderr)
        return 1
    except (JvmError, PySparkException) as error:
        print(
            f"statefun: {EngineError(f'Spark has failed: {first_words(error)}')}", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        return 130
    return status


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "dev": dev_commands.run_command,
    "du": du_command.run_command,
    "ingress": ingress_command.run_command,
    "outbox": outbox_command.run_command,
    "rescale": rescale_command.run_command,
    "restore": snapshot_command.run_command,
    "serve": serve_command.run_command,
    "snapshot": snapshot_command.run_command,
    "state": state_command.run_command,
}
"""The commands that end without an error or with an exception."""


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "schema":
            print(json.dumps(module_schema(), indent=1))
        case "validate":
            return _validate(options)
        case "dlq":
            return dlq_command.run_command(options, _module)
        case command:
            _COMMANDS[command](options)
    return 0


def _module(files: Sequence[Path]) -> Module:
    return declared_module(*_app_and_modules(files))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line of ``statefun``."""
    statefun = argparse.ArgumentParser(prog="statefun", description=__doc__)
    statefun.add_argument("--version", action="version", version=f"statefun {version('statefun')}")
    commands = statefun.add_subparsers(dest="command", metavar="command", required=True)
    validate_ = commands.add_parser(
        "validate", help="find all problems of an application before its start"
    )
    validate_.add_argument(
        "files",
        nargs="*",
        type=Path,
        help="a program (.py), and module files (default: module.yaml in the program's folder, or "
        "in this folder)",
    )
    validate_.add_argument("--json", action="store_true", help="print the findings as JSON")
    validate_.add_argument(
        "--connect",
        action="store_true",
        help="check the clusters (topics, rights, ...), streams, folders and endpoints, too",
    )
    validate_.add_argument(
        "--checkpoint",
        help="compare the application with the state in this checkpoint: a folder or its URI",
    )
    commands.add_parser("schema", help="print the JSON Schema of module files, for editors")
    serve_command.add_command(commands)
    dev_commands.add_commands(commands)
    outbox_command.add_command(commands)
    ingress_command.add_command(commands)
    du_command.add_command(commands)
    snapshot_command.add_commands(commands)
    rescale_command.add_command(commands)
    dlq_command.add_command(commands)
    state_command.add_command(commands)
    return statefun


def _app_and_modules(files: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    """Divide files into the program (None if no file ends with ``.py``) and the module files.

    Raises:
        ConfigurationError: if more than one file ends with ``.py``.
    """
    apps = [file for file in files if file.suffix == ".py"]
    if len(apps) > 1:
        raise ConfigurationError(
            f"give at most one program (a file that ends with .py), not {len(apps)}"
        )
    return apps[0] if apps else None, [file for file in files if file not in apps]


def _validate(options: argparse.Namespace) -> int:
    validation = validate(*_app_and_modules(options.files))
    if options.connect and validation.module is not None:
        validation.findings += cluster_findings(validation.module, _PATIENCE)
        validation.findings += connector_findings(validation.module, _PATIENCE)
        validation.findings += endpoint_findings(validation.module, validation.functions)
    if options.checkpoint and validation.module is not None:
        checkpoint = Folder.at(options.checkpoint)
        validation.findings += checkpoint_findings(
            checkpoint, validation.module, validation.functions
        )
        if options.connect:
            validation.findings += position_findings(checkpoint, validation.module, _PATIENCE)
            validation.findings += marker_findings(checkpoint, validation.module, _PATIENCE)
    if options.json:
        findings = [
            {"severity": finding.severity, **attrs.asdict(finding.problem)}
            for finding in validation.findings
        ]
        print(json.dumps({"valid": validation.is_valid, "findings": findings}, indent=1))
    else:
        for finding in validation.findings:
            print(finding)
        print(_conclusion(validation))
    return 0 if validation.is_valid else 1


def _conclusion(validation: Validation) -> str:
    counts = Counter(finding.severity for finding in validation.findings)
    findings = ", ".join(counted(count, word) for word, count in sorted(counts.items()))
    parts = []
    if validation.module is not None:
        parts += [counted(len(validation.module.all_ingresses), "ingress", "es")]
        parts += [counted(len(validation.module.all_egresses), "egress", "es")]
        if validation.module.endpoints:
            parts += [counted(len(validation.module.endpoints), "endpoint")]
    if validation.functions is not None:
        registered = [each for each in validation.functions if each.transport is None]
        parts += [counted(len(registered), "function")]
    checked_parts = f" ({', '.join(parts)})" if parts else ""
    verdict = "valid" if validation.is_valid else "not valid"
    return f"{verdict}{checked_parts}: {findings or 'all is well'}"


if __name__ == "__main__":
    sys.exit(main())
