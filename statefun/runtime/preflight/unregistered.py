# SPDX-License-Identifier: Apache-2.0
"""Finds functions that have state or waiting messages in a checkpoint, but are no longer registered.

A function that was renamed or removed leaves state, and perhaps messages that wait for it.
Neither may vanish silently. This check reads the whole state, but only at a start that lacks a function of
the start before. ``<checkpoint>/functions.json`` has the registered functions, and the number of addresses
with state of other functions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from pyspark.sql import SparkSession

from statefun.engine.groups import OWN_PREFIX
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.known_functions import KnownFunctions, known_functions
from statefun.runtime.preflight.stored_values import StoredValues, changed_values, shapes_of
from statefun.runtime.stored.stored_state import StoredState, stored_state
from statefun.runtime.stored.undelivered import undelivered
from statefun.sdk.errors import CheckpointError
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions

logger = logging.getLogger("statefun")


def check_functions(
    session: SparkSession,
    checkpoint: Folder,
    functions: StatefulFunctions,
    policy: OnFailure,
) -> KnownFunctions:
    """Log warnings about state and waiting messages of functions that are not registered.

    Args:
        session: the session that reads the state if the check needs it.
        checkpoint: the checkpoint with the state and messages.
        functions: the registered functions.
        policy: the policy for messages to functions that are not registered.

    Returns:
        The known functions, for :func:`write_functions`.

    Raises:
        CheckpointError: if messages wait for functions that are not registered and the policy is to fail, or
            if functions cannot read stored values with their present declarations.
    """
    registered = frozenset(str(function.typename) for function in functions)
    log = CommitLog(checkpoint)
    previous = known_functions(checkpoint)
    waiting_counts: dict[str, int] = {}
    all_shapes = {**(previous.shapes if previous else {})}
    for typename, declared in shapes_of(functions).items():
        all_shapes[typename] = {**all_shapes.get(typename, {}), **declared}
    if log.newest() >= 0:
        _check_values(
            session,
            checkpoint,
            functions,
            changed_values(previous.shapes if previous else {}, all_shapes),
        )
    if log.newest() < 0 or (previous is not None and previous.registered <= registered):
        state_counts = unregistered(Counter(previous.with_state if previous else {}), functions)
        counted = previous.counted if previous else ""
        as_of = f" (as of {counted or 'some earlier start'})"
    else:
        with stored_state(session, checkpoint) as state:
            state_counts = unregistered(state.addresses(), functions)
            waiting_counts = unregistered(waiting_messages(checkpoint, state), functions)
        counted, as_of = datetime.now(timezone.utc).date().isoformat(), ""
        if waiting_counts and policy is OnFailure.FAIL:
            raise CheckpointError(_refusal(checkpoint, waiting_counts, functions))
        for typename, count in sorted(waiting_counts.items()):
            logger.warning(
                "%s messages in the checkpoint wait for function %s, and no such function is registered; %s",
                f"{count:,}",
                typename,
                "because of on-unregistered=dead-letter, the messages become dead letters"
                if policy is OnFailure.DEAD_LETTER
                else "because of on-unregistered=skip, the messages are dropped",
            )
    for typename, count in sorted(state_counts.items()):
        logger.warning("%s", described_state(typename, count, functions, as_of))
    # Messages may still wait for these functions: a later start with the policy to fail must find them.
    registered |= waiting_counts.keys()
    return KnownFunctions(registered, state_counts, counted, all_shapes)


def _check_values(
    session: SparkSession,
    checkpoint: Folder,
    functions: StatefulFunctions,
    changed_names: Sequence[tuple[str, str]],
) -> None:
    """Check that functions can read the stored values whose declarations have changed.

    Raises:
        CheckpointError: if functions cannot read some of the values.
    """
    if not changed_names:
        return
    logger.info(
        "checking all stored values, since the declarations of these values have changed: %s",
        _named(changed_names),
    )
    with stored_state(session, checkpoint) as state:
        problems = list(StoredValues(state, functions).unreadable(changed_names))
    if problems:
        raise CheckpointError(
            f"functions cannot read the state in checkpoint {checkpoint.shown}:\n  "
            + "\n  ".join(problems)
        )


def _named(values: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} of function {typename}" for typename, name in values)


def waiting_messages(checkpoint: Folder, state: StoredState) -> Counter[str]:
    """Return the number of messages that wait in a checkpoint, by the function type of their targets.

    They are delayed, wait for an endpoint, or are in the outbox and not delivered yet.
    """
    return state.timers() + state.waiting() + Counter(undelivered(checkpoint))


def unregistered(counts: Counter[str], functions: StatefulFunctions) -> dict[str, int]:
    """Return the entries of ``counts`` (numbers by function type) whose function is not registered."""
    return {
        typename: count
        for typename, count in counts.items()
        if not typename.startswith(OWN_PREFIX) and functions.find(typename) is None
    }


def described_state(
    typename: str, addresses: int, functions: StatefulFunctions, as_of: str = ""
) -> str:
    """Describe the state of a function that is not registered.

    Args:
        typename: the function's typename.
        addresses: the number of its addresses with state.
        functions: the registered functions, one of which may have a similar name.
        as_of: a remark about the day on which the addresses were counted.
    """
    return (
        f"function {typename} has state at {addresses:,} addresses{as_of}, and is not registered; the "
        "state is kept for a function that is registered under that name"
        f"{functions.hint(typename)}"
    )


def _refusal(
    checkpoint: Folder, waiting_counts: dict[str, int], functions: StatefulFunctions
) -> str:
    lines = "\n".join(
        f"  {count:,} for function {typename}{functions.hint(typename)}"
        for typename, count in sorted(waiting_counts.items())
    )
    return (
        f"messages wait in checkpoint {checkpoint.shown} for functions that are not "
        f"registered:\n{lines}\n  register these functions until their messages are delivered, or give up the "
        "messages with spark.statefun.on-unregistered=dead-letter or skip"
    )
