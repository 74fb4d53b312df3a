# SPDX-License-Identifier: Apache-2.0
"""The progress topic of an exactly-once egress, with a marker for each of its lanes.

There is one compacted topic for each checkpoint and egress, with one partition per lane. Every
transaction writes a marker into it. Several applications could not share a topic: a reader sees no
record after an open transaction of any application, and the transaction of a crashed application
stays open until it times out.
"""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from google.protobuf.message import DecodeError

from statefun.engine.sinks import EgressRecord
from statefun.module.model import KafkaEgress
from statefun.protocol.runtime_pb2 import Progress
from statefun.runtime.egress.lane import UncertainError
from statefun.runtime.egress.marker import Marker
from statefun.runtime.kafka.client import admin_for, cluster_metadata, read_committed, reason_of
from statefun.runtime.kafka.cluster_offsets import watermarks
from statefun.sdk.errors import CheckpointError, KafkaError, TopicError

PROGRESS_PREFIX = "statefun-progress-"
"""The prefix of the names of all progress topics."""
_READABLE = 150
"""The largest number of characters of the egress's id in the topic's name; Kafka allows 249 in a name."""
_TIMEOUT = timedelta(seconds=10)
_WINDOW = 200
"""How many of a lane's last offsets are read first; if they have no marker, more offsets are read.

Each transaction uses two offsets."""
_CONFIG = {
    "cleanup.policy": "compact",
    # Old markers are of no use: keep the topic small.
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}


class ProgressTopic:
    """Stores the markers of one egress for one checkpoint in Kafka.

    Args:
        egress: the egress whose lanes have the markers.
        query_id: the id of the checkpoint's query; it is part of the topic's name.
    """

    def __init__(self, egress: KafkaEgress, query_id: str) -> None:
        id_ = str(egress.id)
        digest = hashlib.sha256(id_.encode()).hexdigest()[:16]
        self.name = f"{PROGRESS_PREFIX}{query_id}-{_readable(id_)[:_READABLE]}-{digest}"
        """The name of the progress topic."""
        self._egress = egress
        self._owner = egress.label

    def create(self, lanes: int, timeout: timedelta) -> int:
        """Create the progress topic; if it exists already, check it, and add partitions if it has too few.

        Returns:
            The number of lanes for which the topic has partitions, which includes the lanes of earlier runs.

        Raises:
            KafkaError: if no broker answers.
            TopicError: if the topic cannot be created or checked, or if its cleanup.policy deletes markers.
        """
        admin = self._admin()
        existing = self.lanes(timeout)
        try:
            if not existing:
                self._create(admin, lanes, timeout)
            else:
                self._check(admin, timeout)
                if existing < lanes:
                    more = NewPartitions(self.name, lanes)
                    admin.create_partitions([more])[self.name].result(timeout.total_seconds())
        except KafkaException as error:
            # Brokers learn of a new topic one after the other.
            if reason_of(error).code() != ClientError.UNKNOWN_TOPIC_OR_PART:
                raise TopicError(
                    f"{self._owner}: exactly-once needs the topic {self.name} at "
                    f"{self._egress.address} for its markers, but the topic cannot be created or checked: "
                    f"{reason_of(error).str()}"
                ) from error
        return max(lanes, existing)

    def lanes(self, timeout: timedelta) -> int:
        """Return for how many lanes the topic has partitions; 0 if it does not exist.

        Raises:
            KafkaError: if no broker answers.
        """
        egress = self._egress
        metadata = cluster_metadata(self._owner, egress.address, self._admin(), timeout)
        topic = metadata.topics.get(self.name)
        return 0 if topic is None else len(topic.partitions)

    def _create(self, admin: AdminClient, lanes: int, timeout: timedelta) -> None:
        """Create the progress topic; if another process has just created it, check it instead."""
        topic = NewTopic(self.name, lanes, config=_CONFIG)
        try:
            admin.create_topics([topic])[self.name].result(timeout.total_seconds())
        except KafkaException as error:
            if reason_of(error).code() != ClientError.TOPIC_ALREADY_EXISTS:
                raise
            self._check(admin, timeout)

    def record(self, lane: int, marker: Marker) -> EgressRecord:
        """Return the record that stores ``marker`` in the partition of a lane."""
        value = Progress(**marker._asdict()).SerializeToString()
        return EgressRecord(self.name, self._key(lane), value, None, partition=lane)

    def read(self, lane: int) -> Marker | None:
        """Return the newest committed marker of a lane; None if the lane has no marker.

        Raises:
            CheckpointError: if the topic has records that are no markers.
            UncertainError: if the lane has an open transaction, or the marker cannot be read at present.
        """
        try:
            return self._read(lane)
        except KafkaException as error:
            raise UncertainError(reason_of(error).str()) from error
        except KafkaError as error:
            raise UncertainError(error.message) from error

    def _read(self, lane: int) -> Marker | None:
        place, admin = (self.name, lane), self._admin()
        (first, written), (_, readable) = (
            watermarks(admin, [place], _TIMEOUT, committed=committed)[place]
            for committed in (False, True)
        )
        if readable < written:
            raise UncertainError(
                f"partition {lane} of topic {self.name} still has an open transaction of an earlier "
                "producer, so the lane's marker cannot be read yet"
            )
        window = _WINDOW
        while True:
            start = max(first, written - window)
            markers = self._markers(lane, start, written)
            if markers or start == first:
                return markers[-1] if markers else None
            window *= 10

    def _markers(self, lane: int, start: int, end: int) -> list[Marker]:
        """Read the markers of a lane from one offset to the other one."""
        egress, ranges = self._egress, {(self.name, lane): (start, end)}
        return [
            self._marker(message)
            for message in read_committed(
                self._owner, egress.address, egress.properties, ranges, _TIMEOUT
            )
            if message.key() == self._key(lane)
        ]

    def _marker(self, message: Message) -> Marker:
        try:
            value = Progress.FromString(bytes(message.value() or b""))
        except DecodeError as broken:
            raise CheckpointError(
                f"topic {message.topic()}, partition {message.partition()}, offset {message.offset()} "
                f"at {self._egress.address} must be a marker, and cannot be decoded: {broken}"
            ) from broken
        return Marker(value.batch, value.records, value.digest, value.publisher, value.owner)

    def _key(self, lane: int) -> bytes:
        return f"{self._egress.id}/{lane}".encode()

    def _admin(self) -> AdminClient:
        return admin_for(self._owner, self._egress.address, self._egress.properties)

    def _check(self, admin: AdminClient, timeout: timedelta) -> None:
        """Check that the topic does not delete markers; do nothing if the broker does not know the topic yet.

        Raises:
            TopicError: if the topic deletes markers.
        """
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        try:
            described: dict[str, Any] = admin.describe_configs([resource])[resource].result(
                timeout.total_seconds()
            )
        except KafkaException as error:
            if reason_of(error).code() == ClientError.UNKNOWN_TOPIC_OR_PART:
                return
            raise
        policy = described["cleanup.policy"].value
        if policy != _CONFIG["cleanup.policy"]:
            raise TopicError(
                f"{self._owner}: topic {self.name} at {self._egress.address} has the "
                f"cleanup.policy {policy}, which deletes markers; set this property to compact"
            )


def _readable(id_: str) -> str:
    return re.sub(r"[^a-zA-Z0-9._-]", "_", id_)
