# SPDX-License-Identifier: Apache-2.0
"""Reads the state of all addresses as of a committed micro-batch, without Spark, also while the application runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TypeVar

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder, missing_checkpoint
from statefun.runtime.checkpoint.ingress_order import INGRESSES, check_format
from statefun.runtime.spark_internals.store_files import state_version
from statefun.runtime.spark_internals.store_rows import partition_of
from statefun.runtime.stored.partition_state import PartitionState
from statefun.sdk.errors import CheckpointError, ConfigurationError

T = TypeVar("T")

_ATTEMPTS = 5
"""How many times a reading begins again because the application has deleted files that it needs."""


class CommittedState:
    """The state of all addresses after one micro-batch; partitions are opened when they are read first.

    Every method may raise FileNotFoundError if the application has deleted the state of this micro-batch.
    """

    def __init__(self, checkpoint: Folder, batch: int, ids: Sequence[str]) -> None:
        self.checkpoint = checkpoint
        self.batch = batch
        """The number of the micro-batch."""
        self._ids = ids
        self._partitions: dict[int, PartitionState] = {}
        self._open = ExitStack()

    def close(self) -> None:
        """Close all files, and delete temporary ones."""
        self._open.close()

    def get(self, key: bytes) -> bytes | None:
        """Return the state of the address with a key, as a serialized ``AddressState``; None if it has none.

        Raises:
            CheckpointError: if a file is damaged.
        """
        return self._partition(partition_of(key, len(self._ids))).get(key)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the key of each address and its state, a serialized ``AddressState``, in any order.

        Raises:
            CheckpointError: if a file is damaged.
        """
        return self.containing(b"")

    def containing(self, part: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the key and the state of each address whose key contains ``part``, in any order.

        Raises:
            CheckpointError: if a file is damaged.
        """
        # All are opened first: later the application may have deleted files.
        for partition in [self._partition(number) for number in range(len(self._ids))]:
            yield from partition.containing(part)

    def _partition(self, number: int) -> PartitionState:
        if number not in self._partitions:
            version = state_version(self.batch), self._ids[number]
            opened = PartitionState(self.checkpoint, number, version)
            self._partitions[number] = opened
            self._open.callback(opened.close)
        return self._partitions[number]


def with_state(checkpoint: Folder, batch: int | None, read: Callable[[CommittedState], T]) -> T:
    """Read the state of a checkpoint; if the application deletes files meanwhile, begin again with a newer batch.

    Args:
        checkpoint: the checkpoint.
        batch: the number of a committed micro-batch; None for the newest one.
        read: reads the state.

    Raises:
        ConfigurationError: if there is no checkpoint, or only Spark can read its state.
        CheckpointError: if no micro-batch is committed yet, if ``batch`` is not committed yet or no longer there, or
            if the state is damaged.
    """
    log = CommitLog(checkpoint)
    for _ in range(_ATTEMPTS):
        chosen = readable_batch(checkpoint, batch)
        setting = log.unreadable_setting(chosen)
        if setting is not None:
            raise ConfigurationError(
                f"the state in checkpoint {checkpoint.shown} was written with {setting}, in a form that only "
                "Spark reads; use 'statefun state sql'"
            )
        try:
            with closing(CommittedState(checkpoint, chosen, log.state_ids(chosen))) as state:
                return read(state)
        except FileNotFoundError as error:
            lost = error
            if batch is not None or log.newest() == chosen:
                break  # no newer micro-batch has replaced the files
    raise CheckpointError(
        f"the state of batch {chosen} in checkpoint {checkpoint.shown} lacks a file, which is deleted or lost "
        f"({lost}); read a newer batch, or restore the checkpoint from a copy"
    ) from lost


def readable_batch(checkpoint: Folder, batch: int | None) -> int:
    """Return the number of the micro-batch to read: ``batch``, or the newest committed one for None.

    Raises:
        ConfigurationError: if there is no checkpoint, or if statefun has not made it.
        CheckpointError: if the checkpoint has another format or is still empty, or if ``batch`` is not
            committed yet or no longer there.
    """
    log = CommitLog(checkpoint)
    check_format(checkpoint)
    if not log.query_id():
        raise missing_checkpoint(checkpoint)
    if not checkpoint.has(INGRESSES):
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown} was not made by statefun: it has no file {INGRESSES}"
        )
    batches = log.committed()
    if not batches:
        raise CheckpointError(
            f"checkpoint {checkpoint.shown} is still empty: no batch is committed yet"
        )
    chosen = batches[-1] if batch is None else batch
    if chosen not in batches:
        reason = "not committed yet" if chosen > batches[-1] else "gone"
        raise CheckpointError(
            f"batch {chosen} is {reason}: checkpoint {checkpoint.shown} has the batches {batches[0]} to "
            f"{batches[-1]}"
        )
    return chosen
