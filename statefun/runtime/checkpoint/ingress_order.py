# SPDX-License-Identifier: Apache-2.0
"""The file ``ingresses.json`` of a checkpoint: the checkpoint's format, and the order of its ingresses.

Spark identifies the sources of a query by their order alone: if two sources are swapped, each continues at
the offsets of the other. From version 4.2 on, Spark can identify sources by names instead;
docs/architecture.md says why this package keeps the names itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from statefun.module.connectors import ConnectorIngress
from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, unframed, write_framed
from statefun.sdk.errors import CheckpointError

INGRESSES = "ingresses.json"
CHECKPOINT_FORMAT = 1
"""The format of the checkpoints that this version writes and reads.

A version that changes the meaning of any of statefun's own files or states gets another number, and its
changelog says what to do with checkpoints of earlier formats. ``tests/stored_checkpoint.py`` stores one
checkpoint of each format that a version reads."""

INCOMPLETE = "incomplete"
"""A new checkpoint with a given state has this file until the file with the ingresses makes it complete."""
STOPS = "stops.json"
"""The file with the stop offsets of a bounded run."""
SourceOffset = dict[str, Any]
"""The offset of a source, as in Spark's log of offsets."""


def check_format(checkpoint: Folder) -> None:
    """Check that this version of statefun reads the format of a checkpoint; call it before other files are read.

    Raises:
        CheckpointError: if the checkpoint has another format, if the file with the format number is damaged, or if
            statefun was interrupted while it made the checkpoint from a given state.
    """
    try:
        content = checkpoint.read(INGRESSES)
    except FileNotFoundError:
        if checkpoint.has(INCOMPLETE):
            raise CheckpointError(
                f"checkpoint {checkpoint.shown} is not complete: statefun.bootstrap() or 'statefun state import' was "
                "interrupted while making it; delete the folder, and repeat that"
            ) from None
        return
    check_format_in(content, checkpoint)


def check_format_in(frame: bytes, checkpoint: Folder) -> None:
    """Check the format of a checkpoint, as :func:`check_format`, given the content of its file of ingresses."""
    try:
        content = json.loads(unframed(INGRESSES, frame))
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


@attrs.frozen
class IngressOrder:
    """The content of the checkpoint's file of ingresses: which ingress is which source of the query."""

    names: Sequence[str]
    """The names of the ingresses, as of :func:`source_name`, in the order of the query's sources."""
    removed: Mapping[str, SourceOffset | None] = attrs.field(factory=dict)
    """The offsets of ingresses that were removed from the module files: if one comes back, it goes on there.

    None: nothing was read."""
    topics: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """The topics that each ingress declared when it was declared last: names and patterns, or a connector's sources."""
    rewriting: Mapping[int, Sequence[SourceOffset | None]] = attrs.field(factory=dict)
    """While the order changes: the new offsets of all sources by micro-batch, for Spark's log. Else empty."""

    @classmethod
    def read(cls, checkpoint: Folder) -> IngressOrder:
        """Read the file of a checkpoint.

        Raises:
            CheckpointError: if the file is missing or damaged.
        """
        try:
            content = json.loads(read_framed(checkpoint, INGRESSES))
            names = [str(name) for name in content["ingresses"]]
            rewriting = {
                int(batch): [*ends] for batch, ends in content.get("rewriting", {}).items()
            }
            topics = {name: [*each] for name, each in content.get("topics", {}).items()}
            return cls(names, dict(content.get("removed", {})), topics, rewriting)
        except FileNotFoundError:
            raise CheckpointError(
                f"checkpoint {checkpoint.shown} was not made by statefun, or its file {INGRESSES} is lost; "
                "give the application an empty folder as its checkpoint, or restore the file from a copy"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(checkpoint, INGRESSES, error) from error

    def write(self, checkpoint: Folder) -> None:
        """Write the file, with the format of the checkpoint."""
        content: dict[str, Any] = {
            "format": CHECKPOINT_FORMAT,
            "ingresses": [*self.names],
            "topics": {name: [*topics] for name, topics in self.topics.items()},
        }
        if self.removed:
            content["removed"] = self.removed
        if self.rewriting:
            content["rewriting"] = self.rewriting
        write_framed(checkpoint, INGRESSES, json.dumps(content).encode())


def topics_of_ingress(ingress: KafkaIngress | ConnectorIngress) -> list[str]:
    """Return the topics that an ingress declares: names and patterns, or the sources of a connector."""
    return [route.topic for route in ingress.topics]


def source_name(ingress: KafkaIngress | ConnectorIngress) -> str:
    """Return an ingress's id, with its kind if a connector reads it: offsets differ between kinds.

    >>> from statefun.module.location import Location
    >>> source_name(ConnectorIngress("example/in", "example.files/ingress", (), Location("m.yaml", 1, 1), "", {}))
    'example/in (example.files/ingress)'
    """
    if isinstance(ingress, ConnectorIngress):
        return f"{ingress.id} ({ingress.kind})"
    return str(ingress.id)
