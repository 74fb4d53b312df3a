# SPDX-License-Identifier: Apache-2.0
"""Measures the messages that wait for endpoints or long calls, and holds the reading of records while too many wait."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.runtime.checkpoint.known_functions import all_of_namespace
from statefun.sdk.functions import StatefulFunctions

logger = logging.getLogger("statefun")

WAITING = "waiting.json"
MOST_WAITING_BYTES = 1024**3
"""The total size of waiting messages, in bytes, above which no records are read."""
_NAMED = 3
"""The largest number of functions that a log line names."""
_MOST_NAMES = 1000
"""For how many functions the waiting messages are counted separately: all names together are written at each change."""


def _sizes(sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Copy sizes that were read from a file; raise a TypeError or ValueError if they are not a dict."""
    return dict(sizes)


@attrs.frozen
class _Count:
    """The size of the messages that wait for each function, in bytes, as the checkpoint keeps it."""

    batch: int = -1
    """The newest micro-batch that has changed the size of the waiting messages."""
    before: Mapping[str, int] = attrs.field(factory=dict, converter=_sizes)
    """The size of the waiting messages before the micro-batch ``batch``, in case Spark repeats this micro-batch."""
    after: Mapping[str, int] = attrs.field(factory=dict, converter=_sizes)
    """The size of the waiting messages after the micro-batch ``batch``."""
    functions: Sequence[str] = ()
    """While reading is held: the functions for which most messages have come in the micro-batch that began it."""
    messages_before: int = 0
    """The number of waiting messages before the micro-batch ``batch``."""
    messages: int = 0
    """The number of waiting messages after the micro-batch ``batch``."""

    def as_of(self, newest: int) -> _Count:
        """Return the count without what a micro-batch after ``newest`` has changed."""
        if self.batch <= newest:
            return self
        functions = self.functions or [name for name, _ in Counter(self.before).most_common(_NAMED)]
        return attrs.evolve(
            self,
            batch=newest,
            after=self.before,
            messages=self.messages_before,
            functions=functions,
        )

    def before_batch(self, batch: int) -> Mapping[str, int]:
        """Return the sizes before a micro-batch, also if it was counted already and is now repeated."""
        return self.before if batch == self.batch else self.after

    @cached_property
    def total(self) -> int:
        """The size of all waiting messages, in bytes."""
        return sum(self.after.values())


