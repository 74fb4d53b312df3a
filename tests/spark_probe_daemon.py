# SPDX-License-Identifier: Apache-2.0
"""A daemon whose workers evaluate the probe's operator on Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from statefun.runtime.spark_internals.worker import BatchEvaluation, run_daemon, watch_functions

ODD = b"\xff\x00\x80"
"""What is no text in any encoding ends each state."""


class Counter:
    """Counts the rows of each group, in batches of Arrow only."""

    def __call__(self, key: Any, frames: Any, state: Any) -> Iterator[Any]:
        """Be called by Spark, which would be wrong."""
        raise AssertionError("evaluated by Spark itself")


def evaluate(_: Counter, batches: Iterator[Any]) -> Iterator[Any]:
    """Put out what there is for each group; a group of the name gone loses its state."""
    from statefun.runtime.spark_internals.state_batches import (  # noqa: PLC0415 - after the fork
        GroupedBatch,
        StateUpdates,
        result_batch,
    )
    from statefun.runtime.spark_internals.task import batch_number  # noqa: PLC0415 - as above

    properties, carried = "{}", None
    for batch in batches:
        grouped = GroupedBatch(batch)
        properties = grouped.properties
        updates = StateUpdates(properties)
        found = []
        for group, key in enumerate(batch.column("target").take(grouped.starts).to_pylist()):
            stored = grouped.state(group)
            before = int((stored or b"0").rstrip(ODD)) if carried is None else carried
            total = before + grouped.counts[group]
            carried = total if group == grouped.unfinished else None
            found.append([key.decode(), batch_number(), total, carried is not None])
            if carried is None:
                state = None if key == b"gone" and stored else f"{total}".encode() + ODD
                updates.add(grouped.key_rows[group], state)
        yield result_batch("outcome", [json.dumps(each).encode() for each in found], updates)
    yield result_batch("outcome", [], StateUpdates(properties))


@cache
def prepare() -> None:
    """Watch the functions of this worker."""
    from spark_probe_daemon import Counter as Sent  # noqa: PLC0415 - __main__ has another one

    def evaluation_of(function: object) -> BatchEvaluation | None:
        operator = getattr(function, "__self__", None)
        return partial(evaluate, operator) if isinstance(operator, Sent) else None

    watch_functions(evaluation_of)


if __name__ == "__main__":
    run_daemon(prepare)
