# SPDX-License-Identifier: Apache-2.0
"""A model of functions, messages, delays, cancellations and expirations, beside Spark."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from harness import KafkaHarness
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from obedient_system import System
from programs import LIFETIME, NAMES, START, Program, follow
from pyspark import TaskContext, cloudpickle

from statefun import FunctionError
from statefun.dev.spark_application import FileClock
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.takes(minutes=2.2)]

# Workers cannot import test modules.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)


@pytest.fixture
def fresh(kafka: KafkaHarness, tmp_path: Path) -> Callable[[], System]:
    """Return a function that makes systems with topics and a checkpoint of their own."""
    numbers = itertools.count()

    def make() -> System:
        number = next(numbers)
        return System(
            kafka,
            kafka.topic(f"in-{number}", partitions=2),
            kafka.topic(f"out-{number}"),
            tmp_path / f"checkpoint-{number}",
            FileClock(tmp_path / f"clock-{number}"),
        )

    return make


@pytest.fixture
def system(fresh: Callable[[], System]) -> System:
    """Make one system."""
    return fresh()


def later(seconds: float, text: str, token: str = "", target: str = "x") -> list[Any]:
    """Return the command that makes ``b`` emit a text later."""
    return ["after", seconds, token, "b", target, [["emit", text]]]


@pytest.mark.long(minutes=0.9)
def test_a_delayed_message_comes_when_it_is_due(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    """Not before, and from its sender; until then, the end of a run says when to run again."""
    early = system.step([("Ada", [later(10, "b"), later(0, "a"), ["emit", "sent"]])])
    waiting = system.summary.next_timer
    same_tick = system.step([], START + 9.999)
    due = system.step([], START + 10)

    assert sorted(record[:3] for record in early) == [
        ["t.fns/a/Ada", None, "sent"],
        ["t.fns/b/x", "t.fns/a/Ada", "a"],
    ]
    assert waiting is not None
    assert waiting.timestamp() == START + 10
    assert same_tick == []
    assert [record[:3] for record in due] == [["t.fns/b/x", "t.fns/a/Ada", "b"]]
    assert system.summary.next_timer is None
    assert system.addresses() == set()
    assert Outbox(Folder.at(system.checkpoint)).batches() == []


@pytest.mark.long(minutes=0.6)
def test_delayed_messages_come_in_order(system: System) -> None:
    """They come by due time; messages due together come in the order of sending."""
    delays = [3.2, 3.1, 3.1, 5, 3.1, 1, *(1 + n * 7 % 30 for n in range(60))]
    system.step([("Ada", [later(delay, f"{n}") for n, delay in enumerate(delays)])])

    overdue = system.texts([], START + 100)

    assert overdue == [f"{n}" for n in sorted(range(len(delays)), key=delays.__getitem__)]


def test_a_cancelled_message_never_comes(system: System) -> None:
    """A token belongs to the id that used it, in any function; other ids cannot cancel."""
    roots: list[tuple[str, Program]] = [
        ("Ada", [later(10, "at once", "t"), ["cancel", "t"]]),
        ("Alan", [later(10, "by another type", "t"), ["send", "b", "Alan", [["cancel", "t"]]]]),
        ("Grace", [later(10, "by another id", "t"), ["send", "b", "Ada", [["cancel", "t"]]]]),
        ("Edsger", [later(10, "much later", "t")]),
        ("Tony", [["cancel", "unknown"], later(10, "again", "t"), ["cancel", "t"]]),
    ]
    system.step([*roots, ("Tony", [later(10, "used again", "t"), later(10, "no token")])])

    still = system.texts([("Edsger", [["cancel", "t"]])], START + 9)
    due = system.texts([], START + 11)
    gone = system.texts([(id_, [["cancel", "t"]]) for id_, _ in roots], START + 12)

    assert still == []
    assert sorted(due) == ["by another id", "no token", "used again"]
    assert gone == []
    assert not {address for address in system.addresses() if address.startswith("statefun.")}


def test_a_token_that_is_in_use_is_an_error(system: System) -> None:
    """The error names who has used which token; once the message is due, the token is free."""
    system.step([("Ada", [later(10, "first", "t")])])
    system.step([("Ada", [later(10, "second", "t")])], START + 10)
    third = system.texts([("Ada", [later(0, "third", "u")])], START + 20)
    with pytest.raises(FunctionError) as caught:
        system.step([("Ada", [later(10, "", "t"), later(10, "", "t")])], START + 20)

    assert sorted(third) == ["second", "third"]
    assert caught.value.message == (
        "function t.fns/a at address t.fns/a/Ada has sent a delayed message with the cancellation "
        "token 't', which the id Ada already uses for a delayed message that is still pending; cancel "
        "that message first, or use another token (message from t.fns/a/Ada); the message is sent already: to go on "
        "without it, give t.fns/a the argument on_failure='skip', or an egress a deadLetterTopic"
    )


@pytest.mark.long(minutes=0.7)
def test_values_expire_and_leave_nothing_behind(system: System) -> None:
    """They expire after the last write or call, and are deleted even without further calls."""
    life = LIFETIME.total_seconds()
    set_both: Program = [["note"], ["keep"]]
    look: Program = [["look"]]
    system.step([("Ada", set_both), ("Alan", set_both), ("Grace", [*set_both, ["add"]])])

    called = system.texts([("Ada", look)], START + life - 1)
    written_long_ago = system.texts([("Ada", look)], START + life)
    others = system.addresses()
    long_ago = system.texts([("Ada", look)], START + 3 * life)

    assert called == [["note", "kept"]]
    assert written_long_ago == [["kept"]]
    assert others >= {"t.fns/a/Ada", "t.fns/a/Grace"}
    assert "t.fns/a/Alan" not in others
    assert long_ago == [[]]
    system.step([], START + 10 * life)
    assert system.addresses() == {"t.fns/a/Grace"}
    assert system.summary.next_timer is None


def test_messages_to_functions_without_state_stay_in_the_micro_batch(system: System) -> None:
    """So do their records; their own messages take the next one, as do messages over the limit.

    Messages to coroutine functions always take the next one.
    """
    back = ["send", "b", "back", [["emit", "b"]]]
    pair: Program = [
        ["send", "relay", "x", [["emit", "relay"], back]],
        ["send", "slow-relay", "x", [["emit", "slow"], back]],
    ]
    many: Program = [["send", "relay", "x", [["emit", n]]] for n in range(20)]

    through = system.step([("Ada", pair)])
    batches = system.summary.batches
    crowded = system.step([("Ada", many), ("Ada", many)], immediate_messages=7)
    crowded_batches = system.summary.batches

    first, *second, third = [record[:3] for record in through]
    assert first == ["t.fns/relay/x", "t.fns/a/Ada", "relay"]
    assert sorted(second) == [
        ["t.fns/b/back", "t.fns/relay/x", "b"],
        ["t.fns/slow-relay/x", "t.fns/a/Ada", "slow"],
    ]
    assert third == ["t.fns/b/back", "t.fns/slow-relay/x", "b"]
    assert batches == 3
    assert [text for _, _, text, _, _ in crowded] == [*range(20), *range(20)]
    assert crowded_batches == 2
    assert system.addresses() == {"t.fns/a/Ada"}


@pytest.mark.long(minutes=0.5)
def test_order_holds_where_a_micro_batch_has_no_room(system: System) -> None:
    """While some messages take the long way, later ones to the same target do not overtake."""
    programs: list[tuple[str, Program]] = [
        ("Ada", [["send", "relay", "x", [["emit", 10 * root + n]]] for n in range(10)])
        for root in range(20)
    ]

    emitted = system.step(programs, immediate_messages=13, records_per_batch=1)

    assert [text for _, _, text, _, _ in emitted] == list(range(200))


def test_messages_to_oneself_stay_in_the_micro_batch(system: System) -> None:
    """They come after waiting messages; more than the limit come in the next one, in order."""
    steps: Program = [["emit", "end"]]
    for n in reversed(range(30)):
        steps = [["emit", n], ["send", "a", "Ada", steps]]
    both: Program = [["emit", "both"], *(["send", "a", "Ada", [["emit", n]]] for n in range(30))]

    chain = system.texts([("Ada", steps)])
    batches = system.summary.batches
    limited = system.step([("Ada", both), ("Ada", [["emit", "waits"]])], immediate_messages=7)

    assert chain == [*range(30), "end"]
    assert batches == 1
    assert [text for _, _, text, _, _ in limited] == ["both", "waits", *range(30)]
    assert system.summary.batches == 2


@pytest.mark.long(minutes=1.3)
@settings(
    max_examples=2,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes too many queries
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32), roots=st.integers(1, 30), immediate=st.integers(1, 4))
def test_random_programs_do_what_the_model_does(
    fresh: Callable[[], System], seed: int, roots: int, immediate: int
) -> None:
    """State, egress, order, delays and expirations equal a sequential interpreter's."""
    follow(fresh(), seed, ["x", "y"], depth=2, roots=roots, steps=1, immediate=immediate)


