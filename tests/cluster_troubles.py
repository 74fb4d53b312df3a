# SPDX-License-Identifier: Apache-2.0
"""An application on a standalone cluster, with its checkpoint in an object store, and its troubles."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import ClassVar

import attrs
from class_archive import SHORT_LIVED
from local_servers import free_port
from object_store import ObjectStore
from proxy import LossyProxy
from soak_processes import PATIENCE, Driver, processes, python_workers, send
from soak_run import Soak
from soak_troubles import (
    CHECKPOINT,
    kill_all,
    kill_broker,
    kill_jvm,
    kill_program,
    living,
    wait_for_end,
)
from standalone_cluster import StandaloneCluster
from store_proxy import Fault, StoreProxy
from tcp_proxy import TcpProxy

from statefun.runtime.checkpoint.folder import Folder

_LONGEST_CUT = 8.0
"""Seconds; requests to the store are tried again for ten."""
_CHECKPOINT_PATH = "checkpoint"
_DRIVER_HOST = "127.0.0.2"
"""Where executors look for drivers, which listen on 127.0.0.1."""
_DRIVER_PORTS = ("spark.driver.port", "spark.driver.blockManager.port", "spark.statefun.call-port")


@attrs.frozen
class ProxiedStore:
    """An object store, and the proxy through which the application reaches it."""

    server: ObjectStore
    proxy: StoreProxy

    @property
    def checkpoint(self) -> Folder:
        """The checkpoint, as the soak itself reaches it at all times."""
        return self.server.folder(_CHECKPOINT_PATH)

    @property
    def location(self) -> str:
        """Where the application finds the checkpoint."""
        return self.server.location(_CHECKPOINT_PATH, port=self.proxy.port)


@attrs.define(kw_only=True)
class ClusterSoak(Soak):
    """A soak whose tasks run in the executors of a cluster."""

    cluster: StandaloneCluster
    network: LossyProxy
    """Through which everyone reaches the broker."""
    ways: list[TcpProxy] = attrs.Factory(list)
    """On which executors reach their drivers; those of the newest driver come last."""
    store: ProxiedStore | None = None
    """Has the checkpoint; if None, it is in a folder of this machine."""
    expected: ClassVar[Sequence[str]] = (
        "another driver",
        "another run",
        "at each attempt",
        "could not read or write checkpoint",
    )
    pause: ClassVar[float] = 0.2

    @property
    def checkpoint(self) -> Folder:
        """The checkpoint."""
        return self.store.checkpoint if self.store else super().checkpoint

    @property
    def location(self) -> str:
        """Where the application finds the checkpoint."""
        return self.store.location if self.store else super().location

    def environment(self) -> dict[str, str]:
        """Return the environment variables with which Spark starts, and make ways to the driver."""
        ports = {name: free_port() for name in _DRIVER_PORTS}
        self.ways += [TcpProxy(_DRIVER_HOST, port) for port in ports.values()]
        conf = {"spark.driver.host": _DRIVER_HOST, **ports}
        settings = " ".join(f"--conf {key}={value}" for key, value in conf.items())
        return {
            "PYSPARK_SUBMIT_ARGS": f"{self.cluster.submit_arguments} {settings} pyspark-shell",
            "SPARK_SUBMIT_OPTS": SHORT_LIVED,
            "SPARK_DIST_CLASSPATH": "",  # the driver sends jars to its executors
        }

    def workers(self, driver: Driver) -> list[int]:
        """Return the Python workers of all executors."""
        return python_workers(self.cluster.executors())

    def close(self) -> None:
        """End all processes of the application, and the ways to its drivers."""
        super().close()
        for way in self.ways:
            way.close()


def kill_executor(soak: Soak, _driver: Driver) -> None:
    """Kill an executor with its Python workers; Spark's worker starts another one."""
    executors = _on_cluster(soak).cluster.executors()
    if executors and send(soak.random.choice(executors), signal.SIGKILL):
        soak.done["executors killed"] += 1


def _kill_spark_worker(soak: Soak, _driver: Driver) -> None:
    """Kill a worker of Spark's, whose executor ends with it, and start another one a moment later."""
    cluster = _on_cluster(soak).cluster
    cluster.kill_worker(soak.random.randrange(cluster.worker_count))
    time.sleep(soak.random.uniform(0, 5))
    cluster.start_worker()
    soak.done["Spark workers killed"] += 1


def _cut_store(soak: Soak, _driver: Driver) -> None:
    store = _on_cluster(soak).store
    assert store is not None
    store.proxy.fault = lambda _: Fault()
    time.sleep(soak.random.uniform(1, _LONGEST_CUT))
    store.proxy.fault = lambda _: None
    soak.done["stores cut off"] += 1


def _cut_broker(soak: Soak, _driver: Driver) -> None:
    network = _on_cluster(soak).network
    network.cut()
    time.sleep(soak.random.uniform(1, _LONGEST_CUT))
    network.mend()
    soak.done["brokers cut off"] += 1


def cut_driver(soak: Soak, _driver: Driver) -> None:
    """Cut the driver off its executors: packets are late, or all connections end, and the executors with them."""
    ways = _on_cluster(soak).ways
    cut = soak.random.choice([TcpProxy.hold, TcpProxy.cut])
    for way in ways:
        cut(way)
    time.sleep(soak.random.uniform(1, _LONGEST_CUT))
    for way in ways:
        way.mend()
    soak.done["drivers cut off their executors"] += 1


def decommission(soak: Soak, driver: Driver) -> None:
    """Add a worker of Spark's, decommission another one, and kill that one when its executors have ended."""
    cluster = _on_cluster(soak).cluster
    number = soak.random.randrange(cluster.worker_count)
    cluster.start_worker()
    executors = cluster.decommission_worker(number)
    soak.wait_for(driver, lambda: not processes().keys() & executors)
    cluster.kill_worker(number)
    soak.done["Spark workers added, and others decommissioned"] += 1


def _overtake(soak: Soak, driver: Driver) -> Driver:
    """Stop program and JVM until another driver has committed; then they go on, and end by themselves."""
    os.killpg(driver.program.pid, signal.SIGSTOP)
    successor = living(soak)
    os.killpg(driver.program.pid, signal.SIGCONT)
    wait_for_end(driver, PATIENCE)
    words = driver.last_words()
    if not words.startswith(CHECKPOINT) or not any(text in words for text in soak.expected):
        raise AssertionError(f"not ended because it was overtaken: {driver.log()}")
    soak.done["drivers overtaken"] += 1
    return successor


def _on_cluster(soak: Soak) -> ClusterSoak:
    assert isinstance(soak, ClusterSoak)
    return soak


CLUSTER_TROUBLES = (
    kill_executor,
    _kill_spark_worker,
    decommission,
    cut_driver,
    _cut_broker,
    kill_broker,
)
"""The troubles that a driver may survive."""
CLUSTER_ENDINGS = (kill_all, kill_program, kill_jvm)
"""How the life of a driver may end."""
STORE_TROUBLES = (*CLUSTER_TROUBLES, _cut_store)
STORE_ENDINGS = (*CLUSTER_ENDINGS, _overtake)
"""These are for checkpoints in an object store, of which a stopped driver can lose the lease."""
