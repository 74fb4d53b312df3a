# SPDX-License-Identifier: Apache-2.0
"""Ingresses that begin when others have been read: nothing of theirs is read before, and nothing is lost."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from harness import KafkaHarness, run

from statefun import Context, KafkaEgressMessage, StatefulFunctions
from statefun.joins import Table
from statefun.module.loader import parse_module
from statefun.module.location import Location
from statefun.module.model import KafkaIngress, Module
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.pauses import Pausable, change_paused
from statefun.runtime.ingress.bootstrapping import Bootstrap
from statefun.runtime.ingress.declared import REPLAYS
from statefun.sdk.address import TypeName

TIMEOUT = timedelta(seconds=10)


@dataclass
class Number:
    """What is joined with a row."""

    value: int


def ingress(name: str, *names: str) -> KafkaIngress:
    """Return an ingress that begins from others."""
    begins_from = tuple(TypeName("t", each) for each in names)
    place = Location("module.yaml", 1, 1)
    return KafkaIngress(TypeName("t", name), "kafka:9092", (), place, bootstrap_from=begins_from)


def test_an_ingress_is_held_until_all_partitions_of_the_others_are_read() -> None:
    """One that others wait for may itself wait; the ends are those of the start, however much comes later."""
    ingresses = [ingress("orders", "rows", "codes"), ingress("rows", "codes"), ingress("codes")]
    bootstrap = Bootstrap(
        ingresses, {"t/rows": {("rows", "0"): 3, ("rows", "1"): 5}, "t/codes": {("codes", "0"): 1}}
    )

    def held() -> list[str]:
        return [str(each.id) for each in ingresses if bootstrap.holds(str(each.id))]

    assert held() == ["t/orders", "t/rows"]
    assert bootstrap.waits() == {"t/orders": ["t/rows", "t/codes"], "t/rows": ["t/codes"]}
    bootstrap.look([None, {"rows": {"0": 0, "1": 0}}, {"codes": {"0": 7}}])
    assert held() == ["t/orders"]
    bootstrap.look([None, {"rows": {"0": 3, "1": 4}}, {"codes": {"0": 7}}])
    assert held() == ["t/orders"]
    assert not bootstrap.is_complete
    bootstrap.look([None, {"rows": {"0": 2, "1": 6}}, {"codes": {"0": 7}}])  # what was read is read
    assert (held(), bootstrap.waits()) == ([], {})
    assert bootstrap.is_complete


def test_a_partition_that_was_deleted_holds_nobody() -> None:
    """Its records cannot be read any more; one that no micro-batch has known yet is new."""
    bootstrap = Bootstrap([ingress("orders", "rows"), ingress("rows")], {"t/rows": {("a", "0"): 3}})

    bootstrap.look([{}, {"b": {"0": 1}}])  # planned by an earlier run
    assert bootstrap.holds("t/orders")
    bootstrap.look([{}, {"a": {"0": 1}, "b": {"0": 1}}])
    assert bootstrap.holds("t/orders")
    bootstrap.look([{}, {"b": {"0": 1}}])

    assert bootstrap.is_complete


def test_replays_wait_for_all_tables(caplog: pytest.LogCaptureFixture) -> None:
    """A dead letter whose row was missing finds it then; the log says what begins, once it does."""
    caplog.set_level(logging.INFO, "statefun")
    ingresses = [ingress("orders", "rows", "codes"), ingress("rows"), ingress("codes")]
    bootstrap = Bootstrap(ingresses, {"t/rows": {("r", "0"): 1}, "t/codes": {("c", "0"): 1}})

    bootstrap.look([None, {"r": {"0": 1}}, {"c": {"0": 0}}])
    assert bootstrap.holds(str(REPLAYS))
    bootstrap.look([None, {"r": {"0": 1}}, {"c": {"0": 1}}])

    assert not bootstrap.holds(str(REPLAYS))
    assert caplog.messages[-2:] == ["t/rows is read", "t/codes is read: t/orders begins"]


@pytest.mark.broker
def test_the_ends_are_those_of_the_start(kafka: KafkaHarness) -> None:
    """They are of partitions with records that are not read yet, and of none after a stop."""
    topic = kafka.topic("rows", 4)
    for partition, count in enumerate([3, 0, 5, 2]):
        kafka.send(topic, [("k", "v")] * count, partition=partition)
    rows = parse_module(kafka.module({topic: ["t/rows"]})).ingresses[0]
    orders = attrs.evolve(rows, id=TypeName("t", "orders"), bootstrap_from=(rows.id,))
    partitions = [{topic: [0, 1, 2, 3]}] * 2
    start = {topic: {"0": -2, "1": -2, "2": 4, "3": -1}}

    def decided(stop: dict[str, dict[str, int]] | None) -> dict[str, dict[tuple[str, str], int]]:
        bootstrap = Bootstrap.decide(
            [rows, orders], partitions, [start, start], [stop, None], TIMEOUT
        )
        return bootstrap._unread  # noqa: SLF001 - what it waits for

    assert decided(None) == {str(rows.id): {(topic, "0"): 3, (topic, "2"): 5}}
    assert decided({topic: {"0": 2, "1": 0, "2": 4, "3": 2}}) == {str(rows.id): {(topic, "0"): 2}}
    start[topic].pop("0")  # as of a partition that is new since the last run
    assert decided(None) == {str(rows.id): {(topic, "0"): 3, (topic, "2"): 5}}


def joined(out: str) -> StatefulFunctions:
    """Return a table, and what joins numbers with it."""
    functions = StatefulFunctions()
    rows = Table("test/rows", str, functions=functions)

    @rows.join
    def join(ctx: Context, number: Number, row: str | None) -> None:
        ctx.send(
            KafkaEgressMessage(
                "test/out", topic=out, key=ctx.address.id, value=f"{number.value} {row}"
            )
        )

    return functions


def module(kafka: KafkaHarness, rows: str, numbers: str) -> Module:
    """Return a module in which the numbers wait for the rows."""
    text = kafka.module({rows: ["test/rows"]}, group="rows").replace("test/in", "test/table")
    of_rows, _, egress = text.partition("---\n")
    of_numbers = kafka.module({numbers: ["test/rows"]}, group="numbers").partition("---\n")[0]
    of_numbers = of_numbers.replace(
        "valueType: io.statefun.types/string",
        "valueType: io.statefun.python/Number, valueFormat: {type: json}",
    )
    of_numbers += "  bootstrapFrom: [test/table]\n"
    of_rows = of_rows.replace("valueType: io.statefun.types/string", "valueFormat: {type: text}")
    return parse_module(f"{of_numbers}---\n{of_rows}---\n{egress}")


@pytest.mark.long(minutes=0.6)
@pytest.mark.broker
@pytest.mark.spark
def test_a_table_is_complete_when_its_stream_begins(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the first start and at a later one; a stream waits for a table that is paused, and is read by a later run."""
    caplog.set_level(logging.INFO, "statefun")
    rows, numbers, out = kafka.topic("rows", 2), kafka.topic("numbers"), kafka.topic("out")
    keys = [f"key{number}" for number in range(50)]
    application = module(kafka, rows, numbers), joined(out), checkpoint

    def values() -> list[str]:
        return sorted(record.value for record in kafka.receive(out))

    for turn in range(2):
        for partition in range(2):
            mine = keys[partition::2]
            kafka.send(rows, [(key, "old") for key in mine * 5], partition=partition)
            kafka.send(rows, [(key, f"new{turn}") for key in mine], partition=partition)
        kafka.send(numbers, [(key, f'{{"value": {turn}}}') for key in keys])
        run(*application, records_per_batch=40)

    expected = [f"{turn} new{turn}" for turn in range(2) for _ in keys]
    assert values() == expected
    assert caplog.text.count("test/table is read: test/in begins") == 2

    kafka.send(rows, [("key0", "newest")], partition=0)
    kafka.send(numbers, [("key0", '{"value": 2}')])
    folder = Folder.at(checkpoint)
    change_paused(folder, Pausable.INGRESS, "test/table", is_paused=True)
    run(*application)
    assert values() == expected
    change_paused(folder, Pausable.INGRESS, "test/table", is_paused=False)
    run(*application)
    assert values() == [*expected, "2 newest"]
