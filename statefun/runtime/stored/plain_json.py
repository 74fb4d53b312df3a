# SPDX-License-Identifier: Apache-2.0
"""Converts values of columns to values that JSON can represent."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from statefun.sdk.printable import json_content


def plain_json(value: Any) -> Any:
    """Convert a value of a column for JSON: keys of maps to texts, bytes to a text or to base64.

    >>> from datetime import datetime
    >>> plain_json({"seen": datetime(2026, 1, 1), "raw": b"Ada"})
    {'seen': '2026-01-01T00:00:00', 'raw': 'Ada'}
    """
    if isinstance(value, dict):
        return {str(name): plain_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(each) for each in value]
    if isinstance(value, bytes):
        return json_content(value)
    if isinstance(value, date):
        return value.isoformat().replace("+00:00", "Z")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value
