# SPDX-License-Identifier: Apache-2.0
"""Checks, by Kafka's ids, that clusters and topics are the same ones that a checkpoint has read before.

An offset belongs to one topic in one cluster. Another cluster at the same address, or a topic that
was deleted and created anew, has other offsets: records would be left out silently, or be read twice.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta

import attrs
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicCollection

from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.runtime.ingress.starting_offsets import admin_client
from statefun.runtime.ingress.subscription import source_option
from statefun.runtime.kafka.client import cluster_metadata, reason_of
from statefun.sdk.errors import CheckpointError, KafkaError, StatefunError

logger = logging.getLogger("statefun.ingress")

CLUSTERS_FILE = "clusters.json"
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The topic id that brokers before Kafka 2.8 return for every topic."""
_BY_PATTERN = "subscribePattern"
_INTERVAL = timedelta(seconds=5)
_ANSWER = timedelta(seconds=3)
"""How long a cluster may take to describe topics while the application runs."""
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
    stored_identities = _stored_identities(checkpoint)
    identities = dict(stored_identities)
    for ingress, present_topics, has_offsets in zip(ingresses, topics, read, strict=True):
        id_ = str(ingress.id)
        present_identity = _present_identity(ingress, present_topics, timeout)
        stored_identity = stored_identities.get(id_, Identity())
        if has_offsets:
            _compare(checkpoint, ingress, stored_identity, present_identity, has_offsets)
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
    identities = _stored_identities(checkpoint)
    identity = identities.pop(former, None)
    if identity is not None:
        write_identities(checkpoint, identities if name is None else {**identities, name: identity})


class NewTopics:
    """Stores the ids of new topics that an ingress's pattern matches while an application runs.

    Without the id, the next start could not distinguish the topic from a later topic of the same name.

    Args:
        checkpoint: the checkpoint, which has the ids that the start has stored.
        ingresses: the ingresses in the order of the query's sources.
    """

    def __init__(self, checkpoint: Folder, ingresses: Sequence[KafkaIngress]) -> None:
        self._checkpoint = checkpoint
        self._commit_log = CommitLog(checkpoint)
        self._ingresses = ingresses
        self._has_patterns = any(source_option(each)[0] == _BY_PATTERN for each in ingresses)
        self._known = {
            (id_, topic)
            for id_, known in _stored_identities(checkpoint).items()
            for topic in known.topics
        }
        self._next = 0.0

    def look(self, *, at_once: bool = False) -> None:
        """Store the ids of topics that were read for the first time; look at most every 5 seconds.

        If a cluster does not answer, a later call asks it again.

        Args:
            at_once: whether to look for new topics even if the 5 seconds have not passed.
        """
        if not self._has_patterns or not (at_once or time.monotonic() >= self._next):
            return
        self._next = time.monotonic() + _INTERVAL.total_seconds()
        try:
            self._look()
        except (StatefunError, OSError) as error:  # no reason to end the run, or to hide its error
            reason = error.message if isinstance(error, StatefunError) else error
            logger.warning(
                "the ids of new topics cannot be stored: %s; if a new topic is deleted and created anew, the "
                "next start will not notice",
                reason,
            )

    def _look(self) -> None:
        newest = self._commit_log.newest()
        read = self._commit_log.end_offsets(newest) if newest >= 0 else []
        for ingress, offsets in zip(self._ingresses, read, strict=False):
            new_topics = [
                each for each in offsets or () if (str(ingress.id), each) not in self._known
            ]
            if new_topics:
                self._store(ingress, new_topics)

    def _store(self, ingress: KafkaIngress, new_topics: Sequence[str]) -> None:
        present_identity = _present_identity(ingress, new_topics, _ANSWER)
        if not present_identity.topics:  # the broker does not know the new topic yet
            return
        stored_identities, id_ = _stored_identities(self._checkpoint), str(ingress.id)
        stored_identity = stored_identities.get(id_, Identity())
        cluster = stored_identity.cluster or present_identity.cluster
        write_identities(
            self._checkpoint,
            {
                **stored_identities,
                id_: Identity(cluster, {**present_identity.topics, **stored_identity.topics}),
            },
        )
        self._known.update((id_, topic) for topic in present_identity.topics)


def _stored_identities(checkpoint: Folder) -> dict[str, Identity]:
    try:
        content = json.loads(read_framed(checkpoint, CLUSTERS_FILE))
        return {id_: Identity(**identity) for id_, identity in content.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise damaged(checkpoint, CLUSTERS_FILE, error) from error


def _present_identity(
    ingress: KafkaIngress, topics: Collection[str], timeout: timedelta
) -> Identity:
    owner = ingress.label
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
            if (
                reason_of(error).code() in _UNKNOWN
            ):  # just deleted, or this client may not describe it
                continue
            raise KafkaError(
                f"{owner}: the cluster at {ingress.address} does not describe topic {topic}: {reason_of(error).str()}"
            ) from error
        if id_ != _NO_ID:
            ids[topic] = id_
    return Identity(cluster, ids)


def _compare(
    checkpoint: Folder,
    ingress: KafkaIngress,
    before: Identity,
    now: Identity,
    read_topics: Iterable[str],
) -> None:
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
