# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta

import pytest
from harness import KafkaHarness

from statefun.dev import EmbeddedKafka
from statefun.module.loader import parse_module
from statefun.runtime.ingress.watch import IngressWatch


@pytest.mark.broker
def test_a_cluster_that_stops_answering_and_answers_again_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line is logged when the ingress begins to wait, and one when it reads on."""
    caplog.set_level("INFO", "statefun")
    with EmbeddedKafka() as own:
        module = KafkaHarness(own, "").module({"users": ["t/f"]})
        watch = IngressWatch(parse_module(module).ingresses, interval=timedelta(0))
        watch.look()
        own.kill()
        watch.look()
        watch.look()
        own.restart()
        watch.look()
        watch.look()

    assert caplog.messages == [
        f"ingress test/in: no Kafka broker answers at {own_address(module)}; no records are read until one answers",
        f"ingress test/in: {own_address(module)} answers again",
    ]


def own_address(module: str) -> str:
    """Return the address that a module's only ingress reads from."""
    [ingress] = parse_module(module).ingresses
    return ingress.address
