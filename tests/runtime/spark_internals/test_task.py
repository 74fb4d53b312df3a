# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.runtime.spark_internals.task import batch_number


def test_no_batch_is_made_up() -> None:
    """Code that runs outside of a streaming query's task is not part of batch 0."""
    with pytest.raises(AssertionError, match="only in a task of a streaming query"):
        batch_number()