class WaitingGauge:
    """Measures the size of waiting messages, and decides whether records may be read.

    The messages wait for endpoints that are down, or for long calls.

    Args:
        checkpoint: keeps the sizes of the waiting messages.

    Raises:
        CheckpointError: if the file with the sizes is damaged.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._count = _read_count(checkpoint)
        self._overtaken: tuple[Mapping[str, int], bool] | None = None
        """The last answer of :meth:`may_be_overtaken`, with the sizes for which it was found."""
        if self.is_holding:
            self._log_hold()

    @property
    def is_holding(self) -> bool:
        """Whether the next micro-batch may read no records, because too many messages wait."""
        return self._count.total > MOST_WAITING_BYTES

    @property
    def messages(self) -> int:
        """The number of messages that wait in the states of their addresses, or are those of a long call under way."""
        return self._count.messages

    def may_be_overtaken(self, functions: StatefulFunctions, batch: int) -> bool:
        """Return whether, before a micro-batch, messages to plain functions without state wait.

        They wait in the states of their addresses if, in an earlier run, the functions were coroutine functions or
        behind an endpoint. Immediate messages would overtake them; see :mod:`statefun.engine.immediate`.

        Args:
            functions: the functions of the present run, the same at each call.
            batch: the micro-batch, which may repeat one whose count is kept.
        """
        sizes = self._count.before_batch(batch)
        if self._overtaken is None or self._overtaken[0] is not sizes:
            self._overtaken = sizes, _has_plain(sizes, functions)
        return self._overtaken[1]

    def add(self, batch: int, outcomes: Iterable[Outcome]) -> None:
        """Count the waiting messages that a micro-batch has added or delivered, before it is committed."""
        growth, further_messages = Counter[str](), 0
        for outcome in outcomes:
            growth.update(outcome.waiting_bytes)
            further_messages += outcome.waiting_messages
        count, was_holding = self._count, self.is_holding
        if batch != count.batch and not further_messages and not any(growth.values()):
            return
        before = count.before_batch(batch)
        after = _grown(before, growth)
        messages_before = count.messages_before if batch == count.batch else count.messages
        messages = messages_before + further_messages
        if (after, messages) == (count.after, count.messages):
            return
        functions: Sequence[str] = ()
        if sum(after.values()) > MOST_WAITING_BYTES:
            newest = [name for name, added in growth.most_common(_NAMED) if added > 0]
            functions = count.functions if was_holding else newest
        self._count = _Count(batch, before, after, functions, messages_before, messages)
        _write_count(self._checkpoint, self._count)
        if self.is_holding and not was_holding:
            self._log_hold()
        elif was_holding and not self.is_holding:
            logger.warning(
                "%s bytes of messages wait for endpoints or long calls: few enough that records are read again",
                f"{self._count.total:,}",
            )

    def _log_hold(self) -> None:
        logger.warning(
            "%s bytes of messages wait for endpoints that are down, or for the end of long calls, most of the "
            "newest ones for %s; no records are read until at most %s bytes wait",
            f"{self._count.total:,}",
            ", ".join(self._count.functions),
            f"{MOST_WAITING_BYTES:,}",
        )


def _has_plain(sizes: Mapping[str, int], functions: StatefulFunctions) -> bool:
    """Return whether messages to plain functions without state may be among those that wait."""
    if any(name == all_of_namespace(name) for name in sizes):  # of which functions, nobody knows
        return any(function.runs_anywhere for function in functions)
    waiting = Counter[str]()
    for name, size in sizes.items():
        function = functions.find(name)
        if function is None or function.runs_anywhere:
            # A renamed function may have been counted with several names.
            waiting[name if function is None else str(function.typename)] += size
    return any(size > 0 for size in waiting.values())


def _grown(before: Mapping[str, int], growth: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes by function after a micro-batch, from those before it and its growth.

    A function whose name is not among very many is counted with others of its namespace. The name that stands for them
    stays, whatever its size is, until no message waits: with it, sizes of renamed functions may be at the wrong name.
    """
    sizes = dict(before)
    for name, added in sorted(growth.items()):
        others = all_of_namespace(name)
        is_counted_with_others = name not in sizes and (
            others in sizes or len(sizes) >= _MOST_NAMES
        )
        counted = others if is_counted_with_others else name
        sizes[counted] = sizes.get(counted, 0) + added
    if not sum(sizes.values()):
        return {}
    return {
        name: size for name, size in sorted(sizes.items()) if size or name == all_of_namespace(name)
    }


def take_back_waiting(checkpoint: Folder, newest: int) -> None:
    """Undo what a micro-batch after ``newest`` has changed in the count: it is dropped, so it is never committed.

    Raises:
        CheckpointError: if the file with the count is damaged.
    """
    count = _read_count(checkpoint)
    if count.batch > newest:
        _write_count(checkpoint, count.as_of(newest))


def waiting_after(checkpoint: Folder, batch: int) -> dict[str, Any]:
    """Return what :func:`write_waiting` writes into a copy of a checkpoint: the count after a micro-batch, as JSON.

    Raises:
        CheckpointError: if the file with the count is damaged.
    """
    count = _read_count(checkpoint).as_of(batch)
    return {"sizes": {**count.after}, "messages": count.messages, "functions": [*count.functions]}


def write_waiting(checkpoint: Folder, waiting: Mapping[str, Any]) -> None:
    """Write the count of the messages that wait in the states of a new checkpoint.

    Args:
        checkpoint: the new checkpoint, whose micro-batches are numbered anew.
        waiting: what :func:`waiting_after` has returned for the checkpoint that had these states.
    """
    sizes, messages = waiting["sizes"], waiting["messages"]
    count = _Count(
        before=sizes,
        after=sizes,
        functions=waiting["functions"],
        messages_before=messages,
        messages=messages,
    )
    _write_count(checkpoint, count)


def _write_count(checkpoint: Folder, count: _Count) -> None:
    write_framed(checkpoint, WAITING, json.dumps(attrs.asdict(count)).encode())


def _read_count(checkpoint: Folder) -> _Count:
    checkpoint.sync(WAITING)  # the process that wrote it may have ended before it was on the disk
    try:
        return _Count(**json.loads(read_framed(checkpoint, WAITING)))
    except FileNotFoundError:
        return _Count()
    except (ValueError, TypeError) as error:
        raise damaged(checkpoint, WAITING, error) from error
