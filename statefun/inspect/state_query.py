# SPDX-License-Identifier: Apache-2.0
"""``statefun state sql``: queries the state in a checkpoint with Spark SQL."""

from __future__ import annotations

import argparse
import re

from pyspark.errors import PySparkException

from statefun.console.json_output import print_json
from statefun.inspect.state_texts import shown
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.spark.session import open_session
from statefun.runtime.spark_internals.error_texts import first_words
from statefun.runtime.spark_internals.jvm import JvmError
from statefun.runtime.spark_internals.logs import silent_queries
from statefun.runtime.stored.committed_state import readable_batch
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.plain_json import plain_json
from statefun.runtime.stored.state_frame import state
from statefun.runtime.stored.typed_values import Decoded
from statefun.runtime.terminal.table import counted, print_table
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.functions import StatefulFunctions

_QUOTED = re.compile("`([^`]+)`")
"""A name in a query that may be a table: typenames have slashes, and so must be in backquotes."""


def run_query(
    checkpoint: Folder, functions: StatefulFunctions | None, options: argparse.Namespace
) -> None:
    """Run a query and print its rows.

    Args:
        checkpoint: the checkpoint.
        functions: the program's functions; None if no program was given.
        options: the parsed options of the command line.

    Raises:
        ConfigurationError: if the query cannot be run.
        CheckpointError: if the state cannot be read.
    """
    batch = readable_batch(checkpoint, options.at_batch)
    known = KnownValues.of(checkpoint, functions)
    session = open_session(debug=False, state_partitions=None, kafka=False)
    hidden = list[str]()
    for typename in filter(known.has, dict.fromkeys(_QUOTED.findall(options.query))):
        hidden += [f"{name} of `{typename}`" for name in sorted(known.secrets(typename).names)]
        frame = state(
            session,
            checkpoint.location,
            typename,
            at_batch=batch,
            functions=functions or StatefulFunctions(),
        )
        frame.createOrReplaceTempView(f"`{typename}`")
    try:
        with silent_queries():
            found = session.sql(options.query)
            rows = found.limit(options.limit + 1).collect()
    except (PySparkException, JvmError) as error:
        secret = f"; secret values have no column: {', '.join(hidden)}" if hidden else ""
        raise ConfigurationError(
            f"the query cannot be run: {first_words(error)} (tables of checkpoint {checkpoint.shown}: "
            f"{', '.join(f'`{each}`' for each in known.typenames) or 'none'}{secret})"
        ) from error
    printed = rows[: options.limit]
    if options.json:
        values = [plain_json(row.asDict(recursive=True)) for row in printed]
        print_json({"batch": batch, "rows": values})
        return
    print_table(
        [found.columns, *([shown(Decoded(_plain(cell))) for cell in row] for row in printed)]
    )
    more = (
        f"; there are more, which --limit={options.limit} leaves out"
        if len(rows) > len(printed)
        else ""
    )
    print(f"{counted(len(printed), 'row')} from batch {batch}{more}")


def _plain(cell: object) -> object:
    """Return the value of a cell, with Spark's structs converted to dicts."""
    if hasattr(cell, "asDict"):
        return cell.asDict(recursive=True)
    if isinstance(cell, list):
        return [_plain(each) for each in cell]
    if isinstance(cell, dict):
        return {name: _plain(each) for name, each in cell.items()}
    return bytes(cell) if isinstance(cell, bytearray) else cell
