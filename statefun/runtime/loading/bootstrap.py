# SPDX-License-Identifier: Apache-2.0
"""``statefun.bootstrap()``: a new checkpoint whose state comes from DataFrames."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents give it
from pyspark.sql.types import StringType

from statefun.engine.address_keys import address_of
from statefun.engine.clock import SystemClock
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.declarations import with_present
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.known_functions import KnownFunctions, write_functions
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.loading.encoded_states import (
    ENCODED_ROWS,
    ID_COLUMN,
    SEGMENT_COLUMN,
    StateEncoder,
    WakeUps,
)
from statefun.runtime.loading.new_checkpoint import (
    Beginning,
    begin_checkpoint,
    complete_checkpoint,
    empty_checkpoint,
)
from statefun.runtime.spark.session import query_session, use_checkpoint
from statefun.runtime.spark.shipping import own_modules
from statefun.runtime.spark_internals.arrow_functions import spark_schema
from statefun.runtime.spark_internals.closures import pickle_by_value
from statefun.runtime.spark_internals.error_texts import first_words
from statefun.runtime.spark_internals.jvm import JvmError
from statefun.runtime.spark_internals.task import tasks_of_batch
from statefun.runtime.stored.decoded_rows import UNDECODED, UNDECODED_TYPE
from statefun.runtime.stored.known_values import nearest
from statefun.sdk.address import TypeName
from statefun.sdk.annotations import known_types
from statefun.sdk.errors import CheckpointError, ConfigurationError
from statefun.sdk.functions import StatefulFunctions, default_functions
from statefun.sdk.value_spec import ValueSpec

StartOffsets = Mapping[str, Mapping[str, Mapping[int, int]]]
"""The next offset to read by the ids of ingresses, the topics and the numbers of partitions."""

_ROWS = "loading"
"""The folder of the checkpoint with the encoded rows, until their state is written."""
_BATCH = 1


def bootstrap(  # noqa: PLR0913 - each has a meaning of its own
    spark: SparkSession,
    checkpoint: str | Path,
    states: Mapping[str, DataFrame],
    *,
    offsets: StartOffsets | None = None,
    state_partitions: int | None = None,
    functions: StatefulFunctions = default_functions,
) -> None:
    """Make a new checkpoint whose addresses have values from DataFrames; the application then starts with it.

    A DataFrame has the column ``id``, of type string, and a column for each value that it sets: of the type that
    :func:`state` returns for the value, or of binary, for values that are encoded already. A null is no value, and a
    row without values is no address with state. It may have the column ``undecoded``, as :func:`state` returns it: a
    value in it is taken instead of that in its column. A value with an expiration expires as if it were written now.
    If a value has the name ``id`` or ``undecoded``, its column is ``id_value`` or ``undecoded_value``.

    Args:
        spark: any session; its cluster does the work.
        checkpoint: an empty folder, or one that does not exist; or its URI.
        states: a DataFrame for each function, by the typename of the function.
        offsets: the next offset to read, by the ids of Kafka ingresses, topics and partitions. An ingress that is not
            listed begins at its startup position; partitions of a listed topic that are not listed are read from
            their first record.
        state_partitions: into how many parts the state is divided; as many as there are cores if not given.
        functions: the functions of the application, which declare the values.

    Raises:
        ConfigurationError: if the checkpoint has files, a function is not registered, a column belongs to no
            declared value, or a row has no id, a repeated id, or a value that does not fit its type.
        CheckpointError: if the checkpoint cannot be written.

    The checkpoint is not valid before this function returns; delete its folder if the program was interrupted.

    Example::

        visits = spark.table("visits").selectExpr("user as id", "cast(visits as int) as count")
        statefun.bootstrap(
            spark,
            "/data/checkpoints/greeter",
            {"com.example.docs/greeter": visits},
            offsets={"com.example.docs/users": {"users": {0: 1042}}},
        )
    """
    folder = Folder.at(checkpoint)
    ends = _ends(offsets or {})
    encoders = [_encoder(functions, typename, frame) for typename, frame in states.items()]
    for module in own_modules(functions):
        pickle_by_value(sys.modules[module])
    session = query_session(spark, state_partitions)
    use_checkpoint(session, folder)
    with empty_checkpoint(folder):
        try:
            rows = _written_rows(session, folder, zip(encoders, states.values(), strict=True))
            _check_rows(folder, rows)
            begin_checkpoint(session, folder)
            _send_wake_ups(session, folder, rows)
        except (PySparkException, JvmError) as error:
            raise CheckpointError(
                f"the new checkpoint {folder.shown} cannot be written: {first_words(error)}"
            ) from error
        declared = with_present({}, functions, _BATCH).items()
        declarations = {name: values for name, values in declared if name in states}
        known = KnownFunctions(frozenset(states), declarations=declarations)
        write_functions(folder, known.with_types(known_types()))
        topics = {name: [*each] for name, each in ends.items()}
        complete_checkpoint(
            session, folder, rows.select("target", "state"), Beginning(ends, topics)
        )
        folder.child(_ROWS).remove_all()


def _ends(offsets: StartOffsets) -> dict[str, dict[str, dict[str, int]]]:
    """Return offsets in the form of Spark's log.

    Raises:
        ConfigurationError: if an offset is not a whole number, at least 0.
    """
    for ingress, topics in offsets.items():
        TypeName.parse(ingress)
        for topic, partitions in topics.items():
            for number, offset in partitions.items():
                if type(number) is not int or type(offset) is not int or min(number, offset) < 0:
                    raise ConfigurationError(
                        f"the offset of ingress {ingress}, topic {topic}, partition {number!r} must be a whole "
                        f"number, at least 0, but is {offset!r}"
                    )
    return {
        ingress: {
            topic: {f"{number}": offset for number, offset in partitions.items()}
            for topic, partitions in topics.items()
        }
        for ingress, topics in offsets.items()
    }


def _encoder(functions: StatefulFunctions, typename: str, frame: DataFrame) -> StateEncoder:
    """Return the encoder for the rows of a function.

    Raises:
        ConfigurationError: if the function or a column is unknown, or ids are missing or no text.
    """
    function = functions.find(typename)
    if function is None:
        raise ConfigurationError(f"no function {typename} is registered{functions.hint(typename)}")
    if ID_COLUMN not in frame.columns or not isinstance(
        frame.schema[ID_COLUMN].dataType, StringType
    ):
        raise ConfigurationError(
            f"the DataFrame of function {typename} must have a column {ID_COLUMN} of type string, but has the columns "
            f"{', '.join(f'{field.name} {field.dataType.simpleString()}' for field in frame.schema)}"
        )
    own = {ID_COLUMN, UNDECODED}
    declared: dict[str, ValueSpec] = {
        f"{name}_value" if name in own else name: spec for name, spec in function.specs.items()
    }
    for column in frame.columns:
        if column not in {*own, *declared}:
            raise ConfigurationError(
                f"function {typename} declares no value for the column {column}"
                f"{nearest(column, declared, 'values')}"
            )
    columns = {column: declared[column] for column in frame.columns if column not in own}
    stored = None
    if UNDECODED in frame.columns:
        expected = spark_schema(pa.schema([(UNDECODED, UNDECODED_TYPE)]))[0].dataType.simpleString()
        found = frame.schema[UNDECODED].dataType.simpleString()
        if found != expected:
            raise ConfigurationError(
                f"the column {UNDECODED} of the DataFrame of function {typename} must have the type that statefun.state() "
                f"gives it, {expected}, but has the type {found}; the column of a value of this name is {UNDECODED}_value"
            )
        former = {name: function.specs[new] for name, new in function.renamed_values.items()}
        stored = {**former, **function.specs}
    return StateEncoder(typename, columns, SystemClock().now(), stored)


def _written_rows(
    session: SparkSession, folder: Folder, frames: Iterable[tuple[StateEncoder, DataFrame]]
) -> DataFrame:
    """Encode the rows of all functions once, and return the encoded rows."""
    encoded = [frame.mapInArrow(encoder, ENCODED_ROWS) for encoder, frame in frames]
    location = folder.child(_ROWS).spark_uri
    if encoded:
        reduce(DataFrame.unionAll, encoded).write.parquet(location)
        return session.read.schema(ENCODED_ROWS).parquet(location)
    return session.createDataFrame([], ENCODED_ROWS)


def _check_rows(folder: Folder, rows: DataFrame) -> None:
    """Check that all rows were encoded, and that no address occurs twice.

    Raises:
        ConfigurationError: if a row was not encoded, or an address occurs twice.
    """
    problem = rows.where(F.col("problem").isNotNull()).select("problem").first()
    text = None if problem is None else problem.problem
    if text is None:
        doubled = rows.groupBy("target").count().where("count > 1").first()
        if doubled is None:
            return
        text = f"{address_of(bytes(doubled.target))} occurs in {doubled['count']} rows"
    folder.child(_ROWS).remove_all()
    raise ConfigurationError(f"{text}; nothing was written to checkpoint {folder.shown}")


def _send_wake_ups(session: SparkSession, folder: Folder, rows: DataFrame) -> None:
    """Stage the wake-ups of addresses whose values expire, as effects of the micro-batch that writes the state."""
    waking = rows.where(F.col("wake").isNotNull()).select("target", "wake")
    with tasks_of_batch(session.sparkContext, _BATCH):
        found = waking.mapInArrow(WakeUps(folder), f"{SEGMENT_COLUMN} binary").collect()
    segments = [Segment.FromString(bytes(row[SEGMENT_COLUMN])) for row in found]
    if segments:
        query_id = CommitLog(folder).query_id()
        Outbox(folder).stage(Manifest(batch=_BATCH, query_id=query_id, segments=segments, lanes=1))
