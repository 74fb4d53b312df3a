# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from submitting import EXAMPLES

from statefun.dev import EmbeddedKafka

sys.path.insert(0, str(EXAMPLES))  # tests import the modules beside the programs


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedKafka]:
    """Run a broker of the module's own: the example's topics have fixed names."""
    with EmbeddedKafka() as broker:
        yield broker
