# SPDX-License-Identifier: Apache-2.0
"""The first file of a checkpoint: its format, and its ingresses in their order.

Spark tells the sources of a query apart by their order alone: if two are swapped, each
continues at the other's offsets. It can name them instead, from 4.2 on; docs/architecture.md says
why they have no names yet.
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

A version that changes what any of statefun's own files or states mean has another number, and says
what becomes of checkpoints with the numbers before it."""
Ingress = TypeVar("Ingress", bound=KafkaIngress | ConnectorIngress)


def check_format(checkpoint: Folder) -> None:
    """Check that this version reads a checkpoint, before anything else of it is read.

    Raises:
        CheckpointError: if it has another format, or its number is damaged.
    """
    try:
        content = json.loads(read_framed(checkpoint, INGRESSES))
    except FileNotFoundError:
        return
    except ValueError as error:
        raise damaged(checkpoint, INGRESSES, error) from error
    number = content.get("format") if isinstance(content, dict) else None
    if number != CHECKPOINT_FORMAT:
        found = "no format number" if number is None else f"format {number!r}"
        raise CheckpointError(
            f"checkpoint {checkpoint.shown} has {found}, and this version of statefun reads format "
            f"{CHECKPOINT_FORMAT}: go on with a version that reads it, or start with a new checkpoint (the startup "
            "position group-offsets goes on where this one was)"
        )


def in_order(checkpoint: Folder, ingresses: Sequence[Ingress]) -> list[Ingress]:
    """Return ``ingresses`` in the order that ``checkpoint`` has; a fresh one has theirs.

    Those of Kafka come first, and have to be given first.

    Raises:
        CheckpointError: if the checkpoint has other ingresses, or is not one of statefun's.
    """
    if CommitLog(checkpoint).is_fresh():
        return list(ingresses)
    by_id = {_name(ingress): ingress for ingress in ingresses}
    try:
        known = [str(name) for name in json.loads(read_framed(checkpoint, INGRESSES))["ingresses"]]
    except FileNotFoundError:
        raise CheckpointError(
            f"checkpoint {checkpoint.shown} was not made by statefun, or its {INGRESSES} is lost; "
            "give the application a checkpoint of its own"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(checkpoint, INGRESSES, error) from error
    if set(known) != set(by_id):
        raise CheckpointError(
            f"checkpoint {checkpoint.shown} reads from {_listed(known)}, and the module files "
            f"declare {_listed(by_id)}; Spark can neither add nor drop one: declare the same, or "
            "start with a new checkpoint (the startup position group-offsets goes on where this "
            "one was)"
        )
    CommitLog(checkpoint).check_sources(len(known) + 1)
    return [by_id[id_] for id_ in known]


def write_order(checkpoint: Folder, ingresses: Sequence[KafkaIngress | ConnectorIngress]) -> None:
    """Write down format and ingresses, before Spark plans a checkpoint's first batch."""
    content = {"format": CHECKPOINT_FORMAT, "ingresses": [_name(ingress) for ingress in ingresses]}
    write_framed(checkpoint, INGRESSES, json.dumps(content).encode())


def _name(ingress: KafkaIngress | ConnectorIngress) -> str:
    """Return what an ingress is known by: an offset of one kind means nothing to another."""
    if isinstance(ingress, ConnectorIngress):
        return f"{ingress.id} ({ingress.kind})"
    return str(ingress.id)


def _listed(ids: Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(sorted(ids)) or "no ingress"
