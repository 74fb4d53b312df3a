# SPDX-License-Identifier: Apache-2.0
"""Queues of the messages that wait in a test, one queue for each pair of sender and target."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from random import Random

from statefun.testing.message_rows import MessageRow
from statefun.testing.waiting_ingresses import WaitingIngresses

_ALL = 0.5
"""The probability that a micro-batch takes all messages that wait."""


class Channels:
    """The messages that wait for a micro-batch, by the key of their target and by sender.

    Args:
        random: decides which messages a micro-batch takes, and the order where the runtime guarantees none.
        waiting: the ingresses whose records no micro-batch takes yet.
    """

    def __init__(self, random: Random, waiting: WaitingIngresses) -> None:
        self._random = random
        self._waiting = waiting
        self._channels: dict[bytes, dict[Hashable, deque[MessageRow]]] = {}

    def __bool__(self) -> bool:
        return bool(self._channels)

    def __iter__(self) -> Iterator[MessageRow]:
        for channels in self._channels.values():
            for messages in channels.values():
                yield from messages

    def add(self, sender: Hashable, message: MessageRow) -> None:
        """Add a message after all earlier messages of its sender to its target."""
        channels = self._channels.setdefault(message.target, {})
        channels.setdefault(sender, deque()).append(message)

    def take(self) -> dict[bytes, dict[Hashable, list[MessageRow]]]:
        """Choose the messages of a micro-batch, and remove them from the messages that wait.

        The messages that are chosen from a queue are always the oldest messages in the queue.

        Returns:
            The chosen messages, by the key of their target and by sender.
        """
        chosen, waiting = self._random, self._waiting
        waiting.release(sender for channels in self._channels.values() for sender in channels)
        everything = len(self._channels) <= 1 or chosen.random() < _ALL
        keys = [
            key
            for key, channels in self._channels.items()
            if any(sender not in waiting for sender in channels)
        ]
        if not everything:
            keys = chosen.sample(keys, chosen.randint(1, len(keys)))
        messages: dict[bytes, dict[Hashable, list[MessageRow]]] = {}
        for key in keys:
            channels, parts = self._channels[key], {}
            for sender in [each for each in channels if each not in waiting]:
                channel = channels[sender]
                count = len(channel) if everything else chosen.randint(1, len(channel))
                parts[sender] = [channel.popleft() for _ in range(count)]
                if not channel:
                    del channels[sender]
            if not channels:
                del self._channels[key]
            messages[key] = parts
        return messages

    def merged(self, channels: Mapping[Hashable, Sequence[MessageRow]]) -> list[MessageRow]:
        """Return the messages to one address in random order, but those of each sender in the order sent."""
        if len(channels) == 1:
            return list(*channels.values())
        turns = [sender for sender, messages in channels.items() for _ in messages]
        self._random.shuffle(turns)
        iterators = {sender: iter(messages) for sender, messages in channels.items()}
        return [next(iterators[sender]) for sender in turns]

    def put_back(self, taken: Mapping[bytes, Mapping[Hashable, Sequence[MessageRow]]]) -> None:
        """Put the messages of a failed micro-batch back before all other messages, as after a restart."""
        for key, channels in taken.items():
            waiting = self._channels.setdefault(key, {})
            for sender, messages in channels.items():
                waiting.setdefault(sender, deque()).extendleft(reversed(messages))
