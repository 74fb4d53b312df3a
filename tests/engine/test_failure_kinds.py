# SPDX-License-Identifier: Apache-2.0
"""The kinds by which failures are counted and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

import statefun
from statefun.engine.failures import FailedMessage
from statefun.sdk.errors import FunctionError

OWN = Path(statefun.__file__).parent


@pytest.mark.parametrize(
    ("files", "place"),
    [
        (("/app/orders.py", f"{OWN}/sdk/values.py"), " in orders.py, line 7"),
        (("statefun/sdk/handlers.py",), ""),  # as compiled modules have it
        ((), ""),
    ],
    ids=["function", "value", "none"],
)
def test_failures_have_a_place_outside_of_statefun(files: tuple[str, ...], place: str) -> None:
    """With the name of the file alone: machines have other folders."""
    trace = "".join(f'  File "{file}", line 7, in f\n    x\n' for file in files)
    error = FunctionError("it failed")
    failed = FailedMessage(
        b"Ada\0a.b/c", None, "t/v", b"", None, error, "ValueError", traceback=trace
    )
    assert failed.kind == f"a.b/c ValueError{place}"
