# SPDX-License-Identifier: Apache-2.0
"""A server of Kinesis's protocol for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kinesis_server import KINESALITE, KinesisHarness, kinesalite


@pytest.fixture(scope="session")
def kinesis_server() -> Iterator[KinesisHarness]:
    """Start a server, or skip where there is no Node.js."""
    if KINESALITE.missing_tools:
        pytest.skip(f"there is no {', '.join(KINESALITE.missing_tools)}")
    with kinesalite() as server:
        yield KinesisHarness(server.port)


@pytest.fixture
def kinesis(kinesis_server: KinesisHarness) -> KinesisHarness:
    """Return the server, whose streams each test names as it likes: they are all of one test."""
    for name in kinesis_server.client.list_streams()["StreamNames"]:
        kinesis_server.delete(name)
    return kinesis_server
