# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.engine.letters import TARGET_TYPE_HEADER
from statefun.module.loader import parse_module
from statefun.runtime.letters.dead_letter import DeadLetter
from statefun.runtime.letters.replay_routes import ReplayRoutes
from statefun.sdk.errors import ConfigurationError

MODULE = """
kind: io.statefun.file.v1/ingress
spec:
  id: test/in
  files: [{path: /data, format: {type: lines}, valueType: test/A, targets: [test/f]}]
---
kind: io.statefun.kafka.v1/egress
spec: {id: test/out, address: kafka:9092, deadLetterTopic: dead, replayTopic: again}
"""


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        ("test/f", "which is not a Kafka topic; replay it with --to-target"),
        (None, "it has no target: write the record to /data again"),
    ],
)
def test_letters_of_files_are_not_replayed_into_them(target: str | None, advice: str) -> None:
    """The error has the advice to use --to-target, or to write the record again."""
    module = parse_module(MODULE)
    routes = ReplayRoutes(module, module.egresses[0], (), to_target=False)
    headers: list[tuple[str, str | bytes | None]] = [("statefun-topic", b"/data")]
    if target is not None:
        headers.append((TARGET_TYPE_HEADER, target.encode()))
    letter = DeadLetter.of(0, 7, b"k", b"v", headers)

    with pytest.raises(ConfigurationError, match="dead letter 0/7 came from /data") as raised:
        routes.replay(letter)
    assert raised.value.message.endswith(advice)
