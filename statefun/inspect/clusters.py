# SPDX-License-Identifier: Apache-2.0
"""Checks an application's Kafka clusters before its start."""

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

from statefun.inspect.validation import Finding
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
from statefun.runtime.checkpoint.ingress_order import in_order
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
    committed_offsets,
    connect,
    raising_kafka_errors,
    reason_of,
)
from statefun.runtime.kafka.topics import check_declared_topics, declared_topics
from statefun.sdk.errors import CheckpointError, KafkaError, StatefunError

_MAX_TIMEOUT = "transaction.max.timeout.ms"


def cluster_findings(module: Module, timeout: timedelta) -> Iterator[Finding]:
    """Ask all clusters for brokers, topics, rights, limits and the groups' offsets.

    Args:
        module: the ingresses and egresses to check.
        timeout: how long a cluster may take for an answer.
    """

    def ask(component: KafkaIngress | KafkaEgress) -> list[Finding]:
        of_kind = _of_ingress if isinstance(component, KafkaIngress) else _of_egress
        try:
            return list(of_kind(component, timeout))  # type: ignore[arg-type] # of its own kind
        except StatefunError as error:
            return [Finding.at(component.location, str(error))]

    # Side by side: an unreachable cluster costs the whole timeout.
    with ThreadPoolExecutor() as threads:
        for findings in threads.map(ask, [*all_ingresses(module), *module.egresses]):
            yield from findings


def position_findings(checkpoint: Folder, module: Module, timeout: timedelta) -> Iterator[Finding]:
    """Compare the offsets of a checkpoint with the offsets that its topics have now.

    Args:
        checkpoint: the checkpoint of an application with the ingresses of ``module``.
        module: names the clusters to ask.
        timeout: how long a cluster may take for an answer.
    """
    log = CommitLog(checkpoint)
    if log.newest() < 0:
        return
    try:
        ordered = in_order(checkpoint, all_sources(module))
        ingresses = [ingress for ingress in ordered if isinstance(ingress, KafkaIngress)]
        all_stops = stops_of_last_run(checkpoint, ingresses)
        all_read = log.end_offsets(log.newest())
    except CheckpointError as error:
        yield Finding.at(None, str(error))
        return
    for ingress, stops, read in zip(ingresses, all_stops, all_read, strict=False):
        known = within_stops(read or {}, stops) if stops else read or {}
        try:
            for text, is_error in _changes(ingress, known, timeout):
                yield Finding.at(ingress.location, f"{ingress.label}: {text}", is_error=is_error)
        except StatefunError:  # which is a finding of its own
            continue
        except KafkaException as error:
            yield Finding.at(ingress.location, f"{ingress.label}: {reason_of(error).str()}")


def _changes(
    ingress: KafkaIngress,
    read: Mapping[str, Mapping[str, int]],
    timeout: timedelta,
) -> Iterator[tuple[str, bool]]:
    """Yield each change, and whether it keeps the application from going on."""
    there = check_topics(ingress, timeout)
    if ingress.on_data_loss is OnDataLoss.GO_ON:  # else it is an error, which needs no cluster
        for topic in sorted(read.keys() - there.keys()):
            yield f"topic {topic} was read so far, and is not read any more", False
    ends = readable_watermarks(
        ingress,
        ((topic, n) for topic in there for n in there[topic] if str(n) in read.get(topic, {})),
        timeout,
    )
    for topic, numbers in there.items():
        known = {int(number): following for number, following in read.get(topic, {}).items()}
        gone = sorted(known.keys() - set(numbers))
        if gone:
            yield f"topic {topic} had partitions that are gone: {_listed(gone)}", True
        added = [number for number in numbers if number not in known]
        if added and read:
            text = f"topic {topic} has partitions that are new: {_listed(added)}; they are read"
            yield f"{text} from their beginning", False
        for number in sorted(known.keys() & set(numbers)):
            first, end = ends[topic, number]
            following, where = known[number], f"topic {topic}, partition {number}"
            is_error = ingress.on_data_loss is OnDataLoss.FAIL
            if following < first:
                yield f"{where}: records from {following} to {first - 1} are gone unread", is_error
            elif following > end:
                text = f"{where}: it ends at {end}, and was read up to {following} already"
                yield f"{text}; is it a new topic of the same name?", is_error


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _of_ingress(ingress: KafkaIngress, timeout: timedelta) -> Iterator[Finding]:
    topics = check_topics(ingress, timeout)
    owner = ingress.label
    for text in _missing_rights(
        owner, admin_client(ingress), list(topics), AclOperation.READ, timeout
    ):
        yield Finding.at(ingress.location, text)
    if ingress.startup_position != FromGroupOffsets() or ingress.consumer_group_id is None:
        return
    consumer = connect(Consumer, owner, client_properties(ingress))
    asked = [KafkaPartition(t, p) for t, numbers in topics.items() for p in numbers]
    try:
        found = committed_offsets(consumer, asked, timeout)
        without = [f"{p.topic}/{p.partition}" for p in found if p.offset < 0]
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
            f"fresh checkpoint starts at {ingress.auto_offset_reset.value} there "
            "(autoOffsetResetPosition)",
            is_error=False,
        )


def _of_egress(egress: KafkaEgress, timeout: timedelta) -> Iterator[Finding]:
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
    """Name the topics for which a right is missing; clusters without authorization grant all."""
    if not topics:
        return
    asked = admin.describe_topics(TopicCollection(topics), include_authorized_operations=True)
    for topic, future in asked.items():
        granted = _answer(owner, future, timeout)
        operations = granted.authorized_operations
        if operations is not None and needed not in operations:
            yield f"{owner}: it may not {needed.name.lower()} topic {topic}; grant it the right"


def _answer(owner: str, future: Future[Any], timeout: timedelta) -> Any:
    """Wait for the answer of a cluster.

    Raises:
        KafkaError: if the cluster refuses, or does not answer.
    """
    try:
        with raising_kafka_errors(f"{owner}: the cluster refuses"):
            return future.result(timeout.total_seconds())
    except concurrent.futures.TimeoutError as error:
        raise KafkaError(f"{owner}: the cluster does not answer") from error
