# SPDX-License-Identifier: Apache-2.0
"""Decides under which names a checkpoint stores the functions that continue with it.

The checkpoint remembers all names of a renamed function: the function goes on with its state also if its
declaration no longer has ``renamed_from``, or if it gets a former name back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.known_functions import KnownFunctions, known_functions
from statefun.sdk.errors import CheckpointError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.nearest_names import suggestion
from statefun.sdk.stateful_function import StatefulFunction


def continued(functions: StatefulFunctions, checkpoint: Folder) -> StatefulFunctions:
    """Return a copy of a registry whose functions have the stored and former names that a checkpoint knows.

    Args:
        functions: the functions of an application.
        checkpoint: the checkpoint with which the application continues.

    Raises:
        CheckpointError: if two of the functions have the same stored name, if the checkpoint knows several functions
            by the names of one, if it knows no function by the former names that a declaration gives, or if a
            renamed function is now one of ``namespace/*``.
    """
    known = known_functions(checkpoint)
    if known is None:
        return functions
    owners: dict[str, StatefulFunction] = {}
    result = functions.copy()
    removed = {
        name for name in map(known.present_name, known.stored_names) if not functions.find(name)
    }
    for function in functions:
        stored = _stored_name(function, known, removed, checkpoint)
        owner = owners.setdefault(stored, function)
        if owner is not function:
            is_first = str(owner.typename) == known.present_name(stored)
            own, other = (owner, function) if is_first else (function, owner)
            raise CheckpointError(
                f"function {other.typename} has, or had, the name {stored}, under which checkpoint "
                f"{checkpoint.shown} stores the state of function {own.typename}; give function {other.typename} a "
                "name that the checkpoint does not know"
            )
        result.replace(_with_names(function, stored, known))
    for stored in known.names:
        present = known.present_name(stored)
        found = result.find(present)
        if found is not None and present not in {str(found.typename), *found.renamed_from}:
            raise CheckpointError(
                f"function {present} was {stored} before, and checkpoint {checkpoint.shown} stores its state under "
                f"that name, where {found.typename} does not find it; register {present} by its own name as well"
            )
    return result


def with_names(known: KnownFunctions, functions: StatefulFunctions) -> dict[str, list[str]]:
    """Return the names of renamed functions after a start, by their stored names.

    Args:
        known: what the checkpoint knew before the start.
        functions: the functions of the run, as :func:`continued` has returned them.
    """
    names = {stored: [*own] for stored, own in known.names.items()}
    for function in functions:
        present, stored = str(function.typename), function.stored_name
        if stored in names or stored != present:
            own = names.get(stored, [])
            names[stored] = [*(each for each in own if each != present), present]
    return names


def _stored_name(
    function: StatefulFunction, known: KnownFunctions, removed: Collection[str], checkpoint: Folder
) -> str:
    """Return the name under which the checkpoint stores a function."""
    present = str(function.typename)
    found = {
        known.stored_name(name): name
        for name in (present, *function.renamed_from)
        if _knows(known, name, is_former=name != present)
    }
    if len(found) > 1:
        first, second, *_ = found.values()
        raise CheckpointError(
            f"function {present} cannot take over function {second}: checkpoint {checkpoint.shown} also knows "
            f"function {first}, which may have state and messages of its own; give the function a name that the "
            "checkpoint does not know"
        )
    if found:
        return next(iter(found))
    if function.renamed_from and removed:
        raise CheckpointError(
            f"function {present} is declared as renamed from {', '.join(function.renamed_from)}, which checkpoint "
            f"{checkpoint.shown} does not know{_meant(function.renamed_from, sorted(removed))}"
        )
    return present


def _knows(known: KnownFunctions, name: str, *, is_former: bool) -> bool:
    """Return whether a function has, or had, a name in the checkpoint; a former name may be one of ``namespace/*``."""
    if known.stored_name(name) in known.stored_names:
        return True
    return is_former and f"{name.rpartition('/')[0]}/*" in known.registered


def _meant(names: Sequence[str], removed: Sequence[str]) -> str:
    for name in names:
        if meant := suggestion(name, removed):
            return f"; {meant}"
    return f"; it knows these functions that are no longer registered: {', '.join(removed)}"


def _with_names(function: StatefulFunction, stored: str, known: KnownFunctions) -> StatefulFunction:
    present = str(function.typename)
    names = dict.fromkeys((stored, *known.names.get(stored, ()), *function.renamed_from))
    return attrs.evolve(
        function,
        renamed_from=tuple(name for name in names if name != present),
        stored_as="" if stored == present else stored,
    )
