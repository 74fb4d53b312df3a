# SPDX-License-Identifier: Apache-2.0
"""The checks at the end of a simulation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations

from simulation.expiring import not_expired
from simulation.waiting import left_waiting
from simulation.world import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    POISON,
    STATELESS,
    Attempts,
    Cancelled,
    Received,
    Sent,
    World,
    journals,
)
from statefun import IntType
from statefun.engine.wheel import tick_of
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.commit_log import CommitLog

_INT = IntType.serializer()


def refusal(world: World, reason: str) -> str:
    """Check that a refused checkpoint is not the only one, and that no two copies are mixed."""
    if world.here.disk.is_damaged:
        return "" if "/c" in reason or "egress" in reason else f"refused without a place: {reason}"
    if world.copy is None and len(world.histories) == 1:
        return f"refused, though there is no copy: {reason}"
    checkpoint = world.here.folder(world.chaos)
    newest, runs = CommitLog(checkpoint).newest(), {*checkpoint.child("runs").names(), ""}
    if all(
        marker.batch <= newest and {marker.publisher, marker.owner} <= runs
        for marker in world.broker.markers.values()
    ):
        return f"refused, though nobody else has been there: {reason}"
    if not any(_is_part_of(attempts, world) for attempts in world.histories):
        return f"a mixture of histories: {dict(world.broker.log)}"
    return ""


def difference(world: World) -> str:
    """Compare the output with the effects of the committed batches."""
    found = [
        *filter(None, [world.wrong]),
        *_egress_differences(world),
        *_message_differences(world),
        *left_waiting(world.here.attempts),
        *_miscounted(world.here.attempts),
        *not_expired(world.here.attempts),
    ]
    return "; ".join(found[:3])


def _truth(attempts: Attempts, egress: str) -> dict[int, list[bytes]]:
    """Return the records of committed attempts, by sender."""
    return _by_sender(
        value for _, journal in journals(attempts) for to, value in journal.egress if to == egress
    )


def _is_part_of(attempts: Attempts, world: World) -> bool:
    """Return whether exactly-once egresses have only records of one history, in order."""
    for egress in EXACTLY_ONCE:
        truth = _truth(attempts, egress)
        for sender, got in _by_sender(world.broker.log[egress]).items():
            if truth[sender][: len(got)] != got:
                return False
    return True


def _by_sender(values: Iterable[bytes]) -> dict[int, list[bytes]]:
    seen: dict[int, list[bytes]] = defaultdict(list)
    for value in values:
        seen[int(value.partition(b" ")[0])].append(value)
    return seen


def _egress_differences(world: World) -> Iterator[str]:
    """Compare the records that a reader sees, sender by sender."""
    for egress in (*EXACTLY_ONCE, AT_LEAST_ONCE):
        seen, truth = _by_sender(world.broker.log[egress]), _truth(world.here.attempts, egress)
        for sender in sorted(seen.keys() | truth.keys()):
            expected, got = truth[sender], seen[sender]
            if egress == AT_LEAST_ONCE and world.has_troubles:
                # Some may come again, and some of another history.
                got = [value for value in dict.fromkeys(got) if value in set(expected)]
                if len(world.histories) > 1:
                    expected, got = sorted(expected), sorted(got)
            if expected != got:
                yield f"{egress}, sender {sender}: {expected} became {got}"


def _message_differences(world: World) -> Iterator[str]:
    """Compare received messages with sent ones, and failed ones with those that had to fail."""
    sent: dict[str, Sent] = {}
    received: dict[str, list[Received]] = defaultdict(list)
    cancelled: dict[str, list[Cancelled]] = defaultdict(list)
    places: dict[str, int] = {}
    lost: list[str] = []
    for _, journal in journals(world.here.attempts):
        sent.update((each.uid, each) for each in journal.sent)
        for each in journal.received:
            places[each.uid] = len(places)
            received[each.uid].append(each)
        lost += journal.failed
        for request in journal.cancelled:
            cancelled[request.uid].append(request)
    for name, target in zip(world.names, world.records, strict=True):
        expected = [] if name.endswith(POISON) or name in lost else [target]
        if [each.target for each in received.pop(name, [])] != expected:
            yield f"record {name} was not received once, or is poison"
    for uid in received.keys() - sent.keys():
        yield f"{uid} was received, and not sent"
    for message in sent.values():
        fails = message.uid.endswith(POISON) or message.uid in lost
        yield from _delivery(
            world, message, received[message.uid], cancelled[message.uid], fails=fails
        )
    yield from _disorder(sent.values(), places)
    yield from _failure_differences(world, len(lost), sent)


def _failure_differences(world: World, lost: int, sent: Iterable[str]) -> Iterator[str]:
    """Compare the number of failed messages with those that had to fail."""
    poison = sum(name.endswith(POISON) for name in (*world.names, *sent))
    failed = sum(attempt.failed for attempt in world.here.attempts.values())
    if failed != poison + lost:
        yield f"{failed} messages have failed, {poison} are poison, and {lost} had no process"


def _delivery(
    world: World,
    message: Sent,
    received: list[Received],
    cancelled: list[Cancelled],
    *,
    fails: bool,
) -> Iterator[str]:
    """Check that a message was delivered to its target, once, and not before it was due."""
    readings = world.chaos.clock.readings

    def has_been_due(reading: int) -> bool:
        return max(readings[max(message.reading - 1, 0) : reading]) >= message.floor

    count = len(received)
    if fails:
        if count:
            yield f"{message} was handled"
    elif any(each.is_sure and not has_been_due(each.reading) for each in cancelled):
        if count:
            yield f"{message} was cancelled, and delivered {count} times"
    elif count > 1 or (not count and not cancelled):
        yield f"{message} was delivered {count} times"
    for each in received:
        if (each.caller, each.target) != (message.sender, message.target):
            yield f"{message} became {each}"
        if message.due and not has_been_due(each.reading):
            yield f"{message} came early"


def _disorder(sent: Iterable[Sent], places: dict[str, int]) -> Iterator[str]:
    """Find messages of one sender to one target that were received in another order."""
    pairs: dict[tuple[bytes, bytes, int], list[Sent]] = defaultdict(list)
    for each in sent:
        if each.uid in places and not each.token:
            # Those that become due with different ticks may come in any order.
            tick = tick_of(each.due - 1) if each.due else -1
            pairs[each.sender, each.target, tick].append(each)
    for (sender, target, _), messages in pairs.items():
        for first, second in combinations(messages, 2):
            if first.batch == second.batch and sender.endswith(STATELESS):
                continue  # without state, it may run at several places of a micro-batch at once
            if first.due > second.due:
                if first.batch != second.batch or sender.endswith(STATELESS):
                    continue  # the first may have been on its way already
                first, second = second, first  # noqa: PLW2901 - the other way round
            if places[first.uid] > places[second.uid]:
                yield f"{first} came after {second}, from {sender!r} to {target!r}"


def _miscounted(attempts: Attempts) -> Iterator[str]:
    """Compare the counts in the states with the numbers of received messages."""
    received = Counter(each.target for _, own in journals(attempts) for each in own.received)
    for key, stored in attempts[max(attempts)].state.items() if attempts else ():
        for value in AddressState.FromString(stored).values:
            if value.name == "count" and _INT.deserialize(value.value) != received.pop(key, 0):
                yield f"{key!r} has counted wrongly"
    for key in received:
        if not key.endswith(STATELESS):
            yield f"{key!r} has no count"


def counted(world: World) -> Counter[str]:
    """Return counts of events, as evidence that faults happened."""
    counts: Counter[str] = Counter(batches=len(world.here.attempts))
    for _, journal in journals(world.here.attempts):
        counts["received"] += len(journal.received)
        counts["sent"] += len(journal.sent)
        counts["delayed"] += sum(bool(each.due) for each in journal.sent)
        counts["cancelled"] += len(journal.cancelled)
        counts["records"] += len(journal.egress)
    return counts
