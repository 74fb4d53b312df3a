# SPDX-License-Identifier: Apache-2.0
"""Checks, by Kafka's ids, that clusters and topics are the same ones that a checkpoint has read before.

An offset belongs to one topic in one cluster. Another cluster at the same address, or a topic that
was deleted and created anew, has other offsets: records would be left out silently, or be read twice.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta

import attrs
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.runtime.ingress.starting_offsets import admin_client
from statefun.runtime.kafka.client import cluster_metadata, reason_of
from statefun.runtime.kafka.topic_ids import id_of_topic
from statefun.sdk.errors import CheckpointError, KafkaError

CLUSTERS_FILE = "clusters.json"
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The topic id that brokers before Kafka 2.8 return for every topic."""
_UNKNOWN = {ClientError.UNKNOWN_TOPIC_OR_PART, ClientError.TOPIC_AUTHORIZATION_FAILED}


@attrs.frozen
class Identity:
    """The ids of an ingress's cluster and topics, as far as they are known."""

    cluster: str | None = None
    topics: dict[str, str] = attrs.field(factory=dict)


def check_identities(
    checkpoint: Folder,
    ingresses: Sequence[KafkaIngress],
    topics: Sequence[Collection[str]],
    read: Sequence[Collection[str]],
    timeout: timedelta,
) -> dict[str, Identity]:
    """Check that ingresses read the same clusters and topics as before.

    Args:
        checkpoint: the checkpoint with the stored ids.
        ingresses: the application's ingresses.
        topics: the topics of each ingress that exist now.
        read: the topics of each ingress for which the checkpoint has offsets.
        timeout: how long a cluster may take to answer.

    Returns:
        The ids that the clusters and topics have now, by the ids of the ingresses, for
        :func:`write_identities`; and the stored ids of other ingresses, which may come back.

    Raises:
        CheckpointError: if a cluster or a topic has another id than before.
        KafkaError: if a cluster does not answer.
    """
    stored = stored_identities(checkpoint)
    identities = dict(stored)
    for ingress, present_topics, has_offsets in zip(ingresses, topics, read, strict=True):
        id_ = str(ingress.id)
        present_identity = _present_identity(ingress, present_topics, timeout)
        stored_identity = stored.get(id_, Identity())
        if has_offsets:
            compare(checkpoint, ingress, stored_identity, present_identity, has_offsets)
        # A topic that does not exist now may come back as another one.
        stored_topics = {
            topic: stored_identity.topics[topic]
            for topic in has_offsets
            if topic in stored_identity.topics
        }
        identities[id_] = Identity(
            present_identity.cluster or stored_identity.cluster,
            {**stored_topics, **present_identity.topics},
        )
    return identities


def write_identities(checkpoint: Folder, identities: Mapping[str, Identity]) -> None:
    """Write the ids of the ingresses' clusters and topics into a checkpoint."""
    content = {id_: attrs.asdict(identity) for id_, identity in identities.items()}
    write_framed(checkpoint, CLUSTERS_FILE, json.dumps(content).encode())


def rename_identity(checkpoint: Folder, former: str, name: str | None) -> None:
    """Store the ids of an ingress's cluster and topics under another name of the ingress.

    Args:
        checkpoint: the checkpoint with the ids.
        former: the id of the ingress.
        name: its new id; None to delete the stored ids.
    """
    identities = stored_identities(checkpoint)
    identity = identities.pop(former, None)
    if identity is not None:
        write_identities(checkpoint, identities if name is None else {**identities, name: identity})


def stored_identities(checkpoint: Folder) -> dict[str, Identity]:
    """Return the ids in a checkpoint, by the ids of the ingresses.

    Raises:
        CheckpointError: if the file with the ids is damaged.
    """
    try:
        content = json.loads(read_framed(checkpoint, CLUSTERS_FILE))
        return {id_: Identity(**identity) for id_, identity in content.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise damaged(checkpoint, CLUSTERS_FILE, error) from error


def topic_ids(
    ingress: KafkaIngress, admin: AdminClient, topics: Collection[str], timeout: timedelta
) -> dict[str, str]:
    """Return the ids that topics have now; topics that do not exist, or that this client may not describe, have none.

    Raises:
        KafkaError: if the cluster does not describe the topics within ``timeout``.
    """
    if not topics:
        return {}
    futures = admin.describe_topics(
        TopicCollection(list(topics)), request_timeout=timeout.total_seconds()
    )
    ids = {}
    for topic, future in futures.items():
        try:
            id_ = id_of_topic(future.result())
        except KafkaException as error:
            if (
                reason_of(error).code() in _UNKNOWN
            ):  # just deleted, or this client may not describe it
                continue
            raise KafkaError(
                f"{ingress.label}: the cluster at {ingress.address} does not describe topic {topic}: "
                f"{reason_of(error).str()}"
            ) from error
        if id_ != _NO_ID:
            ids[topic] = id_
    return ids


def _present_identity(
    ingress: KafkaIngress, topics: Collection[str], timeout: timedelta
) -> Identity:
    admin = admin_client(ingress)
    cluster = cluster_metadata(ingress.label, ingress.address, admin, timeout).cluster_id
    return Identity(cluster, topic_ids(ingress, admin, topics, timeout))


def compare(
    checkpoint: Folder,
    ingress: KafkaIngress,
    before: Identity,
    now: Identity,
    read_topics: Iterable[str],
) -> None:
    """Check that an ingress reads the same cluster and topics as before, as far as their ids are known.

    Raises:
        CheckpointError: if the cluster, or a topic in ``read_topics``, has another id than before.
    """
    if None not in {before.cluster, now.cluster} and before.cluster != now.cluster:
        difference = (
            f"the cluster at {ingress.address} has the id {now.cluster}, not {before.cluster}"
        )
        remedy = f"give the address of the cluster {before.cluster}"
    else:
        other_topics = [
            topic
            for topic in sorted(read_topics)
            if before.topics.get(topic) != now.topics.get(topic)
            and topic in before.topics
            and topic in now.topics
        ]
        if not other_topics:
            return
        difference = (
            f"topic {', '.join(other_topics)} at {ingress.address} was deleted and created anew"
        )
        remedy = "restore the former topic"
    raise CheckpointError(
        f"{ingress.label}: {difference} since checkpoint {checkpoint.shown} has read it, so the "
        f"offsets in the checkpoint belong to other records; {remedy}, or start with a new checkpoint, or delete "
        f"{checkpoint.shown}/{CLUSTERS_FILE} to go on at the same offsets nevertheless"
    )