@pytest.mark.long(minutes=1.4)
def test_ten_thousand_commands(system: System) -> None:
    """The same over 128 addresses, in full micro-batches."""
    ids = [f"id {n}" for n in range(43)]

    assert len(NAMES) * len(ids) >= 128
    assert follow(system, 7, ids, depth=4, roots=1_500, steps=1, immediate=30) >= 10_000


@attrs.frozen
class SkewedClock(FileClock):
    """A clock that is wrong on the machines of workers."""

    seconds: int = 0

    def now(self) -> int:
        """Return the right time to the driver alone."""
        return super().now() + (1000 * self.seconds if TaskContext.get() else 0)


@pytest.mark.parametrize(("skew", "late"), [(-86_400, 0), (86_400, 3600)])
def test_the_drivers_clock_decides(system: System, skew: int, late: int) -> None:
    """A worker whose clock is a day wrong delays nothing by more than an hour, or not at all."""
    system.clock = SkewedClock(system.clock.file, skew)
    system.step([("Ada", [later(10, "due"), ["note"]])])
    waiting = system.summary.next_timer
    due = system.texts([], START + 10 + late)

    assert waiting is not None
    assert waiting.timestamp() == START + LIFETIME.total_seconds() + late
    assert due == ["due"]
    assert system.addresses() == set()


def test_a_storm_of_timers_for_one_moment(system: System) -> None:
    """They are spread over many states, which are all gone when the messages have come."""
    storm: list[tuple[str, Program]] = [
        ("Ada", [later(10, f"{root} {n}", target=f"{n}") for n in range(1000)]) for root in range(8)
    ]
    system.step(storm, records_per_batch=2)
    parts = {address for address in system.addresses() if "." in address.rpartition("/")[2]}
    due = system.texts([], START + 10)

    assert len(parts) > 20
    assert len(due) == len(set(due)) == 8_000
    by_target: dict[str, list[str]] = {}
    for text in due:
        by_target.setdefault(text.split()[1], []).append(text.split()[0])
    assert all(roots == sorted(roots) for roots in by_target.values())
    assert system.addresses() == set()
