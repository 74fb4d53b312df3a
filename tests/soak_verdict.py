# SPDX-License-Identifier: Apache-2.0
"""Checks that the output of a soaked application agrees with its surviving state."""

from __future__ import annotations

import json
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition
from soak_functions import ORDERED, SEMANTICS, chained

PARTITIONS = 2
Chains = dict[str, list[tuple[int, str]]]
"""Counts and tokens, in order, by the function that has sent them."""


class Output:
    """The records of a topic of a soak, as far as they are read."""

    def __init__(self, address: str, topic: str) -> None:
        self.chains: Chains = {}
        self._records = 0
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

    def read(self) -> int:
        """Read on; return how many records there were so far."""
        for message in self._consumer.consume(10_000, timeout=0.5):
            partition = message.partition() or 0
            if message.error() is not None:
                self._ended.add(partition)
                continue
            self._ended.discard(partition)
            name, count, text = json.loads(message.value() or b"")
            self.chains.setdefault(name, []).append((count, text))
            self._records += 1
        return self._records

    def read_all(self) -> Chains:
        """Read to the end."""
        while len(self._ended) < PARTITIONS:
            self.read()
        return self.chains


def verdict(address: str, prefix: str, counted: Mapping[str, tuple[int, str]], sent: int) -> str:
    """Compare the egresses' topics with the counts and digests of all functions.

    Args:
        address: of the broker.
        prefix: of the names of topics.
        counted: the answers of all functions to an audit.
        sent: how many messages there were for the functions.

    Returns:
        A text for each difference; empty if all is well.
    """
    handled = sum(count for count, _ in counted.values())
    if handled != sent:
        return f"{sent} messages were sent, and {handled} were handled"
    for semantic in SEMANTICS:
        chains = Output(address, prefix + semantic).read_all()
        for name, (count, digest) in sorted(counted.items()):
            problem = found_wrong(semantic, chains.get(name, []), count, digest)
            if name in ORDERED:
                problem = problem or disorder(chains.get(name, []))
            if problem:
                return f"{semantic}, {name}: {problem}"
    return ""


def disorder(chain: list[tuple[int, str]]) -> str:
    """Describe which entries a function has received in another order than they were sent.

    Each token begins with the number of its entry, as the sender counts.
    """
    numbers = {n: int(token.split()[0]) for n, token in chain}
    wrong = {n: number for n, number in numbers.items() if n != number}
    return f"place and number of entries differ: {wrong}" if wrong else ""


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
