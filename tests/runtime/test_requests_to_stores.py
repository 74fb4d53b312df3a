# SPDX-License-Identifier: Apache-2.0
"""How many requests a checkpoint in an object store costs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from harness import KafkaHarness, running, wait
from object_store import ObjectStore
from runtime.test_checkpoints_in_stores import counting
from store_proxy import store_proxy

from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.settings import Settings

pytestmark = [pytest.mark.broker, pytest.mark.spark]

_REGULAR = re.compile(
    r" (lease/|paused\.json|order\.json|state/.*\.(zip|sst)|state/.*/SSTs)|GET commits/"
)
"""Looks that come once in some seconds, and Spark's snapshots of states."""


@pytest.mark.long(minutes=0.5)
def test_a_micro_batch_makes_few_requests(
    kafka: KafkaHarness, store_server: ObjectStore, tmp_path: Path
) -> None:
    """A record that causes one message takes two micro-batches with seven requests each; an idle application makes none."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/count"]}, semantic="exactly-once")
    with store_proxy(store_server.port) as proxy:
        folder = f"{tmp_path.parent.name}/{tmp_path.name}"
        location = store_server.location(folder, port=proxy.port)
        outbox = Outbox(store_server.folder(folder))
        settings = Settings.resolve({}, None, checkpoint=location)

        def made() -> Counter[str]:
            texts = (str(each).replace(f"{folder}/", "") for each in [*proxy.requests])
            return Counter(
                re.sub(r"\d+(_.*)?(/manifest-\w+)?$", "N", re.sub(r"state/0/\d", "state", text))
                for text in texts
                if not _REGULAR.search(text)
            )

        with running(Application(parse_module(module), counting(out), settings)):
            for count in (1, 2):
                if count > 1:  # the files of a run's first batch are listed when it is deleted
                    wait(lambda: made()["LIST outbox/0/"] == 1)
                proxy.requests.clear()
                kafka.send(users, [("ada", b"a")])
                wait(lambda: len(kafka.receive(out)) == count and not outbox.batches())  # noqa: B023 - waits at once
            requests = made()
            proxy.requests.clear()
            wait(lambda: any("lease/" in str(each) for each in [*proxy.requests]))
            idle = made()

    assert requests == {
        "GET offsets/N": 2,
        "PUT offsets/N": 2,
        "PUT state/N": 4,  # of two partitions
        "PUT outbox/N": 2,
        "PUT commits/N": 2,
        "POST ": 2,  # the deletion of a manifest
    }
    assert idle == {}
