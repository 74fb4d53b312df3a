# SPDX-License-Identifier: Apache-2.0
"""Checks, before a start, whether an application can continue from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from statefun.module.findings import Finding
from statefun.module.model import KafkaIngress, Module
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_changes import (
    Ingress,
    committed_ends,
    described_changes,
    in_order,
)
from statefun.runtime.checkpoint.ingress_order import SourceOffset, check_format
from statefun.runtime.checkpoint.known_functions import KnownFunctions, known_functions
from statefun.runtime.checkpoint.renamed_functions import continued
from statefun.runtime.ingress.declared import all_sources
from statefun.runtime.ingress.removed_partitions import removed_partitions
from statefun.runtime.preflight.recovery import check_logs
from statefun.runtime.preflight.stored_values import StoredValues
from statefun.runtime.preflight.unregistered import described_state, unregistered
from statefun.runtime.preflight.untaken import untaken
from statefun.runtime.preflight.waiting_messages import by_function, waiting_messages
from statefun.runtime.release.undeclared_egresses import (
    undeclared_egress,
    undeclared_egresses,
)
from statefun.runtime.spark.session import open_session
from statefun.runtime.stored.stored_state import stored_state
from statefun.sdk.errors import CheckpointError
from statefun.sdk.functions import StatefulFunctions


def checkpoint_findings(
    checkpoint: Folder, module: Module, functions: StatefulFunctions | None
) -> Iterator[Finding]:
    """Yield the problems that an application would have if it continued from a checkpoint.

    The whole state of the checkpoint is read.

    Args:
        checkpoint: the checkpoint of an application that does not run now.
        module: the module of the application.
        functions: the functions that the application registers; None if no program was given.
    """
    try:
        check_format(checkpoint)
        check_logs(checkpoint)
        if CommitLog(checkpoint).is_fresh():
            yield _finding(f"checkpoint {checkpoint.shown} is still empty", is_error=False)
            return
        ordered = in_order(checkpoint, all_sources(module))
        for text in described_changes(checkpoint, ordered):
            yield _finding(text, is_error=False)
        yield from _removed_partitions(ordered, committed_ends(checkpoint, ordered))
        declared = {str(each.id) for each in module.all_egresses}
        for egress in undeclared_egresses(checkpoint, declared):
            yield _finding(str(undeclared_egress(egress)))
    except CheckpointError as error:
        yield _finding(str(error))
        return
    if functions is not None:
        try:
            known = known_functions(checkpoint) or KnownFunctions()
            functions = continued(functions, checkpoint)
            session = open_session(debug=False, state_partitions=None)
            with stored_state(session, checkpoint) as state:
                values = StoredValues(state, functions, known.declarations)
                addresses = state.addresses()
                waiting = waiting_messages(checkpoint, state)
                all_waiting = by_function(waiting)
        except CheckpointError as error:
            yield _finding(str(error))
        else:
            yield from map(_finding, values.unreadable())
            yield from map(_finding, untaken(waiting, functions))
            yield from (_finding(text, is_error=False) for text in values.undeclared())
            for typename, count in sorted(unregistered(addresses, functions).items()):
                text = described_state(known.present_name(typename), count, functions)
                yield _finding(text, is_error=False)
            for typename, messages in sorted(unregistered(all_waiting, functions).items()):
                yield _finding(
                    f"no function {known.present_name(typename)} is registered, for which the checkpoint holds "
                    f"{messages.text}{functions.hint(typename)}: a start is refused, unless "
                    "on-unregistered=dead-letter or skip gives up messages in the first micro-batches, and timers "
                    "when they are due"
                )


def _removed_partitions(
    ordered: Sequence[Ingress], ends: Sequence[SourceOffset | None]
) -> Iterator[Finding]:
    """Yield an error for each ingress that no longer reads all partitions that earlier runs have read."""
    for ingress, offsets in zip(ordered, ends, strict=True):
        if not isinstance(ingress, KafkaIngress):
            continue
        removed = removed_partitions(ingress, offsets or {})
        if removed is not None:
            yield Finding.at(ingress.location, str(removed))


def _finding(text: str, *, is_error: bool = True) -> Finding:
    return Finding.at(None, text, is_error=is_error)
