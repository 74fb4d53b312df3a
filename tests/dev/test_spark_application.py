# SPDX-License-Identifier: Apache-2.0
"""The test kit's application on Spark, in cases in which Spark is not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from harness import KafkaHarness

from statefun import Address, Context, DefinitionError, KafkaError, Message, StatefulFunctions
from statefun.dev.spark_application import SparkApplication
from statefun.module.loader import parse_module
from statefun.testing.tested import LoadedProgram


@pytest.mark.broker
def test_a_record_that_the_broker_refuses_is_named(kafka: KafkaHarness, tmp_path: Path) -> None:
    """The records of a test are written or it fails: none is missing silently."""
    topic, functions = f"small-{uuid4().hex}", StatefulFunctions()
    kafka.broker.create_topic(topic, config={"max.message.bytes": "200"})

    @functions.bind("t.fns/a")
    def nothing(ctx: Context, message: Message) -> None:
        pass

    module = parse_module(kafka.module({topic: ["t.fns/a"]}))
    app = SparkApplication(LoadedProgram(functions, module), kafka.broker, tmp_path)
    app.produce(topic, "Ada", "x" * 1000)

    with pytest.raises(KafkaError, match=rf"refuses 1 of .* topic {topic}: .*too large"):
        app.drain()


@pytest.mark.broker
def test_wrong_arguments_are_told_as_in_this_process(kafka: KafkaHarness, tmp_path: Path) -> None:
    """By the call that has them, before anything is written or run."""
    topic, functions = f"wrong-{uuid4().hex}", StatefulFunctions()
    functions.register("t.fns/a", lambda ctx, message: None)
    module = parse_module(kafka.module({topic: ["t.fns/a"]}))
    app: Any = SparkApplication(LoadedProgram(functions, module), kafka.broker, tmp_path)

    with pytest.raises(DefinitionError, match="the timestamp of a record must be a datetime"):
        app.produce(topic, "Ada", "x", timestamp=5)
    with pytest.raises(DefinitionError, match=r"advance\(hours=3\), not nothing"):
        app.advance()
    with pytest.raises(DefinitionError, match="the argument of state must be an Address"):
        app.state("t.fns/a")
    with pytest.raises(DefinitionError, match="send takes the typename of a function"):
        app.send(Address("t.fns/a", "Ada"), "Ada", 5)
