# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from harness import KafkaHarness, wait
from patience import SECONDS

from statefun import Context, KafkaEgressMessage, Message, StatefulFunctions
from statefun.module.loader import parse_module
from statefun.module.model import KafkaIngress
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed
from statefun.runtime.ingress.identities import (
    CLUSTERS_FILE,
    check_identities,
    write_identities,
)
from statefun.runtime.ingress.known_topics import KnownTopics
from statefun.runtime.settings import Settings
from statefun.sdk.errors import CheckpointError

pytestmark = pytest.mark.broker

TIMEOUT = timedelta(seconds=30)
NOW = timedelta(0)


def ingress(kafka: KafkaHarness, *topics: str) -> KafkaIngress:
    """Return an ingress on topics."""
    return parse_module(kafka.module({topic: ["test.fns/one"] for topic in topics})).ingresses[0]


def start(folder: Folder, declared: KafkaIngress, *read: str) -> KnownTopics:
    """Return the topics that a start knows; ``read`` are those that it finds, and of which the log has offsets."""
    write_identities(folder, check_identities(folder, [declared], [read], [read], TIMEOUT))
    return KnownTopics(folder, [declared], interval=NOW)


def plan(folder: Folder, batch: int, **ends: int) -> None:
    """Write the end offset of a micro-batch in the only partition of each topic."""
    offsets = json.dumps({topic: {"0": end} for topic, end in ends.items()})
    folder.child("offsets").write(str(batch), f"v1\n{{}}\n{offsets}\n-".encode())


def commit(folder: Folder, batch: int) -> None:
    """Write the commit of a micro-batch."""
    folder.child("commits").write(str(batch), b"v1\n{}")


