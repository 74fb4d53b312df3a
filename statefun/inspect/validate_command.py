# SPDX-License-Identifier: Apache-2.0
"""``statefun validate``: finds the problems of an application before its start."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import attrs

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.inspect.validation import Validation, program_and_modules, validate
from statefun.runtime.terminal.table import counted


def add_arguments(validate_: CommandParser) -> None:
    """Add the arguments of ``statefun validate`` to its parser."""
    validate_.add_argument(
        "files",
        nargs="*",
        type=Path,
        help="a program (.py), and module files (default: module.yaml in the program's folder, or "
        "in this folder)",
    )
    validate_.add_json()
    validate_.add_argument(
        "--connect",
        action="store_true",
        help="check the clusters (topics, rights, ...), streams, folders and endpoints, too",
    )
    validate_.add_argument(
        "--checkpoint",
        help="compare the application with the state in this checkpoint: a folder or its URI",
    )


def run_command(options: argparse.Namespace) -> int:
    """Run ``statefun validate``; return 0 if the application is valid, else 1.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    validation = validate(*program_and_modules(options.files))
    if validation.module is not None and (options.connect or options.checkpoint):
        # They need Spark's classes and Kafka's client, for which the help would wait.
        from statefun.inspect.outside_findings import outside_findings  # noqa: PLC0415 - see above

        validation.findings += outside_findings(
            validation.module, validation.functions, options.checkpoint, connects=options.connect
        )
    if options.json:
        findings = [
            {"severity": finding.severity, **attrs.asdict(finding.problem)}
            for finding in validation.findings
        ]
        print_json({"valid": validation.is_valid, "findings": findings})
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
