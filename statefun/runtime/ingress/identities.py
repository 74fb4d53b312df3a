# SPDX-License-Identifier: Apache-2.0
"""Which clusters and topics a checkpoint has read: by the ids that Kafka gave them.

Offsets mean records of one topic in one cluster. Another cluster at the address, or a topic that
was deleted and created anew under its name, has others: records would be left out silently, or
come twice.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

import attrs
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicCollection

from statefun.runtime.filesystem import Folder
from statefun.runtime.framing import damaged, read_framed, write_framed
from statefun.runtime.ingress.startup import admin_client
from statefun.runtime.kafka_client import cluster_metadata
from statefun.sdk.errors import CheckpointError, KafkaError
from statefun.spec.model import KafkaIngress

FILE = "clusters.json"
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers before Kafka 2.8 say: zero."""
_UNKNOWN = {ClientError.UNKNOWN_TOPIC_OR_PART, ClientError.TOPIC_AUTHORIZATION_FAILED}


@attrs.frozen
class Identity:
    """The ids of what an ingress reads, as far as they are known."""

    cluster: str | None = None
    topics: dict[str, str] = attrs.field(factory=dict)


def check_identities(
    checkpoint: Folder,
    ingresses: Sequence[KafkaIngress],
    topics: Sequence[Collection[str]],
    read: Sequence[Collection[str]],
    timeout: timedelta,
) -> None:
    """Check that ingresses read what they have read before, and take note of what they read now.

    Args:
        checkpoint: where the note is.
        ingresses: of the application.
        topics: of each ingress, that there are now.
        read: the topics of each ingress that the checkpoint has offsets of.
        timeout: how long a cluster may take to answer.

    Raises:
        CheckpointError: if a cluster or a topic is another one.
        KafkaError: if a cluster does not answer.
    """
    noted = _noted(checkpoint)
    found = {}
    for ingress, there, has_offsets in zip(ingresses, topics, read, strict=True):
        id_ = str(ingress.id)
        now, before = _asked(ingress, there, timeout), noted.get(id_, Identity())
        if has_offsets:
            _compare(checkpoint, ingress, before, now, has_offsets)
        # What is not there now may come back as another one.
        kept = {topic: before.topics[topic] for topic in has_offsets if topic in before.topics}
        found[id_] = Identity(now.cluster or before.cluster, {**kept, **now.topics})
    content = {id_: attrs.asdict(identity) for id_, identity in found.items()}
    write_framed(checkpoint, FILE, json.dumps(content).encode())


def _noted(checkpoint: Folder) -> dict[str, Identity]:
    try:
        content = json.loads(read_framed(checkpoint, FILE))
        return {id_: Identity(**identity) for id_, identity in content.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise damaged(checkpoint, FILE, error) from error


def _asked(ingress: KafkaIngress, topics: Collection[str], timeout: timedelta) -> Identity:
    owner = f"ingress {ingress.id}"
    admin = admin_client(ingress)
    cluster = cluster_metadata(owner, ingress.address, admin, timeout).cluster_id
    futures = admin.describe_topics(
        TopicCollection(list(topics)), request_timeout=timeout.total_seconds()
    )
    ids = {}
    for topic, future in futures.items():
        try:
            id_ = str(future.result().topic_id)
        except KafkaException as error:
            if error.args[0].code() in _UNKNOWN:  # gone just now, or not to be described by us
                continue
            raise KafkaError(
                f"{owner}: {ingress.address} does not describe topic {topic}: {error.args[0].str()}"
            ) from error
        if id_ != _NO_ID:
            ids[topic] = id_
    return Identity(cluster, ids)


def _compare(
    checkpoint: Folder, ingress: KafkaIngress, before: Identity, now: Identity, read: Iterable[str]
) -> None:
    if None not in {before.cluster, now.cluster} and before.cluster != now.cluster:
        what = f"the cluster at {ingress.address} has the id {now.cluster}, not {before.cluster}"
        cure = "give the address of that cluster"
    else:
        others = [
            topic
            for topic in sorted(read)
            if before.topics.get(topic) != now.topics.get(topic)
            and topic in before.topics
            and topic in now.topics
        ]
        if not others:
            return
        what = f"topic {', '.join(others)} at {ingress.address} was deleted and created anew"
        cure = "bring back the former one"
    raise CheckpointError(
        f"ingress {ingress.id}: {what} since checkpoint {checkpoint.location} has read it, whose "
        f"offsets mean other records there; {cure}, or start with a new checkpoint, or delete "
        f"{checkpoint.location}/{FILE} to go on at the same offsets nevertheless"
    )
