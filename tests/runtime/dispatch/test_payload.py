# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import attrs
import pytest

from statefun import StatefulFunctions
from statefun.engine.program import Program
from statefun.module.model import Module
from statefun.runtime.dispatch.payload import Payload, process_versions
from statefun.sdk.errors import PlatformError
from statefun.sdk.failure import OnFailure


def test_a_worker_with_other_versions_is_refused() -> None:
    """The error names the versions of both, before anything of the application is loaded."""
    payload = Payload.of(Program.of(StatefulFunctions(), Module(), OnFailure.FAIL))
    other = attrs.evolve(payload, versions="Python 3.9, PySpark 4.2.0 and statefun 0.0.1")

    payload.load()
    with pytest.raises(
        PlatformError, match=r"has Python 3\.9, .* statefun 0\.0\.1, and a worker on"
    ) as refused:
        other.load()

    assert f"has {process_versions()}: install" in str(refused.value)
