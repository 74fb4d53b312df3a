# SPDX-License-Identifier: Apache-2.0
"""Explains why a query has ended, since Spark's own errors are about Spark's internals."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import PythonException

from statefun.module.model import KafkaIngress, OnDataLoss
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.ingress.data_loss import check_kept
from statefun.runtime.ingress.identities import check_identities
from statefun.runtime.ingress.starting_offsets import check_topics
from statefun.runtime.settings import Settings
from statefun.runtime.spark.shipping import lacks_statefun
from statefun.runtime.spark_internals.error_texts import (
    LostWorkerError,
    first_words,
    has_lost_worker,
    is_concurrent_update,
    storage_failure,
    unreadable_record,
)
from statefun.sdk.errors import (
    CheckpointError,
    EngineError,
    KafkaError,
    StatefunError,
    restored,
)


def explained(
    cause: Exception, ingresses: Sequence[KafkaIngress], settings: Settings
) -> StatefunError:
    """Return the error that explains to a user why a query has ended.

    Args:
        cause: the first known failure.
        ingresses: the ingresses in the order of the query's sources; their topics are checked.
        settings: the application's settings.
    """
    if is_concurrent_update(cause):
        return CheckpointError(
            f"Spark could not write its logs in checkpoint {settings.checkpoint.shown}: "
            "another driver, or the JVM of a killed driver, writes them, too; "
            + (
                "nothing is lost, since this run has written nothing over the other one's files"
                if settings.checkpoint.is_store
                else "make sure that both have ended, and restore the checkpoint from a copy"
            )
        )
    if isinstance(cause, StatefunError):
        return cause
    if known := lacks_statefun(str(cause)) or error_of_task(str(cause)):
        return known
    if outside := _of_surroundings(str(cause), settings) or _of_record(str(cause), ingresses):
        return outside
    try:
        _check_ingresses(ingresses, settings)
    except (CheckpointError, KafkaError) as likeliest:
        return likeliest
    if isinstance(cause, PythonException):  # its text is a traceback, whose last line has the error
        *_, text = str(cause).strip().splitlines() or [repr(cause)]
    else:
        text = first_words(cause)
    return EngineError(
        f"the streaming query has ended: {text}; run with spark.statefun.debug=true to see "
        "Spark's log"
    )


def _of_surroundings(text: str, settings: Settings) -> StatefunError | None:
    """Return the error for a lost worker, or for storage that is full or refuses access, if Spark's text says so."""
    if has_lost_worker(text):
        return LostWorkerError(
            "in the middle of a micro-batch, and the run that repeated it has not committed it"
        )
    if storage := storage_failure(text):
        return CheckpointError(
            f"Spark could not read or write checkpoint {settings.checkpoint.shown}, or its own files: {storage}; correct that, "
            "and start again to continue from the last committed batch"
        )
    return None


def error_of_task(text: str) -> StatefunError | None:
    """Return the error of statefun that a task has raised, found in Spark's text; None if there is none.

    >>> error_of_task("statefun.sdk.errors.ConnectorError: [SF510] file /a was deleted")
    ConnectorError('file /a was deleted')
    >>> error_of_task("IndexError: 7")
    """
    line = _ERROR_WITH_CODE.search(text)
    return None if line is None else restored(line["code"], line["message"].strip())


_ERROR_WITH_CODE = re.compile(
    r"^[\w.]+: \[(?P<code>SF\d{3})\] (?P<message>.+)",  # a class, which may be a connector's own
    re.MULTILINE,
)


def _of_record(text: str, ingresses: Sequence[KafkaIngress]) -> StatefunError | None:
    """Return the error for a record that Spark cannot read, so that no failure policy can decide, if Spark's text names it."""
    record = unreadable_record(text)
    if record is None:
        return None
    owners = [
        f"{each.label}: " for each in ingresses if any(r.takes(record.topic) for r in each.topics)
    ]
    return KafkaError(
        f"{''.join(owners[:1])}the record in topic {record.topic}, partition {record.partition}, at offset "
        f"{record.offset} has the timestamp {record.timestamp}, which is too large for a number of milliseconds, so "
        "Spark cannot read the record; let its producer write milliseconds; to go on without the record, set onDataLoss: "
        f"go-on, and delete the records before offset {record.offset + 1} with kafka-delete-records.sh, which also deletes "
        "those before it that are not handled yet: write these again"
    )


def _check_ingresses(ingresses: Sequence[KafkaIngress], settings: Settings) -> None:
    """Check that the topics of all ingresses, and the next records to read, still exist.

    Raises:
        CheckpointError: if a topic was deleted and created anew.
        KafkaError: if a topic or a record is missing.
    """
    timeout = settings.kafka_timeout
    topics = [check_topics(ingress, timeout) for ingress in ingresses]
    commit_log = CommitLog(settings.checkpoint)
    newest = commit_log.newest()
    ends = commit_log.end_offsets(newest) if newest >= 0 else [None] * len(ingresses)
    read = [offsets or {} for _, offsets in zip(ingresses, ends, strict=False)]
    check_identities(settings.checkpoint, ingresses, topics, read, timeout)
    for ingress, offsets in zip(ingresses, read, strict=True):
        if ingress.on_data_loss is OnDataLoss.FAIL:
            check_kept(ingress, offsets, timeout)