def test_a_micro_batch_of_a_topic_that_was_created_anew_is_refused(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The offsets are those of the former topic; a micro-batch that has read nothing of it is none of its business."""
    folder, topic, other = Folder.at(checkpoint), kafka.topic("users"), kafka.topic("other")
    topics = start(folder, ingress(kafka, topic, other), topic, other)
    plan(folder, 0, **{topic: 1, other: 1})
    topics.check(0)
    kafka.renew(topic)

    plan(folder, 1, **{topic: 1, other: 2})
    topics.check(1)
    plan(folder, 2, **{topic: 2, other: 2})
    with pytest.raises(CheckpointError) as caught:
        topics.check(2)

    assert caught.value.message.startswith(
        f"ingress test/in: topic {topic} at {kafka.address} was deleted and created anew since "
        f"checkpoint {checkpoint} has read it"
    )


def test_the_first_micro_batch_begins_in_the_topics_of_the_start(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """A topic that is created anew after the start has found the first offsets is refused."""
    folder, topic = Folder.at(checkpoint), kafka.topic("users")
    topics = start(folder, ingress(kafka, topic), topic)
    kafka.renew(topic)
    plan(folder, 0, **{topic: 1})

    with pytest.raises(CheckpointError, match=f"topic {topic} at .* was deleted and created anew"):
        topics.check(0)


def test_a_topic_that_is_gone_may_come_back(kafka: KafkaHarness, checkpoint: Path) -> None:
    """With onDataLoss: go-on, a micro-batch without the topic is followed by one that reads it from its beginning."""
    folder, topic = Folder.at(checkpoint), kafka.topic("users")
    topics = start(folder, ingress(kafka, topic), topic)
    plan(folder, 0, **{topic: 1})
    topics.check(0)
    plan(folder, 1)
    topics.check(1)
    kafka.renew(topic)
    plan(folder, 2, **{topic: 1})

    topics.check(2)
    commit(folder, 2)
    topics.look()
    start(folder, ingress(kafka, topic), topic).look()


def test_a_topic_may_come_back_while_a_micro_batch_without_it_runs(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The newest commit still has the topic, but the planned micro-batch does not: the next one reads it anew."""
    folder, topic = Folder.at(checkpoint), kafka.topic("users")
    topics = start(folder, ingress(kafka, topic), topic)
    plan(folder, 0, **{topic: 1})
    topics.check(0)
    commit(folder, 0)
    plan(folder, 1)
    kafka.renew(topic)

    topics.look()
    topics.check(1)


def test_topics_are_watched_without_waiting_for_the_cluster(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The caller goes on at once, and gets to know later what was found."""
    folder, topic = Folder.at(checkpoint), kafka.topic("users")
    topics = start(folder, ingress(kafka, topic), topic)
    plan(folder, 0, **{topic: 1})
    commit(folder, 0)
    kafka.renew(topic)

    def finds() -> bool:
        try:
            topics.watch()
        except CheckpointError as error:
            return f"topic {topic} " in error.message
        return False

    assert not finds()
    wait(finds)


def test_ids_of_topics_that_are_found_later_are_stored(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Another topic of the same name is refused afterwards."""
    folder, first, later = Folder.at(checkpoint), kafka.topic("one"), kafka.topic("two")
    both = ingress(kafka, first, later)
    topics = start(folder, both, first)
    plan(folder, 0, **{first: 1})
    topics.check(0)
    assert later not in read_framed(folder, CLUSTERS_FILE).decode()

    plan(folder, 1, **{first: 1, later: 0})
    topics.check(1)
    assert later in read_framed(folder, CLUSTERS_FILE).decode()
    kafka.renew(later)

    with pytest.raises(CheckpointError, match=f"topic {later} at .* was deleted and created anew"):
        start(folder, both, first, later)


def test_a_topic_from_which_nothing_is_read_is_checked_at_intervals(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The new topic may have as many records as the former one had, so that no micro-batch reads it."""
    folder, topic = Folder.at(checkpoint), kafka.topic("users")
    topics = start(folder, ingress(kafka, topic), topic)
    topics.look()  # there is no micro-batch yet
    plan(folder, 0, **{topic: 1})
    commit(folder, 0)
    topics.look()
    patient = KnownTopics(folder, [ingress(kafka, topic)])
    kafka.renew(topic)

    patient.look()  # not yet again
    with pytest.raises(CheckpointError, match=f"topic {topic} at .* was deleted and created anew"):
        topics.look()


def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Brokers learn of topics one after the other; a damaged log is reported elsewhere."""
    folder, first, later = Folder.at(checkpoint), kafka.topic("one"), f"{kafka.topic('two')}.later"
    topics = start(folder, ingress(kafka, first, later), first)
    plan(folder, 0, **{first: 1, later: 0})
    topics.check(0)
    commit(folder, 0)
    topics.look()
    assert later not in read_framed(folder, CLUSTERS_FILE).decode()
    kafka.broker.create_topic(later)

    def is_noted() -> bool:
        topics.look()
        return later in read_framed(folder, CLUSTERS_FILE).decode()

    wait(is_noted)
    (checkpoint / "offsets" / "0").write_text("v1")
    topics.look()


def test_a_cluster_that_does_not_answer_ends_no_run(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A later look finds out; the log has one line about it."""
    folder, topic = Folder.at(checkpoint), kafka.topic("users")
    declared = ingress(kafka, topic)
    start(folder, declared, topic)
    plan(folder, 0, **{topic: 1})
    topics = KnownTopics(folder, [attrs.evolve(declared, address="127.0.0.1:1")], interval=NOW)

    topics.check(0)
    topics.check(0)

    assert caplog.text.count("if a topic is deleted and created anew now") == 1


@pytest.mark.spark
def test_an_application_does_not_go_on_in_a_topic_that_was_created_anew(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """The run ends before a record of the new topic is published: the first ones would be left out."""
    topic, out = kafka.topic("in"), kafka.topic("out")
    kafka.send(topic, [("k", "a"), ("k", "b")])
    begun, go = str(tmp_path / "begun"), str(tmp_path / "go")
    functions = StatefulFunctions()

    @functions.bind("test.fns/forward")
    def forward(ctx: Context, message: Message) -> None:
        if message.raw_value() == b"a":
            Path(begun).touch()
            while not Path(go).exists():
                time.sleep(0.1)
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=message.raw_value()))

    arguments: dict[str, object] = {"checkpoint": checkpoint, "trigger": timedelta(seconds=0)}
    settings = Settings.resolve({}, None, **arguments)
    module = parse_module(kafka.module({topic: ["test.fns/forward"]}))
    application = Application(module, functions, settings)
    with ThreadPoolExecutor() as threads:
        running = threads.submit(application.run)
        wait(lambda: Path(begun).exists() or running.done())
        kafka.renew(topic)
        kafka.send(topic, [("k", "c"), ("k", "d"), ("k", "e")])
        Path(go).touch()
        try:
            with pytest.raises(CheckpointError, match="was deleted and created anew"):
                running.result(SECONDS)
        finally:
            application.stop()

    assert {record.value for record in kafka.receive(out)} <= {"a", "b"}
