# SPDX-License-Identifier: Apache-2.0
"""``statefun schema``: prints the JSON Schema of module files."""

from __future__ import annotations

import argparse

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.module.schema import module_schema


def add_arguments(schema: CommandParser) -> None:
    """Add nothing to the parser of ``statefun schema``, which has no arguments."""


def run_command(_: argparse.Namespace) -> None:
    """Run ``statefun schema``."""
    print_json(module_schema())
