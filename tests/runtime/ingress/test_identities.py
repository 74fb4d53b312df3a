# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from harness import KafkaHarness, run

from statefun import Context, KafkaEgressMessage, Message, StatefulFunctions
from statefun.module.loader import parse_module
from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.ingress.identities import (
    CLUSTERS_FILE,
    check_identities,
    write_identities,
)
from statefun.sdk.errors import CheckpointError

pytestmark = pytest.mark.broker

TIMEOUT = timedelta(seconds=30)


def ingress(kafka: KafkaHarness, *topics: str) -> KafkaIngress:
    """Return an ingress on topics."""
    return parse_module(kafka.module({topic: ["test.fns/one"] for topic in topics})).ingresses[0]


def check(folder: Folder, declared: KafkaIngress, *read: str) -> None:
    """Check the topics of an ingress; ``read`` are the topics with offsets."""
    topics = [route.topic for route in declared.topics]
    write_identities(folder, check_identities(folder, [declared], [topics], [read], TIMEOUT))


def test_the_same_cluster_and_topics_are_accepted(kafka: KafkaHarness, checkpoint: Path) -> None:
    """New topics are accepted as well, and so are checkpoints without stored ids."""
    folder, one, two = Folder.at(checkpoint), kafka.topic("one"), kafka.topic("two")

    check(folder, ingress(kafka, one), one)
    check(folder, ingress(kafka, one), one)
    check(folder, ingress(kafka, one, two), one)
    check(folder, ingress(kafka, one, two), one, two)


def test_a_topic_that_was_created_anew_is_refused(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Its offsets belong to another topic; the error lists the remedies."""
    folder, topic = Folder.at(checkpoint), kafka.topic("users")
    check(folder, ingress(kafka, topic))
    kafka.renew(topic)

    with pytest.raises(CheckpointError) as caught:
        check(folder, ingress(kafka, topic), topic)
    with pytest.raises(CheckpointError):  # the refusal is no note
        check(folder, ingress(kafka, topic), topic)
    (checkpoint / CLUSTERS_FILE).unlink()
    check(folder, ingress(kafka, topic), topic)

    assert caught.value.message == (
        f"ingress test/in: topic {topic} at {kafka.address} was deleted and created anew since "
        f"checkpoint {checkpoint} has read it, so the offsets in the checkpoint belong to other records; restore "
        f"the former topic, or start with a new checkpoint, or delete {checkpoint}/{CLUSTERS_FILE} to go on "
        "at the same offsets nevertheless"
    )


def test_a_topic_without_offsets_may_be_new(kafka: KafkaHarness, checkpoint: Path) -> None:
    """It is read from its beginning; from then on, its id is stored."""
    folder, topic, kept = Folder.at(checkpoint), kafka.topic("users"), kafka.topic("kept")
    check(folder, ingress(kafka, topic, kept), topic, kept)
    kafka.renew(topic)

    check(folder, ingress(kafka, topic, kept), kept)
    check(folder, ingress(kafka, topic, kept), topic, kept)


def test_a_topic_that_is_missing_at_a_start_keeps_its_id(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The id stays stored for as long as the checkpoint has offsets of the topic."""
    folder, topic, kept = Folder.at(checkpoint), kafka.topic("users"), kafka.topic("kept")
    check(folder, ingress(kafka, topic, kept), topic, kept)
    kafka.renew(topic)

    check(folder, ingress(kafka, kept), topic, kept)
    with pytest.raises(CheckpointError, match=f"topic {topic} at .* was deleted and created anew"):
        check(folder, ingress(kafka, topic, kept), topic, kept)


def test_another_cluster_is_refused(kafka: KafkaHarness, checkpoint: Path) -> None:
    """It is refused even at the same address; the error has both ids."""
    folder, topic = Folder.at(checkpoint), kafka.topic("users")
    check(folder, ingress(kafka, topic))
    noted = read_framed(folder, CLUSTERS_FILE)
    cluster = AdminClient({"bootstrap.servers": kafka.address}).list_topics().cluster_id
    assert cluster is not None
    write_framed(folder, CLUSTERS_FILE, noted.replace(cluster.encode(), b"another"))

    with pytest.raises(CheckpointError) as caught:
        check(folder, ingress(kafka, topic), topic)

    assert caught.value.message.startswith(
        f"ingress test/in: the cluster at {kafka.address} has the id {cluster}, not another since "
        f"checkpoint {checkpoint} has read it, so the offsets in the checkpoint belong to other records; give "
        "the address of the cluster another, or start with a new checkpoint"
    )


@pytest.mark.spark
def test_an_application_does_not_skip_records_of_a_new_topic(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The first record of the new topic has an offset that was read in the former topic."""
    users, out = kafka.topic("users"), kafka.topic("out")
    functions = StatefulFunctions()

    @functions.bind("test.fns/tell")
    def tell(ctx: Context, message: Message) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=message.raw_value()))

    module = kafka.module({users: ["test.fns/tell"]})
    for value in ("a", "b"):
        kafka.send(users, [("Ada", value)])
        run(module, functions, checkpoint)
    kafka.renew(users)
    kafka.send(users, [("Ada", value) for value in "cde"])

    with pytest.raises(CheckpointError, match=f"topic {users} at .* was deleted and created anew"):
        run(module, functions, checkpoint)
    run(module, functions, checkpoint.parent / "new")

    assert [record.value for record in kafka.receive(out)] == ["a", "b", "c", "d", "e"]
