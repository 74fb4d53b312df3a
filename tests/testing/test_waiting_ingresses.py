# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from statefun import Context, KafkaEgressMessage, State, StatefulFunctions
from statefun.testing import InProcessApplication

MODULE = """
kind: io.statefun.kafka.v1/ingress
spec:
  id: t/rows
  address: localhost:1
  consumerGroupId: a
  topics:
    - {topic: rows, valueFormat: {type: text}, targets: [t/f]}
---
kind: io.statefun.kafka.v1/ingress
spec:
  id: t/orders
  address: localhost:1
  consumerGroupId: a
  bootstrapFrom: [t/rows]
  topics:
    - {topic: orders, valueFormat: {type: text}, targets: [t/f]}
---
kind: io.statefun.kafka.v1/egress
spec: {id: t/out, address: "localhost:1"}
"""


class Row(State):
    """The row of a key."""

    text: str = ""


def start(tmp_path: Path, seed: int) -> InProcessApplication:
    """Start an application whose function answers orders with the row of their key."""
    functions = StatefulFunctions()

    @functions.bind("t/f")
    def f(ctx: Context, text: str, row: Row) -> None:
        if ctx.record is not None and ctx.record.topic == "rows":
            row.text = text
        else:
            ctx.send(KafkaEgressMessage("t/out", topic="out", value=f"{text} {row.text}"))

    (tmp_path / "module.yaml").write_text(MODULE)
    return InProcessApplication(functions=functions, module=tmp_path / "module.yaml", seed=seed)


@pytest.mark.parametrize("rows_first", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_an_ingress_reads_after_those_in_its_bootstrap_from(
    tmp_path: Path, seed: int, rows_first: bool
) -> None:
    """Each order finds the rows that were there at the start, whatever the order of messages is."""
    app = start(tmp_path, seed)
    keys = ["ada", "bob", "eve"]
    topics = ["rows", "orders"] if rows_first else ["orders", "rows"]
    for topic in topics:
        for key in keys:
            app.produce(topic, key, topic)

    app.drain()

    assert [record.text for record in app.egress("out")] == ["orders rows"] * len(keys)


def test_later_records_of_both_ingresses_are_read_side_by_side(tmp_path: Path) -> None:
    """As on Spark: only the rows that are there when the application starts come first."""
    found = set()
    for seed in range(20):
        app = start(tmp_path, seed)
        app.drain()
        app.produce("orders", "ada", "order")
        app.drain()
        app.produce("orders", "ada", "order")
        app.produce("rows", "ada", "row")
        app.drain()
        found.add(app.egress("out")[1].text)

    assert found == {"order ", "order row"}
