# SPDX-License-Identifier: Apache-2.0
"""Finds functions that have state or waiting messages in a checkpoint, but are no longer registered.

A function that was removed leaves state, and perhaps messages that wait for it.
Neither may vanish silently. This check reads the whole state, but only at a start that lacks a function of
the start before. ``<checkpoint>/functions.json`` has the registered functions, and the number of addresses
with state of other functions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import TypeVar

from pyspark.sql import SparkSession

from statefun.engine.groups import OWN_PREFIX
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.declarations import Declarations, with_present
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.known_functions import KnownFunctions, known_functions
from statefun.runtime.checkpoint.renamed_functions import with_names
from statefun.runtime.preflight.stored_values import StoredValues, changed_values
from statefun.runtime.preflight.waiting_messages import (
    WaitingMessages,
    by_function,
    waiting_messages,
)
from statefun.runtime.stored.stored_state import stored_state
from statefun.runtime.terminal.table import counted
from statefun.sdk.annotations import known_types
from statefun.sdk.errors import CheckpointError
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions

logger = logging.getLogger("statefun")

T = TypeVar("T")


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
        functions: the registered functions, with their names in the checkpoint.
        policy: the policy for messages to functions that are not registered.

    Returns:
        The known functions, for :func:`write_functions`.

    Raises:
        CheckpointError: if messages wait for functions that are not registered and the policy is to fail, or
            if functions cannot read stored values with their present declarations.
    """
    registered = {function.stored_name for function in functions}
    log = CommitLog(checkpoint)
    known = known_functions(checkpoint)
    previous = known or KnownFunctions()
    waiting: dict[str, WaitingMessages] = {}
    if log.newest() >= 0:
        _check_values(session, checkpoint, functions, previous.declarations)
    if log.newest() < 0 or (known is not None and previous.registered <= registered):
        state_counts = unregistered(previous.with_state, functions)
        day = previous.counted
        as_of = f" (as of {day or 'some earlier start'})"
    else:
        with stored_state(session, checkpoint) as state:
            state_counts = unregistered(state.addresses(), functions)
            waiting = unregistered(by_function(waiting_messages(checkpoint, state)), functions)
        day, as_of = datetime.now(timezone.utc).date().isoformat(), ""
        if waiting and policy is OnFailure.FAIL:
            named = {previous.present_name(typename): each for typename, each in waiting.items()}
            raise CheckpointError(_refusal(checkpoint, named, functions))
        for typename, messages in sorted(waiting.items()):
            logger.warning("%s", _given_up(previous.present_name(typename), messages, policy))
    for typename, count in sorted(state_counts.items()):
        name = previous.present_name(typename)
        logger.warning("%s", described_state(name, count, functions, as_of))
    return KnownFunctions(
        # Messages may still wait for these functions: a later start with the policy to fail must find them.
        frozenset(registered | waiting.keys()),
        state_counts,
        day,
        with_present(previous.declarations, functions, log.newest() + 1),
        with_names(previous, functions),
        previous.secret_types,
    ).with_types(known_types())


def _check_values(
    session: SparkSession,
    checkpoint: Folder,
    functions: StatefulFunctions,
    declarations: Declarations,
) -> None:
    """Check that functions can read the stored values whose declarations have changed.

    Raises:
        CheckpointError: if functions cannot read some of the values.
    """
    changed_names = changed_values(declarations, functions)
    if not changed_names:
        return
    logger.info(
        "checking all stored values, since the declarations of these values have changed: %s",
        _named(changed_names, functions),
    )
    with stored_state(session, checkpoint) as state:
        problems = list(StoredValues(state, functions, declarations).unreadable(changed_names))
    if problems:
        raise CheckpointError(
            f"functions cannot read the state in checkpoint {checkpoint.shown}:\n  "
            + "\n  ".join(problems)
        )


def _named(values: Iterable[tuple[str, str]], functions: StatefulFunctions) -> str:
    return ", ".join(
        f"{name} of function {functions.for_typename(typename).typename}"
        for typename, name in values
    )


def unregistered(found: Mapping[str, T], functions: StatefulFunctions) -> dict[str, T]:
    """Return the entries of ``found`` (by function type) whose function is not registered."""
    return {
        typename: each
        for typename, each in found.items()
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
        f"function {typename} has state at {counted(addresses, 'address', 'es')}{as_of}, and is not registered; the "
        f"state is kept for a function of that name, or one with renamed_from={typename!r}"
        f"{functions.hint(typename)}"
    )


def _given_up(typename: str, waiting: WaitingMessages, policy: OnFailure) -> str:
    """Describe what becomes of the messages that wait for a function that is not registered."""
    end = "become dead letters" if policy is OnFailure.DEAD_LETTER else "are dropped"
    parts = []
    if waiting.messages:
        parts.append(f"the messages {end} in the first micro-batches of this run")
    if waiting.timers:
        parts.append(f"the timers {end} when they are due")
    return (
        f"no function {typename} is registered, for which the checkpoint holds {waiting.text}; because of "
        f"on-unregistered={policy.value}, {' and '.join(parts)}"
    )


def _refusal(
    checkpoint: Folder, waiting: Mapping[str, WaitingMessages], functions: StatefulFunctions
) -> str:
    lines = "\n".join(
        f"  {messages.text} for function {typename}{functions.hint(typename)}"
        for typename, messages in sorted(waiting.items())
    )
    return (
        f"messages wait in checkpoint {checkpoint.shown} for functions that are not "
        f"registered:\n{lines}\n  register these functions until their messages are delivered, name them in the "
        "renamed_from= of the functions that replace them, or give up the messages with "
        "spark.statefun.on-unregistered=dead-letter or skip"
    )
