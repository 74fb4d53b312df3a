# SPDX-License-Identifier: Apache-2.0
"""The ingresses of a test that wait for the ingresses in their ``bootstrapFrom``."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from statefun.module.model import Module
from statefun.sdk.address import TypeName


class RecordSender(NamedTuple):
    """The sender of the messages that records become: records with one key in a partition keep their order."""

    ingress: TypeName
    topic: str
    partition: int
    key: bytes | None


class WaitingIngresses:
    """The ingresses that wait until others have no unread records, as after a start of the runtime.

    Later, all ingresses are read side by side.

    Args:
        module: the components of the application.
    """

    def __init__(self, module: Module) -> None:
        self._waits_for = {
            each.id: frozenset(each.bootstrap_from)
            for each in module.ingresses
            if each.bootstrap_from
        }
        """The ingresses that wait, with those for which each of them waits."""

    def __contains__(self, sender: Hashable) -> bool:
        return isinstance(sender, RecordSender) and sender.ingress in self._waits_for

    def release(self, senders: Iterable[Hashable]) -> None:
        """Let the ingresses begin that wait for none of the ingresses with unread records.

        Args:
            senders: the senders of all messages that wait for a micro-batch.
        """
        if self._waits_for:
            unread = {sender.ingress for sender in senders if isinstance(sender, RecordSender)}
            self._waits_for = {
                ingress: named for ingress, named in self._waits_for.items() if named & unread
            }
