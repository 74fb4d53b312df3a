# SPDX-License-Identifier: Apache-2.0
"""Refuses to change the ingresses of a checkpoint in a way that might lose or repeat records.

If an ingress begins to read partitions that a removed ingress has read, the module files do not say whether it
continues at the offsets of the removed one: a person has to decide.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from statefun.module.connectors import ConnectorIngress
from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import (
    IngressOrder,
    SourceOffset,
    source_name,
    topics_of_ingress,
)
from statefun.sdk.errors import CheckpointError


def check_changes(
    checkpoint: Folder,
    order: IngressOrder,
    ends: Mapping[str, SourceOffset | None],
    ingresses: Sequence[KafkaIngress | ConnectorIngress],
) -> None:
    """Check that the sources of a checkpoint can be changed to ``ingresses`` without a person's decision.

    Args:
        checkpoint: the checkpoint.
        order: its present order.
        ends: the committed end offsets of all of its ingresses, also of those that were removed.
        ingresses: the ingresses that the module files declare.

    Raises:
        CheckpointError: if an ingress begins to read partitions that a removed ingress has read, or if no
            micro-batch is committed.
    """
    declared = {source_name(ingress): ingress for ingress in ingresses}
    if set(declared) != set(order.names):
        check_committed(checkpoint)
    missing = {name: end for name, end in ends.items() if name not in declared}
    for name, ingress in declared.items():
        former = _former_name(ingress, name in ends, ends.get(name) or {}, missing, order)
        if former is None:
            continue
        remedy = f"delete the offsets of the former one: {forget_command(checkpoint, former)}"
        if name not in ends and former.partition(" ")[2] == name.partition(" ")[2]:
            rename = shlex.join(["statefun", "ingress", "rename", checkpoint.shown, former, name])
            remedy = f"if it is the same ingress under another name, let it go on there: {rename}; if not, {remedy}"
        else:
            remedy = f"declare ingress {former} again, or {remedy}"
        raise CheckpointError(
            f"{ingress.label} is declared to read what ingress {former} has read in checkpoint "
            f"{checkpoint.shown}, and the module files no longer declare that one; {remedy}"
        )


def check_committed(checkpoint: Folder) -> None:
    """Check that a micro-batch is committed, before ingresses or topics are added or removed.

    Raises:
        CheckpointError: if none is committed, as only Spark knows where the first micro-batch begins.
    """
    if CommitLog(checkpoint).newest() < 0:
        raise CheckpointError(
            f"checkpoint {checkpoint.shown} has planned its first micro-batch, and has not committed it; ingresses and "
            "topics can be added and removed only after that: start once with the former module files, or with "
            "a new checkpoint"
        )


def forget_command(checkpoint: Folder, name: str) -> str:
    """Return the command that deletes the offsets of an ingress."""
    return shlex.join(["statefun", "ingress", "forget", checkpoint.shown, name])


def _former_name(
    ingress: KafkaIngress | ConnectorIngress,
    is_known: bool,  # noqa: FBT001 - private
    end: SourceOffset,
    missing: Mapping[str, SourceOffset | None],
    order: IngressOrder,
) -> str | None:
    """Return the name of a removed ingress whose partitions an ingress begins to read; None if there is none.

    Args:
        ingress: the ingress.
        is_known: whether the checkpoint knows the ingress.
        end: the offset up to which the checkpoint has read the ingress.
        missing: the ingresses that are no longer declared: their offsets by their names.
        order: the order of the checkpoint.
    """
    for name, former_end in sorted(missing.items()):
        if isinstance(ingress, ConnectorIngress):
            if is_known:
                continue
            id_, _, kind = name.partition(" ")
            shared = {*order.topics.get(name, ())} & {*topics_of_ingress(ingress)}
            if kind and (id_ == str(ingress.id) or (shared and kind == f"({ingress.kind})")):
                return name
        elif " " not in name and _takes_over(ingress, end, former_end or {}):
            return name
    return None


def _takes_over(ingress: KafkaIngress, end: SourceOffset, former_end: SourceOffset) -> bool:
    """Return whether an ingress begins to read partitions that another ingress has read."""
    return any(
        route.takes(topic) and (not route.partitions or int(number) in route.partitions)
        for topic, partitions in former_end.items()
        for number in partitions
        if number not in end.get(topic, {})
        for route in ingress.topics
    )
