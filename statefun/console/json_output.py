# SPDX-License-Identifier: Apache-2.0
"""Prints results as JSON, for programs."""

from __future__ import annotations

import json
import sys
from typing import Any


def print_json(document: Any) -> None:
    """Print a JSON document."""
    json.dump(document, sys.stdout, indent=1, ensure_ascii=False)
    sys.stdout.write("\n")
