# SPDX-License-Identifier: Apache-2.0
"""Checks, before a start, whether an application can go on from a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from statefun.inspect.validation import Finding
from statefun.module.model import Module
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import in_order
from statefun.runtime.ingress.declared import all_sources
from statefun.runtime.preflight.recovery import check_logs
from statefun.runtime.preflight.stored_state import stored_state
from statefun.runtime.preflight.unregistered import kept, unregistered, waiting_messages
from statefun.runtime.spark.session import open_session
from statefun.sdk.errors import CheckpointError
from statefun.sdk.functions import StatefulFunctions


def checkpoint_findings(
    checkpoint: Folder, module: Module, functions: StatefulFunctions | None
) -> Iterator[Finding]:
    """Compare a checkpoint with the application that is to continue it; reads the whole state.

    Args:
        checkpoint: the checkpoint of an application that does not run now.
        module: the content of its module files.
        functions: the functions that it registers; None if unknown.
    """
    try:
        check_logs(checkpoint)
        if CommitLog(checkpoint).is_fresh():
            yield _finding(f"checkpoint {checkpoint.location} holds nothing yet", is_error=False)
            return
        in_order(checkpoint, all_sources(module))
    except CheckpointError as error:
        yield _finding(str(error))
        return
    if functions is not None:
        try:
            session = open_session(debug=False, state_partitions=None)
            with stored_state(session, checkpoint) as state:
                stored, addresses = state.values(), state.addresses()
                waiting = waiting_messages(checkpoint, state)
        except CheckpointError as error:
            yield _finding(str(error))
        else:
            yield from _of_state(stored, functions)
            for typename, count in sorted(unregistered(addresses, functions).items()):
                yield _finding(kept(typename, count, functions), is_error=False)
            for typename, count in sorted(unregistered(waiting, functions).items()):
                text = f"{count:,} messages wait for function {typename}, and no such function is"
                yield _finding(f"{text} registered{functions.hint(typename)}")


def _of_state(
    stored: Counter[tuple[str, str, str]], functions: StatefulFunctions
) -> Iterator[Finding]:
    for (typename, name, value_type), count in sorted(stored.items()):
        what = f"value {name!r} of function {typename} is stored at {count:,} addresses"
        function = functions.find(typename)
        if function is None or function.transport is not None:
            continue  # a function that runs elsewhere says what it keeps when it is called
        spec = function.specs.get(name)
        if spec is None:
            yield _finding(f"{what}, and is no longer among its specs", is_error=False)
        elif spec.type.typename != value_type:
            yield _finding(
                f"{what} as {value_type}, and declared as {spec.type.typename}; a value's type "
                "cannot change: use another name"
            )


def _finding(text: str, *, is_error: bool = True) -> Finding:
    return Finding.at(None, text, is_error=is_error)
