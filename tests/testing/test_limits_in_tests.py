# SPDX-License-Identifier: Apache-2.0
"""Rate limits of functions under test."""

from __future__ import annotations

from datetime import timedelta
from threading import Thread

from harness import wait

from statefun import Context, KafkaEgress, RateLimit, StatefulFunctions
from statefun.testing import InProcessApplication

OUT = KafkaEgress.for_id("test/out").with_kafka_address("localhost:1").build()


def test_a_rate_limit_takes_no_real_time() -> None:
    """In a test, time passes only when the test advances it; the limit of calls that run at a time is kept."""
    functions = StatefulFunctions()
    handled: list[int] = []

    @functions.bind("test/f", max_in_flight=1, rate_limit=RateLimit(1, per=timedelta(days=1)))
    async def call(ctx: Context, number: int) -> None:
        handled.append(number)

    app = InProcessApplication(functions=functions, components=[OUT])
    for number in range(3):
        app.send("test/f", f"{number}", number)
    begun = app.now
    Thread(target=app.drain, daemon=True).start()

    wait(lambda: len(handled) == 3)
    assert sorted(handled) == [0, 1, 2]
    assert app.now == begun
