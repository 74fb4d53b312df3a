# SPDX-License-Identifier: Apache-2.0
"""Killing parts of a cluster again and again, and then checking every record.

Each seed is the application of ``make soak`` on a standalone cluster of Spark with two workers, with its checkpoint in an
S3-compatible store. ``make cluster`` kills Python workers, executors, Spark's workers, drivers and the broker, cuts the
application off the store and off the broker, and freezes drivers until another one has taken over.
``--local`` puts the checkpoint into a folder of this machine. ``--seed 7`` repeats a seed's choices, though not its timing.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from cluster_troubles import (
    CLUSTER_ENDINGS,
    CLUSTER_TROUBLES,
    STORE_ENDINGS,
    STORE_TROUBLES,
    ClusterSoak,
    ProxiedStore,
)
from object_store import object_store
from proxy import LossyProxy
from soak import proxied_broker
from soak_seeds import Result, Seeds, exit_at_signals, judged, soak_all
from soak_troubles import harass
from standalone_cluster import standalone_cluster
from store_proxy import store_proxy


@contextmanager
def cluster_soak(
    folder: Path, seed: int, *, workers: int = 2, is_local: bool = False
) -> Iterator[ClusterSoak]:
    """Run a cluster, a broker, and a store unless the checkpoint is local, for an application, during the block."""
    with ExitStack() as parts:
        store = None
        if not is_local:
            server = parts.enter_context(object_store(folder))
            store = ProxiedStore(server, parts.enter_context(store_proxy(server.port)))
        network = parts.enter_context(closing(LossyProxy()))
        kafka, address = parts.enter_context(proxied_broker(network))
        cluster = parts.enter_context(standalone_cluster(folder / "cluster", workers=workers))
        soak = ClusterSoak(
            kafka,
            address,
            folder,
            random.Random(seed),
            f"seed-{seed}-",
            cluster=cluster,
            network=network,
            store=store,
        )
        parts.enter_context(closing(soak))
        soak.create_topics()
        yield soak


def soak_seed(seed: int, seeds: Seeds, arguments: argparse.Namespace) -> Result:
    """Do to an application what the command line asks for."""
    endings, troubles = (
        (CLUSTER_ENDINGS, CLUSTER_TROUBLES) if arguments.local else (STORE_ENDINGS, STORE_TROUBLES)
    )
    return judged(
        "cluster",
        seed,
        seeds,
        partial(cluster_soak, seed=seed, is_local=arguments.local),
        lambda soak: harass(soak, arguments.kills, arguments.messages, endings, troubles),
    )


def main() -> int:
    """Soak as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, prog="make cluster")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="so many seeds side by side")
    parser.add_argument("--messages", type=int, default=100_000, help="for each seed")
    parser.add_argument("--kills", type=int, default=8, help="of drivers, for each seed")
    parser.add_argument("--local", action="store_true", help="without an object store")
    arguments = parser.parse_args()
    exit_at_signals()
    return soak_all(partial(soak_seed, arguments=arguments), arguments)


if __name__ == "__main__":
    sys.exit(main())
