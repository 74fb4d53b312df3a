# SPDX-License-Identifier: Apache-2.0
"""The one streaming query of an application: its sources, its operator, and its sink."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from statefun.engine.clock import Clock
from statefun.engine.program import Program
from statefun.module.model import Module
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.connector_folder import connector_folder
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.plan import dispatch
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.dispatch.worker_logs import LogLevels
from statefun.runtime.ingress.connector_source import Reading, read_connector
from statefun.runtime.ingress.feedback import read_feedback
from statefun.runtime.ingress.kafka_source import read_kafka
from statefun.runtime.preflight.preparation import Prepared
from statefun.runtime.settings import Settings
from statefun.runtime.spark.session import can_dispatch_arrow, is_local
from statefun.runtime.spark.shipping import import_paths, send_modules
from statefun.runtime.spark_internals.driver_source import Source
from statefun.runtime.spark_internals.logs import SPARKS_LOGGERS
from statefun.sdk.functions import StatefulFunctions


def operator_of(
    session: SparkSession,
    module: Module,
    functions: StatefulFunctions,
    settings: Settings,
    clock: Clock,
) -> Operator:
    """Return the operator that calls an application's functions; ship its modules to workers."""
    program = Program.of(functions, module, settings.on_unregistered)
    paths: tuple[str, ...] = ()
    if is_local(session):
        paths = import_paths()
    else:
        send_modules(session.sparkContext, functions)
    return Operator(
        Payload.of(program, paths),
        SegmentWriter(settings.checkpoint),
        settings.async_concurrency,
        settings.immediate_messages,
        clock,
        arrow=settings.dispatch == "arrow" and can_dispatch_arrow(session),
        log_levels=LogLevels.of_program(leave_out=("statefun", *SPARKS_LOGGERS)),
    )


def joined_rows(  # noqa: PLR0913, PLR0917 - what a run begins with comes together here
    session: SparkSession,
    prepared: Prepared,
    settings: Settings,
    clock: Clock,
    failed: Callable[[Exception], None],
    opened: Callable[[Source], None],
) -> DataFrame:
    """Return the rows of all ingresses, and of messages between functions.

    Args:
        session: the session.
        prepared: the ingresses, and where they start and stop.
        settings: the application's settings.
        clock: tells which timers are due.
        failed: gets the exception if a micro-batch cannot be planned.
        opened: gets the sources of connectors.
    """
    ingresses = [
        read_kafka(session, ingress, start, stops, settings.records_per_batch)
        for ingress, start, stops in zip(
            prepared.ingresses, prepared.starts, prepared.bounds.stops, strict=True
        )
    ]
    commit_log = CommitLog(settings.checkpoint)
    connectors = [
        read_connector(
            Reading(
                session,
                ingress,
                connector_folder(settings.checkpoint, ingress.id),
                settings.records_per_batch,
                settings.kafka_timeout,
                commit_log.is_fresh(),
                partial(commit_log.settled, number),
                opened,
                failed,
            )
        )
        for number, ingress in enumerate(prepared.connectors, len(prepared.ingresses))
    ]
    # The feedback source is the last one: its offset is the last one in the log of offsets.
    feedback = read_feedback(session, settings.checkpoint, clock, failed, prepared.store)
    return reduce(DataFrame.unionAll, [*ingresses, *connectors, feedback])


def start_query(
    rows: DataFrame,
    operator: Operator,
    stage: Callable[[DataFrame, int], None],
    settings: Settings,
) -> StreamingQuery:
    """Start the query: an operator handles rows, and the effects of each micro-batch are staged."""
    writer = (
        dispatch(rows, operator)
        .writeStream.foreachBatch(stage)
        .option("checkpointLocation", settings.checkpoint.spark_uri)
        .queryName(rows.sparkSession.sparkContext.appName or "statefun")
    )
    if settings.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        millis = round(settings.trigger / timedelta(milliseconds=1))
        writer = writer.trigger(processingTime=f"{millis} milliseconds")
    return writer.start()
