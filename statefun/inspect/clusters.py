# SPDX-License-Identifier: Apache-2.0
"""Checks, before a start, the Kafka clusters that the ingresses and egresses of an application use."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from statefun.module.findings import Finding
from statefun.module.model import (
    DeliverySemantic,
    FromGroupOffsets,
    KafkaEgress,
    KafkaIngress,
    Module,
    OnDataLoss,
)
from statefun.runtime.checkpoint.commit_log import CommitLog, within_stops
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_changes import committed_ends, in_order
from statefun.runtime.ingress.declared import all_ingresses, all_sources
from statefun.runtime.ingress.starting_offsets import (
    admin_client,
    check_topics,
    client_properties,
    readable_watermarks,
)
from statefun.runtime.ingress.stopping import stops_of_last_run
from statefun.runtime.kafka.client import (
    admin_for,
    connect,
    raising_kafka_errors,
    reason_of,
)
from statefun.runtime.kafka.cluster_offsets import committed_offsets
from statefun.runtime.kafka.topics import check_declared_topics, declared_topics
from statefun.sdk.errors import CheckpointError, KafkaError, StatefunError

_MAX_TIMEOUT = "transaction.max.timeout.ms"


def cluster_findings(module: Module, timeout: timedelta) -> Iterator[Finding]:
    """Yield a problem for each check that a Kafka cluster of a module fails.

    Brokers must answer, topics must exist, and the client must have the rights to read or write them. A
    consumer group from which an ingress starts should have offsets, and the cluster must allow the
    transaction timeouts of egresses.

    Args:
        module: the module whose ingresses and egresses are checked.
        timeout: how long a cluster may take to answer.
    """

    def check_component(component: KafkaIngress | KafkaEgress) -> list[Finding]:
        check = _check_ingress if isinstance(component, KafkaIngress) else _check_egress
        try:
            return list(check(component, timeout))  # type: ignore[arg-type] # the check for this class
        except StatefunError as error:
            return [Finding.at(component.location, str(error))]

    # In parallel: an unreachable cluster costs the whole timeout.
    with ThreadPoolExecutor() as threads:
        for findings in threads.map(check_component, [*all_ingresses(module), *module.egresses]):
            yield from findings


def position_findings(checkpoint: Folder, module: Module, timeout: timedelta) -> Iterator[Finding]:
    """Yield the problems of Kafka topics that earlier runs have read, such as deleted records.

    The partitions and offsets that a topic has now are compared with the offsets in the checkpoint.

    Args:
        checkpoint: the checkpoint of an application with the ingresses of ``module``.
        module: the module whose ingresses name the clusters.
        timeout: how long a cluster may take to answer.
    """
    log = CommitLog(checkpoint)
    if log.newest() < 0:
        return
    try:
        ordered = in_order(checkpoint, all_sources(module))
        ingresses = [ingress for ingress in ordered if isinstance(ingress, KafkaIngress)]
        all_stops = stops_of_last_run(checkpoint)
        all_ends = committed_ends(checkpoint, ingresses)
    except CheckpointError as error:
        yield Finding.at(None, str(error))
        return
    for ingress, ends in zip(ingresses, all_ends, strict=True):
        stops = all_stops.get(str(ingress.id))
        read_offsets = within_stops(ends or {}, stops) if stops else ends or {}
        try:
            for text, is_error in _changes(ingress, read_offsets, timeout):
                yield Finding.at(ingress.location, f"{ingress.label}: {text}", is_error=is_error)
        except StatefunError:  # cluster_findings reports it
            continue
        except KafkaException as error:
            yield Finding.at(ingress.location, f"{ingress.label}: {reason_of(error).str()}")


def _changes(
    ingress: KafkaIngress,
    read_offsets: Mapping[str, Mapping[str, int]],
    timeout: timedelta,
) -> Iterator[tuple[str, bool]]:
    """Yield each change of a topic since the last run: a text, and whether the change is an error.

    Args:
        ingress: the ingress that reads the topics.
        read_offsets: the offsets in the checkpoint, by topic and partition.
        timeout: how long the cluster may take to answer.
    """
    present = check_topics(ingress, timeout)
    if ingress.on_data_loss is OnDataLoss.GO_ON:  # else it is an error, found without a cluster
        for topic in sorted(read_offsets.keys() - present.keys()):
            yield (
                f"topic {topic} was read by earlier runs, and this module no longer reads it",
                False,
            )
    ends = readable_watermarks(
        ingress,
        (
            (topic, n)
            for topic in present
            for n in present[topic]
            if str(n) in read_offsets.get(topic, {})
        ),
        timeout,
    )
    for topic, numbers in present.items():
        next_offsets = {int(number): end for number, end in read_offsets.get(topic, {}).items()}
        missing = sorted(next_offsets.keys() - set(numbers))
        if missing:
            yield f"topic {topic} lacks partitions that were read: {_joined(missing)}", True
        new = [number for number in numbers if number not in next_offsets]
        if new and read_offsets:
            text = f"topic {topic} has new partitions: {_joined(new)}; they are read"
            yield f"{text} from their beginning", False
        for number in sorted(next_offsets.keys() & set(numbers)):
            first, end = ends[topic, number]
            offset, where = next_offsets[number], f"topic {topic}, partition {number}"
            is_error = ingress.on_data_loss is OnDataLoss.FAIL
            if offset < first:
                text = f"{where}: records from {offset} to {first - 1} were deleted before they"
                yield f"{text} were read", is_error
            elif offset > end:
                text = f"{where}: the partition ends at offset {end}, but was already read up to {offset}"
                yield f"{text}; was the topic deleted and created again?", is_error


def _joined(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _check_ingress(ingress: KafkaIngress, timeout: timedelta) -> Iterator[Finding]:
    topics = check_topics(ingress, timeout)
    owner = ingress.label
    for text in _missing_rights(
        owner, admin_client(ingress), list(topics), AclOperation.READ, timeout
    ):
        yield Finding.at(ingress.location, text)
    if ingress.startup_position != FromGroupOffsets() or ingress.consumer_group_id is None:
        return
    consumer = connect(Consumer, owner, client_properties(ingress))
    partitions = [KafkaPartition(t, p) for t, numbers in topics.items() for p in numbers]
    try:
        committed = committed_offsets(consumer, partitions, timeout)
        without = [f"{p.topic}/{p.partition}" for p in committed if p.offset < 0]
    except KafkaException as error:
        yield Finding.at(
            ingress.location,
            f"{owner}: the offsets of group {ingress.consumer_group_id} cannot be read: "
            f"{reason_of(error).str()}",
        )
        return
    finally:
        consumer.close()
    if without:
        yield Finding.at(
            ingress.location,
            f"{owner}: group {ingress.consumer_group_id} has no offset for {', '.join(without)}; a "
            f"new checkpoint starts at the {ingress.auto_offset_reset.value} offset of these "
            "partitions (autoOffsetResetPosition)",
            is_error=False,
        )


def _check_egress(egress: KafkaEgress, timeout: timedelta) -> Iterator[Finding]:
    owner = egress.label
    admin = admin_for(owner, egress.address, egress.properties)
    metadata = check_declared_topics(egress, timeout)
    for text in _missing_rights(owner, admin, declared_topics(egress), AclOperation.WRITE, timeout):
        yield Finding.at(egress.location, text)
    if egress.delivery_semantic is not DeliverySemantic.EXACTLY_ONCE:
        return
    broker = ConfigResource(ResourceType.BROKER, str(next(iter(metadata.brokers))))
    configs = _answer(owner, admin.describe_configs([broker])[broker], timeout)
    limit = timedelta(milliseconds=int(configs[_MAX_TIMEOUT].value))
    if egress.transaction_timeout > limit:
        yield Finding.at(
            egress.location,
            f"{owner}: its transactionTimeout of {egress.transaction_timeout} is longer than "
            f"{egress.address} allows ({_MAX_TIMEOUT}: {limit}); shorten it, or raise the limit",
        )


def _missing_rights(
    owner: str, admin: AdminClient, topics: list[str], needed: AclOperation, timeout: timedelta
) -> Iterator[str]:
    """Yield an error text for each topic on which the client lacks the right ``needed``.

    A cluster without authorization grants all rights.
    """
    if not topics:
        return
    answers = admin.describe_topics(TopicCollection(topics), include_authorized_operations=True)
    for topic, future in answers.items():
        operations = _answer(owner, future, timeout).authorized_operations
        if operations is not None and needed not in operations:
            right = needed.name.lower()
            yield f"{owner}: the user of the client has no right to {right} topic {topic}; grant this right"


def _answer(owner: str, future: Future[Any], timeout: timedelta) -> Any:
    """Wait for the answer of a cluster, and return it.

    Raises:
        KafkaError: if the cluster answers with an error, or not within ``timeout``.
    """
    try:
        with raising_kafka_errors(f"{owner}: the cluster refuses"):
            return future.result(timeout.total_seconds())
    except concurrent.futures.TimeoutError as error:
        raise KafkaError(f"{owner}: the cluster has not answered within {timeout}") from error
