# SPDX-License-Identifier: Apache-2.0
"""Settings of Spark that its documentation does not list, and the values that statefun gives them.

Based on ``SQLConf.scala`` and ``internal/config/Python.scala`` of Spark 4.0.2, 4.1.2 and 4.2.0. If Spark no longer knew a key,
it would ignore the key silently.
"""

from __future__ import annotations

import socket

from statefun.runtime.spark_internals.versions import RELEASE

DAEMON = "spark.python.daemon.module"
"""The setting that names the module of the Python worker daemon."""
SPARKS_DAEMON = "pyspark.daemon"
WORKERS = (
    {"spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower()}
    if RELEASE >= (4, 1)
    else {}
)
"""The settings that make Spark and Python workers communicate through Unix sockets.

Over TCP, a worker gets its first rows 40 milliseconds late: Nagle's algorithm on the JVM's side waits for an
acknowledgement, which the kernel of the worker's side delays. Spark 4.0 has TCP alone."""
RETAINED = "spark.sql.streaming.minBatchesToRetain"
"""The setting for the number of micro-batches whose files Spark's logs keep."""

QUERY = {
    # The default store keeps all state on the heap and writes whole partitions each time.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # In version 1 a late commit of a zombie task overwrites state files.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    # It forbids every sort, also our sort within partitions before the stateful operator, which
    # keeps the order of an address's messages however Spark fetches, merges and spills.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    # Spark does not support it in streaming queries, and would warn.
    "spark.sql.adaptive.enabled": "false",
}
"""Settings for the session of an application's query."""

METRICS = {
    # Else the names of metrics contain the id of the application, which differs in each run.
    "spark.metrics.namespace": "${spark.app.name}",
    # On the page /metrics/prometheus of Spark's own UI.
    "spark.metrics.conf.*.sink.prometheusServlet.class": (
        "org.apache.spark.metrics.sink.PrometheusServlet"
    ),
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
}
"""Settings of a context that let Prometheus read Spark's metrics, under names that are equal in all runs."""

_CHECKPOINTING = "streaming.checkpointing" if RELEASE >= (4, 1) else "streaming"
LOCAL_CHECKPOINT = {
    # Spark's default manager writes through Hadoop's FileContext, whose checksum files cannot be
    # switched off.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"org.apache.spark.sql.execution.{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings for a checkpoint on a local disk, which let the module ``hadoop`` switch off checksum files."""
