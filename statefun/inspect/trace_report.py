# SPDX-License-Identifier: Apache-2.0
"""Finds the trace of a record or an address, and prints it as a tree."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from statefun.inspect.checkpoint_options import usable
from statefun.inspect.state_listing import parsed_address
from statefun.inspect.validation import declared_module, program_and_modules
from statefun.module.model import Module
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.trace_search import FoundTrace, TraceSearch
from statefun.runtime.stored.traces import Trace, TracedInvocation
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.printable import printable

_DEEPEST = 30
"""The level of the tree from which on lines are not indented any further."""
_MOST_LEAVES = 100
"""The largest number of an invocation's failures and records that are shown."""


def found_trace(options: argparse.Namespace) -> FoundTrace:
    """Return the trace that the options of ``statefun trace`` name.

    Raises:
        StatefunError: if the checkpoint or the record cannot be read, or has no trace.
    """
    checkpoint = Folder.at(options.checkpoint)

    def module() -> Module:
        return declared_module(*program_and_modules(options.module or []))

    with usable(checkpoint):
        known = KnownValues.of(checkpoint, None)
        search = TraceSearch(checkpoint, known, module)
        if search.is_record(options.what):
            if options.at is not None:
                raise ConfigurationError(
                    f"--at is for an address, and {options.what} is a record: leave --at out"
                )
            return search.of_record(options.what)
        return search.of_address(parsed_address(options.what, known), options.at)


def trace_lines(trace: Trace, asked: set[bytes]) -> Iterator[str]:
    """Yield the lines of a tree, with a mark at the invocations that were asked for."""
    yield from _tree(trace, asked)
    if trace.left_out:
        yield f"its micro-batches had too many entries; {trace.left_out:,} of them are left out"
    if trace.is_cut:
        yield f"there are more than the {len(trace.invocations):,} invocations that are shown"


def _tree(trace: Trace, asked: set[bytes]) -> Iterator[str]:
    """Yield the lines of a tree; an invocation with several causes is shown in full below the first one."""
    shown: set[bytes] = set()
    for root in trace.roots():
        origins = trace.invocations[root].origins or ["a message whose cause is not noted"]
        yield from map(printable, origins)
        yield from _branch(trace, root, asked, shown)


def _branch(trace: Trace, root: bytes, asked: set[bytes], shown: set[bytes]) -> Iterator[str]:
    stack = [(root, "", True, 1)]
    while stack:
        span, indent, is_last, level = stack.pop()
        each = trace.invocations[span]
        mark = "  <--" if span in asked else ""
        again = "  (see above)" if span in shown else ""
        place = f"batch {each.batch}, {each.time.isoformat(' ', 'milliseconds')}"
        # A long chain would take pages for its indentation alone.
        depth = f"(level {level}) " if level > _DEEPEST else ""
        address = printable(str(each.address))
        yield f"{indent}{'└─ ' if is_last else '├─ '}{depth}{address}  {place}{again}{mark}"
        if again:
            continue
        shown.add(span)
        below = indent if level >= _DEEPEST else indent + ("   " if is_last else "│  ")
        leaves = _leaves(each)
        for number, leaf in enumerate(leaves, 1):
            is_end = number == len(leaves) and not each.effects
            yield f"{below}{'└─ ' if is_end else '├─ '}{printable(leaf)}"
        children = list(dict.fromkeys(each.effects))
        stack += [
            (child, below, number == 0, level + 1)
            for number, child in enumerate(reversed(children))
        ]


def _leaves(each: TracedInvocation) -> list[str]:
    """Return a text for each failure and record of an invocation; if they are too many, a last text counts the rest."""
    leaves = [f"failed: {text}" for text in each.failures]
    leaves += [
        f"record to {topic}" + (f", key {key}" if key else "") for topic, key in each.records
    ]
    if len(leaves) > _MOST_LEAVES:
        leaves[_MOST_LEAVES:] = [f"and {len(leaves) - _MOST_LEAVES:,} further failures and records"]
    return leaves
