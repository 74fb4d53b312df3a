# SPDX-License-Identifier: Apache-2.0
"""Turns the readings of meters, in CSV files, into what was consumed, in a Kinesis stream.

``spark-submit --conf spark.statefun.available-now=true app.py`` reads the files that are new since the
last run.
"""

import json
from datetime import datetime

import attrs

import statefun
from statefun import Context, KinesisEgressMessage, State, function


@attrs.frozen
class Reading:
    """A row of a file; module.yaml makes a number of the text of ``kwh``."""

    meter: str
    read_at: datetime
    kwh: float


class Meter(State):
    """The last reading of a meter."""

    last: Reading | None = None


@function("com.example.meters/meter")
def consume(ctx: Context, reading: Reading, meter: Meter) -> None:
    """Publish what a meter has counted since its last reading."""
    last, meter.last = meter.last, reading
    if last is None:
        return
    consumption = {
        "meter": ctx.address.id,
        "from": last.read_at.isoformat(),
        "to": reading.read_at.isoformat(),
        "kwh": reading.kwh - last.kwh,
    }
    ctx.send(
        KinesisEgressMessage(
            "com.example.meters/consumption",
            stream="consumption",
            partition_key=ctx.address.id,
            value=json.dumps(consumption),
        )
    )


if __name__ == "__main__":
    statefun.run()
