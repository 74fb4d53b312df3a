# SPDX-License-Identifier: Apache-2.0
"""The file ``ingresses.json`` of a checkpoint: the checkpoint's format, and the order of its ingresses.

Spark identifies the sources of a query by their order alone: if two sources are swapped, each continues at
the offsets of the other. From version 4.2 on, Spark can identify sources by names instead;
docs/architecture.md says why they have no names yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from statefun.module.connectors import ConnectorIngress
from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.sdk.errors import CheckpointError

INGRESSES = "ingresses.json"
CHECKPOINT_FORMAT = 1
"""The format of the checkpoints that this version writes and reads.

A version that changes the meaning of any of statefun's own files or states gets another number, and its
changelog says what to do with checkpoints of earlier formats. ``tests/stored_checkpoint.py`` stores one
checkpoint of each format that a version reads."""
Ingress = TypeVar("Ingress", bound=KafkaIngress | ConnectorIngress)


def check_format(checkpoint: Folder) -> None:
    """Check that this version of statefun reads the format of a checkpoint; call it before other files are read.

    Raises:
        CheckpointError: if the checkpoint has another format, or the file with the format number is damaged.
    """
    try:
        content = json.loads(read_framed(checkpoint, INGRESSES))
    except FileNotFoundError:
        return
    except ValueError as error:
        raise damaged(checkpoint, INGRESSES, error) from error
    number = content.get("format") if isinstance(content, dict) else None
    if number != CHECKPOINT_FORMAT:
        actual = "no format number" if number is None else f"format {number!r}"
        raise CheckpointError(
            f"checkpoint {checkpoint.shown} has {actual}, and this version of statefun reads only format "
            f"{CHECKPOINT_FORMAT}: use a version that reads the checkpoint's format, or start with a new checkpoint (the startup "
            "position group-offsets goes on where this checkpoint has stopped)"
        )


def in_order(checkpoint: Folder, ingresses: Sequence[Ingress]) -> list[Ingress]:
    """Return ``ingresses`` in the order that ``checkpoint`` has stored; on a fresh checkpoint, unchanged.

    Args:
        checkpoint: the checkpoint.
        ingresses: the ingresses that the module files declare; Kafka's have to come before others.

    Raises:
        CheckpointError: if the checkpoint has other ingresses, or was not made by statefun.
    """
    if CommitLog(checkpoint).is_fresh():
        return list(ingresses)
    by_id = {_name_of(ingress): ingress for ingress in ingresses}
    try:
        stored_names = [
            str(name) for name in json.loads(read_framed(checkpoint, INGRESSES))["ingresses"]
        ]
    except FileNotFoundError:
        raise CheckpointError(
            f"checkpoint {checkpoint.shown} was not made by statefun, or its file {INGRESSES} is lost; "
            "give the application an empty folder as its checkpoint, or restore the file from a copy"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(checkpoint, INGRESSES, error) from error
    if set(stored_names) != set(by_id):
        raise CheckpointError(
            f"checkpoint {checkpoint.shown} reads from {_enumerated(stored_names)}, and the module files "
            f"declare {_enumerated(by_id)}; no ingress can be added to a checkpoint or removed from it: declare the same ingresses, or "
            "start with a new checkpoint (the startup position group-offsets goes on where this "
            "checkpoint has stopped)"
        )
    CommitLog(checkpoint).check_sources(len(stored_names) + 1)
    return [by_id[id_] for id_ in stored_names]


def write_order(checkpoint: Folder, ingresses: Sequence[KafkaIngress | ConnectorIngress]) -> None:
    """Write the checkpoint's format and the order of its ingresses, before Spark plans the first batch."""
    content = {
        "format": CHECKPOINT_FORMAT,
        "ingresses": [_name_of(ingress) for ingress in ingresses],
    }
    write_framed(checkpoint, INGRESSES, json.dumps(content).encode())


def _name_of(ingress: KafkaIngress | ConnectorIngress) -> str:
    """Return an ingress's id, with its kind if a connector reads it: offsets differ between kinds."""
    if isinstance(ingress, ConnectorIngress):
        return f"{ingress.id} ({ingress.kind})"
    return str(ingress.id)


def _enumerated(ids: Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(sorted(ids)) or "no ingress"
