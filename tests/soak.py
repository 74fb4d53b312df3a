# SPDX-License-Identifier: Apache-2.0
"""Killing an application again and again, and then checking every record.

Each seed is an application on a checkpoint and a broker of its own, with egresses of all three
semantics, with functions elsewhere, calls that leave their micro-batches, and windows of event time. ``make soak`` kills
and freezes its programs, JVMs and Python workers one by one, freezes and restarts its broker, stops the
server of the functions elsewhere until chunks of messages wait for it, loses the disk and restores a snapshot,
and lets drivers die at named points, which the seeds share. Every third seed publishes in several lanes, to a slow broker.
``--seed 7`` repeats a seed's choices, though not its timing.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

from class_archive import archived
from proxy import LossyProxy
from soak_app import INSIDE, OF_PUBLISHING, POINTS
from soak_run import Soak
from soak_seeds import Result, Seeds, exit_at_signals, judged, soak_all
from soak_troubles import harass, toggle_server

from statefun.dev import EmbeddedKafka

LANES = 2
BYTES_PER_SECOND = 300_000
"""Bytes per second of a slow broker's connection."""
LATENCY = timedelta(milliseconds=5)


def has_lanes(seed: int) -> bool:
    """Return whether a seed publishes in several lanes, to a slow broker."""
    return seed % 3 == 2


def shared_points(of: int, hits: int) -> list[list[str]]:
    """Deal all named points to so many seeds, each point so many times.

    Several lanes are published in Python workers, where no driver can be told to die.
    """
    hands: list[list[str]] = [[] for _ in range(of)]
    names = sorted([*POINTS, INSIDE], key=lambda name: name not in OF_PUBLISHING)
    for name in names:
        for _ in range(hits):
            able = [
                hand
                for seed, hand in enumerate(hands)
                if not (name in OF_PUBLISHING and has_lanes(seed))
            ]
            min(able, key=len).append(name)
    return hands


@contextmanager
def broker(*, slow: bool) -> Iterator[tuple[EmbeddedKafka, str]]:
    """Run a broker; yield it and its address, or a slow proxy's address if it is to be slow."""
    if not slow:
        with EmbeddedKafka() as kafka:
            yield kafka, kafka.bootstrap_servers
        return
    with closing(LossyProxy()) as proxy:
        proxy.bytes_per_second, proxy.latency = BYTES_PER_SECOND, LATENCY
        with proxied_broker(proxy) as found:
            yield found


@contextmanager
def proxied_broker(proxy: LossyProxy) -> Iterator[tuple[EmbeddedKafka, str]]:
    """Run a broker that all its clients reach through a proxy; yield it and the proxy's address."""
    address = f"127.0.0.1:{proxy.port}"
    with EmbeddedKafka(config={"advertised.listeners": f"PLAINTEXT://{address}"}) as kafka:
        host, _, port = kafka.bootstrap_servers.partition(":")
        proxy.target = (host, int(port))
        yield kafka, address


def quick_start() -> str:
    """Return options with which the JVMs of soaks start in less than half the time."""

    def run(options: str) -> None:
        with tempfile.TemporaryDirectory() as folder, broker(slow=False) as (kafka, address):
            soak = Soak(kafka, address, Path(folder), random.Random(0), "classes-")
            soak.java_options = options
            with closing(soak):
                soak.create_topics()
                soak.send(1000)
                problem = soak.finish()
        if problem:
            raise AssertionError(problem)

    return archived("soak", run)


@contextmanager
def local_soak(
    folder: Path, seed: int, arguments: argparse.Namespace, java_options: str
) -> Iterator[Soak]:
    """Run a broker for an application of this machine during the block."""
    slow = has_lanes(seed % arguments.of)
    with broker(slow=slow) as (kafka, address):
        soak = Soak(kafka, address, folder, random.Random(seed), f"seed-{seed}-")
        soak.lanes, soak.java_options = LANES if slow else 1, java_options
        with closing(soak):
            soak.create_topics()
            yield soak


def soak_seed(seed: int, seeds: Seeds, arguments: argparse.Namespace, java_options: str) -> Result:
    """Do to an application what the command line asks for."""
    points = shared_points(arguments.of, arguments.hits)[seed % arguments.of]
    share = arguments.messages // (arguments.kills + len(points))

    def troubles(soak: Soak) -> None:
        harass(soak, arguments.kills, share * arguments.kills)
        for point in points:
            toggle_server(soak)
            soak.send(share)
            soak.crash_at(point)

    make = partial(local_soak, seed=seed, arguments=arguments, java_options=java_options)
    return judged("soak", seed, seeds, make, troubles)


def main() -> int:
    """Soak as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, prog="make soak")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="so many seeds side by side")
    parser.add_argument("--messages", type=int, default=100_000, help="for each seed")
    parser.add_argument("--kills", type=int, default=10, help="of drivers, for each seed")
    parser.add_argument("--hits", type=int, default=3, help="of each named point by all seeds")
    parser.add_argument("--of", type=int, default=10, help="so many seeds share the named points")
    arguments = parser.parse_args()
    exit_at_signals()
    return soak_all(partial(soak_seed, arguments=arguments, java_options=quick_start()), arguments)


if __name__ == "__main__":
    sys.exit(main())
