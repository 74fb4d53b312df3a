# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from harness import KafkaHarness

from statefun.cli import main

pytestmark = pytest.mark.broker


def test_what_is_sent_is_read(kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]) -> None:
    """Key and value, a line each, and nothing that a terminal would obey."""
    topic, address = kafka.topic("users"), ["--address", kafka.address]

    assert main(["dev", "send", *address, topic, "Ada", "größer"]) == 0
    assert main(["dev", "send", *address, topic, "Alan", "\x1b[2J\n"]) == 0
    assert main(["dev", "read", *address, topic]) == 0

    assert capsys.readouterr().out == "Ada\tgrößer\nAlan\t\\x1b[2J\\n\n"


def test_a_topic_that_is_not_there_is_named(
    kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """For both directions."""
    for command in (["send", "nowhere", "Ada", "a"], ["read", "nowhere"]):
        assert main(["dev", *command, "--address", kafka.address]) == 1
        assert "[SF501] statefun dev: topic nowhere does not exist" in capsys.readouterr().err
