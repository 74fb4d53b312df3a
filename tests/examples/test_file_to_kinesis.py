# SPDX-License-Identifier: Apache-2.0
"""The example that reads CSV files and writes to Kinesis."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable

import pytest
from submitting import EXAMPLES

from statefun import Address
from statefun.testing import TestedApplication

EXAMPLE = EXAMPLES / "file_to_kinesis"


@pytest.fixture
def app(statefun_app: Callable[..., TestedApplication]) -> TestedApplication:
    """Return the example with the rows of its file, as a file ingress reads them."""
    app = statefun_app(EXAMPLE / "app.py")
    with (EXAMPLE / "readings" / "2026-05-01.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            app.produce("readings", row["meter"], json.dumps(row))
    app.drain()
    return app


def test_what_was_consumed_between_readings_is_published(app: TestedApplication) -> None:
    """For each meter, with its name as the partition key."""
    published = {record.key: record.json() for record in app.egress("consumption")}

    assert published == {
        "north": {
            "meter": "north",
            "from": "2026-05-01T06:00:00+00:00",
            "to": "2026-05-01T18:00:00+00:00",
            "kwh": 6.75,
        },
        "south": {
            "meter": "south",
            "from": "2026-05-01T06:00:00+00:00",
            "to": "2026-05-02T06:00:00+00:00",
            "kwh": 2.0,
        },
    }


def test_a_row_that_is_no_reading_is_left_out(app: TestedApplication) -> None:
    """The other rows of its meter count."""
    last = app.state(Address("com.example.meters/meter", "south"))["last"]

    assert last.kwh == 312
