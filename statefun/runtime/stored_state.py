# SPDX-License-Identifier: Apache-2.0
"""Whether an application can go on from a checkpoint: asked before it is started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyspark.errors import PySparkException

from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.commit_log import CommitLog
from statefun.runtime.envelope import address_of
from statefun.runtime.filesystem import Folder
from statefun.runtime.ingress.declared import all_ingresses
from statefun.runtime.recovery import check_logs
from statefun.runtime.session import open_session
from statefun.runtime.sources import in_order
from statefun.runtime.validation import Finding
from statefun.sdk.errors import CheckpointError
from statefun.sdk.functions import StatefulFunctions
from statefun.spec.model import Module

_OURS = "statefun."
"""What the namespaces begin with whose state is the runtime's own."""
_Stored = Counter[tuple[str, str, str]]
"""Numbers of addresses by function type, name of a value, and typename that it is stored as."""


def checkpoint_findings(
    checkpoint: Folder, module: Module, functions: StatefulFunctions | None
) -> Iterator[Finding]:
    """Compare a checkpoint with what is to go on from it; its state is read, all of it.

    Args:
        checkpoint: of an application that does not run now.
        module: what its module files declare.
        functions: what it registers; None if that is not known.
    """
    try:
        check_logs(checkpoint)
        if CommitLog(checkpoint).is_fresh():
            yield _finding(f"checkpoint {checkpoint.location} holds nothing yet", is_error=False)
            return
        in_order(checkpoint, all_ingresses(module))
    except CheckpointError as error:
        yield _finding(str(error))
        return
    if functions is not None:
        try:
            stored = _stored(checkpoint)
        except PySparkException as error:  # such as for a path with a blank in it
            reason = (str(error).splitlines() or [""])[0]
            yield _finding(
                f"the state in checkpoint {checkpoint.location} cannot be read: {reason}"
            )
        else:
            yield from _of_state(stored, functions)


def _stored(checkpoint: Folder) -> _Stored:
    session = open_session(debug=False, state_partitions=None)
    store = session.read.format("statestore").load(checkpoint.location)
    stored: _Stored = Counter()
    for row in store.select("key.target", "value.groupState.state").toLocalIterator():
        address = address_of(bytes(row.target))
        if not address.namespace.startswith(_OURS):
            for value in AddressState.FromString(bytes(row.state)).values:
                stored[address.typename, value.name, value.typename] += 1
    return stored


def _of_state(stored: _Stored, functions: StatefulFunctions) -> Iterator[Finding]:
    for (typename, name, value_type), count in sorted(stored.items()):
        what = f"value {name!r} of function {typename} is stored at {count:,} addresses"
        function = functions.find(typename)
        spec = None if function is None else function.specs.get(name)
        if function is None:
            text = f"{what}, and no such function is registered{functions.hint(typename)}"
            yield _finding(text, is_error=False)
        elif spec is None:
            yield _finding(f"{what}, and is no longer among its specs", is_error=False)
        elif spec.type.typename != value_type:
            yield _finding(
                f"{what} as {value_type}, and declared as {spec.type.typename}; a value's type "
                "cannot change: use another name"
            )


def _finding(text: str, *, is_error: bool = True) -> Finding:
    return Finding.at(None, text, is_error=is_error)
