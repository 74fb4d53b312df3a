# SPDX-License-Identifier: Apache-2.0
"""``statefun schema``: prints the JSON Schema of module files."""

from __future__ import annotations

import argparse
import json

from statefun.module.schema import module_schema


def add_arguments(schema: argparse.ArgumentParser) -> None:
    """Add nothing to the parser of ``statefun schema``, which has no arguments."""


def run_command(_: argparse.Namespace) -> None:
    """Run ``statefun schema``."""
    print(json.dumps(module_schema(), indent=1))
