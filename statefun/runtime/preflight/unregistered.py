# SPDX-License-Identifier: Apache-2.0
"""Finds functions that a checkpoint knows, but that are no longer registered.

A function that was renamed or removed leaves state, and perhaps messages that wait for it.
Neither may vanish silently. A start reads the whole state for this check only if it lacks a function of the
previous start. ``<checkpoint>/functions.json`` has the registered functions, and the number of addresses
with state of other functions.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone

import attrs
from pyspark.sql import SparkSession

from statefun.engine import chunks
from statefun.engine.address_keys import typename_of
from statefun.engine.delays import delayed_messages, is_wake_up
from statefun.engine.groups import OWN_PREFIX
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.preflight.stored_state import StoredState, stored_state
from statefun.runtime.preflight.stored_values import (
    Shapes,
    StoredValues,
    changed_values,
    shapes_of,
)
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, read_batches
from statefun.sdk.errors import CheckpointError
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions

logger = logging.getLogger("statefun")

FUNCTIONS_FILE = "functions.json"


@attrs.frozen
class KnownFunctions:
    """The functions that a checkpoint knows."""

    registered: frozenset[str]
    """The typenames that the last start registered, or found messages for."""
    with_state: dict[str, int]
    """The number of addresses with state, by other functions; some may have expired since."""
    counted: str
    """The day of this count; empty if it is unknown."""
    shapes: Shapes
    """How the functions of this start, and of earlier starts, have declared their values."""


def check_functions(
    session: SparkSession,
    checkpoint: Folder,
    functions: StatefulFunctions,
    policy: OnFailure,
) -> KnownFunctions:
    """Warn of state and waiting messages of functions that are not registered.

    Args:
        session: reads the state, if that is needed.
        checkpoint: the checkpoint with the state and messages.
        functions: the registered functions.
        policy: the policy for messages to other functions.

    Returns:
        The known functions, for :func:`write_functions`.

    Raises:
        CheckpointError: if messages wait for such functions and the policy is to fail, or if functions
            cannot read stored values with their present declarations.
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
                "%s messages wait for function %s, which is not registered: %s",
                f"{count:,}",
                typename,
                "they become dead letters"
                if policy is OnFailure.DEAD_LETTER
                else "they are left out",
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
        CheckpointError: if they cannot.
    """
    if not changed_names:
        return
    logger.info(
        "reading all state, since the declarations of these values have changed: %s",
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


def write_functions(checkpoint: Folder, functions: KnownFunctions) -> None:
    """Write the known functions into a checkpoint, unless it has them already."""
    if functions != known_functions(checkpoint):
        content = {
            "registered": sorted(functions.registered),
            "left": functions.with_state,
            "counted": functions.counted,
            "values": functions.shapes,
        }
        write_framed(checkpoint, FUNCTIONS_FILE, json.dumps(content).encode())


def waiting_messages(checkpoint: Folder, state: StoredState) -> Counter[str]:
    """Return the number of waiting messages, delayed ones included, by their function type."""
    return state.timers() + state.waiting() + Counter(undelivered(checkpoint))


def unregistered(counts: Counter[str], functions: StatefulFunctions) -> dict[str, int]:
    """Return the counts of typenames whose function is not registered."""
    return {
        typename: count
        for typename, count in counts.items()
        if not typename.startswith(OWN_PREFIX) and functions.find(typename) is None
    }


def described_state(
    typename: str, addresses: int, functions: StatefulFunctions, as_of: str = ""
) -> str:
    """Describe the state of a function that is not registered; ``as_of`` has the day of the count."""
    return (
        f"function {typename} has state at {addresses:,} addresses{as_of}, and is not registered; the "
        "state is kept for a function that is registered under that name"
        f"{functions.hint(typename)}"
    )


def undelivered(checkpoint: Folder) -> Iterator[str]:
    """Yield the function types of the messages that no micro-batch has delivered."""
    outbox, log = Outbox(checkpoint), CommitLog(checkpoint)
    newest_delivered = feedback_offset(log, log.newest()).batch
    target, typename, value = (
        MESSAGE_SCHEMA.get_field_index(name) for name in ("target", "typename", "value")
    )
    for batch in outbox.batches():
        manifest = outbox.manifest(batch) if newest_delivered < batch <= log.newest() else None
        for segment in manifest.segments if manifest is not None else ():
            if not segment.messages.records:
                continue
            with outbox.open(batch, segment.messages) as file:
                for rows in read_batches(file):
                    columns = (
                        rows.column(index).to_pylist() for index in (target, typename, value)
                    )
                    for receiver, name, content in zip(*columns, strict=True):
                        if not (is_wake_up(name, content) or chunks.is_own(name, content)):
                            yield typename_of(receiver)
                        yield from chunks.kept_for(receiver, name, content)
                        for message in delayed_messages(name, content):
                            yield typename_of(message.target)


def _refusal(
    checkpoint: Folder, waiting_counts: dict[str, int], functions: StatefulFunctions
) -> str:
    lines = "\n".join(
        f"  {count:,} for function {typename}{functions.hint(typename)}"
        for typename, count in sorted(waiting_counts.items())
    )
    return (
        f"messages wait in checkpoint {checkpoint.shown} for functions that are not "
        f"registered:\n{lines}\n  register them until their messages are delivered, or give up the "
        "messages with spark.statefun.on-unregistered=dead-letter or skip"
    )


def known_functions(checkpoint: Folder) -> KnownFunctions | None:
    """Return the functions that the checkpoint knows; None if no run has stored them yet."""
    try:
        content = json.loads(read_framed(checkpoint, FUNCTIONS_FILE))
        return KnownFunctions(
            frozenset(content["registered"]),
            dict(content["left"]),
            content.get("counted", ""),
            content.get("values", {}),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(checkpoint, FUNCTIONS_FILE, error) from error
