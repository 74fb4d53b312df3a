# SPDX-License-Identifier: Apache-2.0
"""Checks that the output of a soaked application agrees with its surviving state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from confluent_kafka import Consumer, TopicPartition
from soak_functions import ORDERED, SEMANTICS, WINDOWS, chained

PARTITIONS = 2
Chains = dict[str, list[tuple[int, str]]]
"""Counts and tokens, in order, by the function that has sent them."""
Ends = Mapping[int, int]
"""By partition of a topic, the offset behind its last record."""


class Surviving:
    """The records that count of a topic: after a restore from a snapshot, functions begin anew with some."""

    def __init__(self) -> None:
        self.chains: Chains = {}
        self.records = 0
        self._restored: Counter[str] = Counter()

    def add(self, restores: int, name: str, count: int, text: str) -> None:
        """Add a function's record, which was published after so many restores."""
        chain = self.chains.setdefault(name, [])
        if restores > self._restored[name]:
            self._restored[name] = restores
            known = [entry for entry in chain if entry[0] < count]
            self.records -= len(chain) - len(known)
            chain[:] = known
        chain.append((count, text))
        self.records += 1

    def known_to(self, restores: int, name: str, count: int) -> list[tuple[int, str]]:
        """Return a function's records after so many restores, given its present count.

        Records beyond the count are lost if the function has sent none since the last restore: its messages take other
        ways then, so that it may get fewer.
        """
        chain = self.chains.get(name, [])
        if self._restored[name] == restores:
            return chain
        return [entry for entry in chain if entry[0] <= count]


class Output:
    """The records of a topic of a soak, as far as they are read.

    Args:
        address: of the broker.
        topic: its name.
        restores: the ends of the topic at each restore of the application's checkpoint from a snapshot.
    """

    def __init__(self, address: str, topic: str, restores: Sequence[Ends] = ()) -> None:
        self._surviving = Surviving()
        self._restores = restores
        self._ended: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "verdict",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

    @property
    def chains(self) -> Chains:
        """What counts of the records that were read."""
        return self._surviving.chains

    def read(self) -> int:
        """Read on; return how many records there were so far that count."""
        for message in self._consumer.consume(10_000, timeout=0.5):
            partition = message.partition() or 0
            if message.error() is not None:
                self._ended.add(partition)
                continue
            self._ended.discard(partition)
            offset = message.offset() or 0
            restores = sum(offset >= ends[partition] for ends in self._restores)
            self._surviving.add(restores, *json.loads(message.value() or b""))
        return self._surviving.records

    def read_all(self, counted: Mapping[str, int]) -> Chains:
        """Read to the end, and return the records of functions with these counts."""
        while len(self._ended) < PARTITIONS:
            self.read()
        return {name: self.known(name, count) for name, count in counted.items()}

    def known(self, name: str, count: int) -> list[tuple[int, str]]:
        """Return the records that were read of a function with this count."""
        return self._surviving.known_to(len(self._restores), name, count)


def verdict(
    address: str,
    prefix: str,
    counted: Mapping[str, tuple[int, str]],
    sent: int,
    *,
    window_entries: int,
    restores: Mapping[str, Sequence[Ends]],
) -> str:
    """Compare the egresses' topics with the counts and digests of all functions.

    Args:
        address: of the broker.
        prefix: of the names of topics.
        counted: the answers of all functions to an audit.
        sent: how many messages there were for the functions without windows.
        window_entries: how many entries there were for the windows of each address.
        restores: the ends of the egresses' topics at each restore of the checkpoint.

    Returns:
        A text for each difference; empty if all is well.
    """
    handled = handled_of(counted)
    if handled != sent:
        return f"{sent} messages were sent, and {handled} were handled"
    for semantic in SEMANTICS:
        output = Output(address, prefix + semantic, restores[semantic])
        chains = output.read_all({name: count for name, (count, _) in counted.items()})
        for name, (count, digest) in sorted(counted.items()):
            problem = found_wrong(semantic, chains[name], count, digest)
            if name in ORDERED:
                problem = problem or disorder(chains[name])
            if name in WINDOWS and semantic == "exactly-once":
                problem = problem or wrong_windows(chains[name], window_entries)
            if problem:
                return f"{semantic}, {name}: {problem}"
    return ""


def handled_of(counted: Mapping[str, tuple[int, str]]) -> int:
    """Return how many messages all functions without windows have handled."""
    return sum(count for name, (count, _) in counted.items() if name not in WINDOWS)


def disorder(chain: list[tuple[int, str]]) -> str:
    """Describe which entries a function has received in another order than they were sent.

    Each token begins with the number of its entry, as the sender counts.
    """
    numbers = {n: int(token.split()[0]) for n, token in chain}
    wrong = {n: number for n, number in numbers.items() if n != number}
    return f"place and number of entries differ: {wrong}" if wrong else ""


def entries_in(chain: list[tuple[int, str]]) -> int:
    """Return how many entries the results of windows have, and how many were late."""
    return sum(int(token.split()[1]) for _, token in chain)


def wrong_windows(chain: list[tuple[int, str]], entries: int) -> str:
    """Describe windows of an address that have closed twice or in another order, and entries that are in none.

    Each token begins with the start of a window, or with ``late``, and the number of its entries.
    """
    starts = [int(start) for start, *_ in (token.split() for _, token in chain) if start != "late"]
    if any(one >= other for one, other in pairwise(starts)):
        return f"windows have closed twice, or in another order: {starts}"
    found = entries_in(chain)
    return "" if found == entries else f"{entries} entries were sent; in windows or late: {found}"


def found_wrong(semantic: str, chain: list[tuple[int, str]], count: int, digest: str) -> str:
    """Describe the differences between a function's output and its counts."""
    distinct = list(dict.fromkeys(chain))
    if semantic == "none":
        return "" if len({n for n, _ in distinct}) == len(distinct) else "two tokens of one"
    if semantic == "exactly-once" and len(distinct) != len(chain):
        return f"{len(chain) - len(distinct)} records came twice"
    if [n for n, _ in distinct] != list(range(1, count + 1)):
        return f"counted {count}, but the topic has {[n for n, _ in distinct]}"
    end = ""
    for _, token in distinct:
        end = chained(end, token)
    return "" if end == digest else "the topic holds what the state denies"
