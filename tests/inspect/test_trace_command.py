# SPDX-License-Identifier: Apache-2.0
"""``statefun trace``, on what a real application has noted."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from harness import KafkaHarness, run
from local_servers import free_port

from statefun import Address, Context, KafkaEgressMessage, Message, StatefulFunctions
from statefun.cli import main
from statefun.dev import EmbeddedKafka
from statefun.runtime.stored import trace_search

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def functions(out: str) -> StatefulFunctions:
    """Return functions that send messages over several hops, one of which takes long, and a record at the end."""
    registry = StatefulFunctions()

    @registry.bind("test.fns/entry")
    def entry(ctx: Context, message: Message) -> None:
        for hop in ("a", "b"):
            ctx.send(Address("test.fns", "hop", f"{ctx.address.id}-{hop}"), "3")
        ctx.send(Address("test.fns", "slow", ctx.address.id), "x")

    @registry.bind("test.fns/hop")
    def hop(ctx: Context, message: Message) -> None:
        left = int(message.as_string())
        if left:
            ctx.send(Address("test.fns", "hop", f"{ctx.address.id}{left}"), str(left - 1))
        else:
            ctx.send(KafkaEgressMessage("test/out", topic=out, key=ctx.address.id, value="end"))

    @registry.bind("test.fns/slow", detach_after=timedelta(0))
    async def slow(ctx: Context, message: Message) -> None:
        await asyncio.sleep(0.1)
        if ctx.address.id == "bad":
            raise ValueError("no such thing")
        ctx.send(KafkaEgressMessage("test/out", topic=out, key=ctx.address.id, value="slow"))

    return registry


@pytest.fixture(scope="module")
def application(
    broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, str, str]:
    """Run an application once; return its folder, and the topics of its records, results and dead letters."""
    kafka, folder = KafkaHarness(broker, prefix="traced"), tmp_path_factory.mktemp("traced")
    users, out, dead = kafka.topic("users"), kafka.topic("out"), kafka.topic("dead")
    module = kafka.module({users: ["test.fns/entry"]}, dead_letters=dead)
    (folder / "module.yaml").write_text(module)
    kafka.send(users, [("ada", b"Ada"), ("bad", b"Bad")])
    run(
        module,
        functions(out),
        checkpoint=folder / "checkpoint",
        trace_journal="1m",
    )
    return folder, users, out, dead


def traced(capsys: pytest.CaptureFixture[str], folder: Path, what: str, *options: str) -> list[str]:
    """Run the command; return its lines without times."""
    module = ["--module", str(folder / "module.yaml")]
    assert main(["trace", str(folder / "checkpoint"), what, *module, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [re.sub(r"  batch \d+, [-\d]+ [:.\d]+\+00:00", "", line) for line in lines]


def test_a_record_shows_what_has_caused_it_and_what_else_has_come_of_that(
    application: tuple[Path, str, str, str],
    kafka: KafkaHarness,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The tree is the same from its record, from each record at its ends, and from each address."""
    folder, users, out, _ = application
    keys = [each.key for each in kafka.receive(out)]
    place = keys.index("ada")

    lines = traced(capsys, folder, f"{out}/0/{place}")

    assert lines == [
        f"{users}/0/0",
        "└─ test.fns/entry/ada",
        "   ├─ test.fns/hop/ada-a",
        "   │  └─ test.fns/hop/ada-a3",
        "   │     └─ test.fns/hop/ada-a32",
        "   │        └─ test.fns/hop/ada-a321",
        f"   │           └─ record to {out}, key ada-a321",
        "   ├─ test.fns/hop/ada-b",
        "   │  └─ test.fns/hop/ada-b3",
        "   │     └─ test.fns/hop/ada-b32",
        "   │        └─ test.fns/hop/ada-b321",
        f"   │           └─ record to {out}, key ada-b321",
        "   └─ test.fns/slow/ada  <--",
        f"      └─ record to {out}, key ada",
    ]
    plain = [line.removesuffix("  <--") for line in lines]
    for what in (f"{users}/0/0", "test.fns/hop/ada-b32"):
        assert [line.removesuffix("  <--") for line in traced(capsys, folder, what)] == plain
    document = json.loads("".join(traced(capsys, folder, "test.fns/slow/ada", "--json")))
    found = {each["id"]: each for each in document["invocations"]}
    assert len(found) == 10
    assert [found[span]["address"] for span in document["asked"]] == ["test.fns/slow/ada"]
    assert (document["is_cut"], document["left_out"]) == (False, 0)


def test_a_dead_letter_shows_the_invocation_that_has_failed(
    application: tuple[Path, str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its header has the id of that invocation."""
    folder, users, _, dead = application

    lines = traced(capsys, folder, f"{dead}/0/0")

    assert lines[0] == f"{users}/0/1"
    failed = next(number for number, line in enumerate(lines) if line.endswith("<--"))
    assert "test.fns/slow/bad" in lines[failed]
    assert "failed: ValueError: " in lines[failed + 1]


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ("nowhere/0/0", "no cluster of the module files has the record nowhere/0/0"),
        ("test.fns/slow/nobody", "has no trace of test.fns/slow/nobody"),
        ("ada", "an address must be <namespace>/<name>/<id>"),
    ],
)
def test_what_is_not_there_is_an_error(
    application: tuple[Path, str, str, str],
    capsys: pytest.CaptureFixture[str],
    what: str,
    problem: str,
) -> None:
    """One sentence says why."""
    folder, *_ = application
    module = str(folder / "module.yaml")

    assert main(["trace", str(folder / "checkpoint"), what, "--module", module]) != 0

    assert problem in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_none_of_the_others(
    application: tuple[Path, str, str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record of another one is found, and one that nobody has is looked for in vain because of it."""
    folder, _, out, _ = application
    monkeypatch.setattr(trace_search, "TIMEOUT", timedelta(seconds=3))
    dead = f"kind: io.statefun.kafka.v1/egress\nspec: {{id: a/first, address: '127.0.0.1:{free_port()}'}}\n"
    module = tmp_path / "module.yaml"
    module.write_text(f"{dead}---\n{(folder / 'module.yaml').read_text()}")
    command = ["trace", str(folder / "checkpoint"), "--module", str(module)]

    assert main([*command, f"{out}/0/0"]) == 0
    assert "<--" in capsys.readouterr().out
    assert main([*command, "nowhere/0/0"]) != 0
    assert "no Kafka broker answered" in capsys.readouterr().err


def test_a_checkpoint_may_have_no_traces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No cluster is asked then, and no module file read."""
    assert main(["trace", str(tmp_path / "nowhere"), "users/0/0"]) != 0

    assert "has no trace of users/0/0" in capsys.readouterr().err


def test_an_earlier_time_finds_nothing(
    application: tuple[Path, str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The address was not called then."""
    folder, *_ = application

    status = main(["trace", str(folder / "checkpoint"), "test.fns/slow/ada", "--at", "1h"])

    assert status != 0
    assert "has no trace" in capsys.readouterr().err
