# SPDX-License-Identifier: Apache-2.0
"""``statefun state``: shows the state in a checkpoint, also while its application runs; repairs it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.engine.clock import SystemClock
from statefun.inspect import repair_actions, state_transfer_command
from statefun.inspect.checkpoint_options import (
    add_checkpoint_or_program,
    checkpoint_of,
    micro_batch_number,
    positive_number,
    usable,
)
from statefun.inspect.state_listing import (
    Listing,
    addresses_by_type,
    listing,
    parsed_address,
    unknown_address,
)
from statefun.inspect.state_texts import sections, values_line
from statefun.inspect.state_types import print_types
from statefun.module.user_program import load_program
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.letters.dead_letter import DeadLetter
from statefun.runtime.letters.letter_filter import LetterFilter
from statefun.runtime.letters.letter_texts import LETTER_COLUMNS, as_json, row
from statefun.runtime.stored.address_report import AddressReport, address_report
from statefun.runtime.stored.committed_state import CommittedState, with_state
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.state_json import report_json, values_json
from statefun.runtime.terminal.table import counted, print_table
from statefun.sdk.address import Address
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.printable import printable

_LISTED = 50
_ROWS = 1000


def add_arguments(state: CommandParser) -> None:
    """Add the actions of ``statefun state`` to its parser."""
    actions = state.actions()
    ls = actions.add(
        "ls",
        "list addresses with state, and their values",
        "statefun state ls com.example.docs/greeter --program app.py",
    )
    show = actions.add(
        "show",
        "print everything about an address: values, timers, messages on their way",
        "statefun state show com.example.docs/greeter/ada --program app.py",
    )
    count = actions.add(
        "count",
        "count the addresses with state, by function",
        "statefun state count --checkpoint .statefun/app",
    )
    sql = actions.add(
        "sql",
        "query the state with Spark, where each function is a table",
        "statefun state sql 'select id, count from `com.example.docs/greeter`' --program app.py",
    )
    state_transfer_command.add_actions(actions)
    types = actions.add(
        "types",
        "list how functions have declared their values, and since which micro-batch",
        "statefun state types --program app.py",
    )
    for action in (ls, count, types):
        action.add_argument(
            "type", nargs="?", help="the typename of a function (default: all functions)"
        )
    show.add_argument("address", help="<namespace>/<name>/<id>, such as com.example/card/c1")
    show.add_argument(
        "--dead-letters",
        action="store_true",
        help="read the topic of dead letters, too, which the module files of --program declare",
    )
    sql.add_argument("query", help="a query of Spark SQL")
    for action, default, what in ((ls, _LISTED, "addresses"), (sql, _ROWS, "rows")):
        action.add_argument(
            "--limit",
            type=positive_number,
            default=default,
            help=f"how many {what} to print at most (default: {default:,})",
        )
    changing = repair_actions.add_actions(actions)
    for action in (ls, show, count, sql, types, *changing):
        add_checkpoint_or_program(action)
    for action in (ls, show, count, sql):
        action.add_argument(
            "--at-batch",
            type=micro_batch_number,
            metavar="N",
            help="the state after this micro-batch (default: the newest committed one)",
        )
    for action in (ls, show, count, sql, types, *changing):
        action.add_json()


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun state``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    if options.action in state_transfer_command.ACTIONS:
        state_transfer_command.run_action(options)
        return
    functions = None if options.program is None else load_program(options.program).functions
    checkpoint = checkpoint_of(options)
    with usable(checkpoint):
        if options.action == "sql":
            # Only this action needs Spark, which takes long to import.
            from statefun.inspect.state_query import run_query  # noqa: PLC0415 - see above

            run_query(checkpoint, functions, options)
        elif options.action in repair_actions.ACTIONS:
            known = KnownValues.of(checkpoint, functions)
            repair_actions.run_action(checkpoint, known, options)
        elif options.action == "types":
            print_types(checkpoint, options)
        else:
            _read(checkpoint, functions, options)


def _read(
    checkpoint: Folder, functions: StatefulFunctions | None, options: argparse.Namespace
) -> None:
    """Run an action that needs no Spark."""

    def known() -> KnownValues:
        return KnownValues.of(checkpoint, functions)

    def listed(state: CommittedState) -> Listing:
        return listing(state, known(), options.type, options.limit)

    def counts(state: CommittedState) -> tuple[int, Counter[str]]:
        return state.batch, addresses_by_type(state)

    def report(state: CommittedState) -> tuple[AddressReport, str]:
        """Return the report about the address, and the error text if the checkpoint knows nothing about it."""
        address = parsed_address(options.address, known())
        newest = options.at_batch is None or options.at_batch == CommitLog(checkpoint).newest()
        found = address_report(state, address, known(), is_newest=newest)
        return found, unknown_address(state, address, known()) if found.is_empty else ""

    if options.action == "ls":
        _print_listing(with_state(checkpoint, options.at_batch, listed), known(), options)
    elif options.action == "count":
        _print_counts(*with_state(checkpoint, options.at_batch, counts), known(), options)
    else:
        found, unknown = with_state(checkpoint, options.at_batch, report)
        letters = _dead_letters(found.address, options) if options.dead_letters else []
        if unknown and not letters:
            raise ConfigurationError(unknown)
        _print_report(found, letters, options)


def _print_listing(found: Listing, known: KnownValues, options: argparse.Namespace) -> None:
    if not found.total:
        _check_type(options.type, known)
    if options.json:
        rows = [
            {
                "address": str(each.address),
                "type": each.address.typename,
                "id": each.address.id,
                "values": values_json(each.values),
                "waiting": each.waiting,
            }
            for each in found.addresses
        ]
        print_json({"batch": found.batch, "total": found.total, "addresses": rows})
        return
    if found.addresses:
        print_table(
            [
                ("address", "waiting", "values"),
                *(
                    (
                        printable(str(each.address)),
                        str(each.waiting or "-"),
                        values_line(each.values),
                    )
                    for each in found.addresses
                ),
            ]
        )
    rest = found.total - len(found.addresses)
    listed = f", of which the first {len(found.addresses):,} are listed" if rest else ""
    print(f"{counted(found.total, 'address', 'es')} with state in batch {found.batch}{listed}")


def _print_counts(
    batch: int, counts: Counter[str], known: KnownValues, options: argparse.Namespace
) -> None:
    counts = Counter({known.present_name(name): count for name, count in counts.items()})
    if options.type is not None:
        present = known.present_name(options.type)
        if present not in counts:
            _check_type(options.type, known)
        counts = Counter({present: counts[present]})
    total = sum(counts.values())
    if options.json:
        print_json({"batch": batch, "total": total, "counts": dict(counts.most_common())})
        return
    if counts:
        rows = [(printable(name), f"{count:,}") for name, count in counts.most_common()]
        print_table([("type", "addresses"), *rows])
    print(f"{counted(total, 'address', 'es')} with state in batch {batch}")


def _check_type(typename: str | None, known: KnownValues) -> None:
    """Check that a typename for which no state was found is the name of a function; None needs no check.

    Raises:
        ConfigurationError: if there is no such function.
    """
    if typename is not None and known.present_name(typename) not in known.typenames:
        raise ConfigurationError(f"there is no function {typename}{known.hint(typename)}")


def _dead_letters(address: Address, options: argparse.Namespace) -> list[DeadLetter]:
    """Return the dead letters of an address, from the oldest on."""
    if options.program is None:
        raise ConfigurationError(
            "dead letters are in a topic that the application declares: give its program with --program"
        )
    # They need Kafka's client, for which other uses of the command would wait.
    from statefun.inspect.validation import (  # noqa: PLC0415 - as above
        declared_module,
        program_and_modules,
    )
    from statefun.runtime.letters.dead_letters import DeadLetters  # noqa: PLC0415 - see above

    letters = DeadLetters(declared_module(*program_and_modules([options.program])))
    return sorted(
        letters.stream(LetterFilter(function=str(address))), key=lambda each: each.age_order
    )


def _print_report(
    report: AddressReport, letters: Sequence[DeadLetter], options: argparse.Namespace
) -> None:
    if options.json:
        added = {"dead_letters": [as_json(each) for each in letters]}
        print_json({**report_json(report), **(added if options.dead_letters else {})})
        return
    print(f"{printable(str(report.address))} in batch {report.batch}")
    for heading, rows in sections(report, SystemClock().now()):
        print(f"\n{heading}")
        print_table(rows)
    if letters:
        print(f"\n{counted(len(letters), 'dead letter')}")
        print_table([LETTER_COLUMNS, *map(row, letters)])
