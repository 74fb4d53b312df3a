# SPDX-License-Identifier: Apache-2.0
"""The command ``statefun``: looking after applications from outside."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import attrs
from pyspark.errors import PySparkException

from statefun.dev import commands as dev_commands
from statefun.inspect import outbox_command
from statefun.inspect.clusters import cluster_findings, position_findings
from statefun.inspect.connector_checks import connector_findings
from statefun.inspect.dead_letters import DeadLetter, DeadLetters
from statefun.inspect.endpoint_checks import endpoint_findings
from statefun.inspect.stored_findings import checkpoint_findings
from statefun.inspect.table import print_table
from statefun.inspect.validation import Validation, declared_module, validate
from statefun.module.schema import module_schema
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.printable import printable
from statefun.runtime.spark_internals.error_texts import first_words
from statefun.runtime.spark_internals.jvm import JvmError
from statefun.sdk.errors import ConfigurationError, EngineError, StatefunError
from statefun.serving import serve_command

_COLUMNS = ("id", "age", "reason", "address", "from")
_PATIENCE = timedelta(seconds=15)
"""How long a cluster may take for an answer."""
_WIDEST = 60
"""The number of characters of a column that a table shows."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code: 0 if all is well, 1 if it cannot be done."""
    commands = parser()
    options = commands.parse_args(arguments)
    if options.command == "dlq" and options.action == "replay" and bool(options.id) == options.all:
        commands.error("name the dead letters to replay, or give --all")
    try:
        return _run(options)
    except StatefunError as error:
        print(f"statefun: {error}", file=sys.stderr)
        return 1
    except (JvmError, PySparkException) as error:
        print(
            f"statefun: {EngineError(f'Spark has failed: {first_words(error)}')}", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "schema":
            print(json.dumps(module_schema(), indent=1))
        case "validate":
            return _validate(options)
        case "dlq":
            _dlq(options)
        case "outbox":
            outbox_command.run_command(options)
        case "serve":
            serve_command.run_command(options)
        case "dev":
            dev_commands.run_command(options)
    return 0


def _dlq(options: argparse.Namespace) -> None:
    letters = DeadLetters(declared_module(*_app_and_modules(options.module or [])))
    if options.action == "list":
        _list(letters)
    elif options.action == "show":
        _show(letters, options.id)
    else:
        count = letters.replay(None if options.all else options.id, to_target=options.to_target)
        where = "to their targets" if options.to_target else "into their topics"
        print(f"replayed {count:,} dead letters {where}")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    statefun = argparse.ArgumentParser(prog="statefun", description=__doc__)
    commands = statefun.add_subparsers(dest="command", metavar="command", required=True)
    validate_ = commands.add_parser("validate", help="look for everything that is wrong")
    validate_.add_argument(
        "files",
        nargs="*",
        type=Path,
        help="a program (.py), and module files (default: the module.yaml beside the program, or "
        "in this folder)",
    )
    validate_.add_argument("--json", action="store_true", help="print the findings as JSON")
    validate_.add_argument(
        "--connect",
        action="store_true",
        help="ask clusters (topics, rights, ...), streams, folders and endpoints, too",
    )
    validate_.add_argument(
        "--checkpoint", help="compare with the state in a checkpoint: a folder or its URI"
    )
    commands.add_parser("schema", help="print the JSON Schema of module files, for editors")
    serve_command.add_command(commands)
    dev_commands.add_commands(commands)
    outbox_command.add_command(commands)
    dlq = commands.add_parser("dlq", help="look at dead letters, and replay them")
    actions = dlq.add_subparsers(dest="action", metavar="action", required=True)
    list_ = actions.add_parser("list", help="a table of all that were not replayed")
    show = actions.add_parser("show", help="one of them in full")
    show.add_argument("id", help="as the table has it, such as 0/17")
    replay = actions.add_parser("replay", help="send them on their way again, each once")
    replay.add_argument("id", nargs="*", help="which ones")
    replay.add_argument("--all", action="store_true", help="all that there are")
    replay.add_argument(
        "--to-target",
        action="store_true",
        help="straight to the function that has failed, through the egress's replayTopic, and not "
        "into the topic that they came from",
    )
    for action in (list_, show, replay):
        action.add_argument(
            "--module",
            type=Path,
            action="append",
            help="a module file (default: module.yaml in this folder), or a program that declares "
            "its egresses; may be repeated",
        )
    return statefun


def _app_and_modules(files: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    """Tell the program among files from module files.

    Raises:
        ConfigurationError: if there are several programs.
    """
    apps = [file for file in files if file.suffix == ".py"]
    if len(apps) > 1:
        raise ConfigurationError(f"give one program, not {len(apps)}")
    return apps[0] if apps else None, [file for file in files if file not in apps]


def _validate(options: argparse.Namespace) -> int:
    validation = validate(*_app_and_modules(options.files))
    if options.connect and validation.module is not None:
        validation.findings += cluster_findings(validation.module, _PATIENCE)
        validation.findings += connector_findings(validation.module, _PATIENCE)
        validation.findings += endpoint_findings(validation.module, validation.functions)
    if options.checkpoint and validation.module is not None:
        checkpoint = Folder.at(options.checkpoint)
        validation.findings += checkpoint_findings(
            checkpoint, validation.module, validation.functions
        )
        if options.connect:
            validation.findings += position_findings(checkpoint, validation.module, _PATIENCE)
    if options.json:
        findings = [
            {"severity": finding.severity, **attrs.asdict(finding.problem)}
            for finding in validation.findings
        ]
        print(json.dumps({"valid": validation.is_valid, "findings": findings}, indent=1))
    else:
        for finding in validation.findings:
            print(finding)
        print(_conclusion(validation))
    return 0 if validation.is_valid else 1


def _conclusion(validation: Validation) -> str:
    counts = Counter(finding.severity for finding in validation.findings)
    found = ", ".join(_count(count, word) for word, count in sorted(counts.items()))
    parts = []
    if validation.module is not None:
        parts += [_count(len(validation.module.routed), "ingress", "es")]
        parts += [_count(len(validation.module.all_egresses), "egress", "es")]
        if validation.module.endpoints:
            parts += [_count(len(validation.module.endpoints), "endpoint")]
    if validation.functions is not None:
        parts += [_count(len(validation.functions), "function")]
    looked_at = f" ({', '.join(parts)})" if parts else ""
    return f"{'valid' if validation.is_valid else 'not valid'}{looked_at}: {found or 'all is well'}"


def _count(number: int, word: str, plural: str = "s") -> str:
    return f"{number} {word}{'' if number == 1 else plural}"


def _list(letters: DeadLetters) -> None:
    now = datetime.now(timezone.utc)
    # No more letters than are printed: letters may be large and many.
    found = sorted((letter.age_order, _row(letter, now)) for letter in letters.stream())
    if not found:
        print(f"no dead letters wait in topic {letters.topic}")
        return
    print_table([_COLUMNS, *(row for _, row in found)])
    print(f"{len(found):,} dead letters in topic {letters.topic}")


def _row(letter: DeadLetter, now: datetime) -> tuple[str, ...]:
    facts = letter.facts
    record = "/".join(facts[name] for name in ("topic", "partition", "offset") if name in facts)
    cells = (
        letter.id,
        _age(now - letter.time),
        f"{facts.get('error-code', '?')} {facts.get('error-type', '?')}",
        facts.get("target", "-"),
        record or facts.get("caller", "-"),
    )
    return tuple(printable(cell, _WIDEST) for cell in cells)


def _show(letters: DeadLetters, id_: str) -> None:
    (letter,) = letters.find([id_])
    print(f"dead letter {id_} in topic {letters.topic}, {letter.time:%Y-%m-%d %H:%M:%S} UTC")
    for name, text in sorted(letter.facts.items()):
        print(f"  {printable(name)}: {printable(text)}")
    for name, value in letter.headers:
        print(f"  header {printable(name)}: {value!r}")
    print(f"  key: {letter.key!r}")
    print(f"  value: {letter.value!r}")


def _age(age: timedelta) -> str:
    """Describe roughly how long ago a time was.

    >>> _age(timedelta(minutes=90)), _age(timedelta(days=3)), _age(timedelta(seconds=9))
    ('90 min', '72 h', '9 s')
    """
    seconds = max(0, round(age.total_seconds()))
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (345_600, 3600, "h")):
        if seconds < limit:
            return f"{seconds // size} {unit}"
    return f"{seconds // 86_400} d"


if __name__ == "__main__":
    sys.exit(main())
