# SPDX-License-Identifier: Apache-2.0
"""The failure policies that apply where a function or route declares none."""

from __future__ import annotations

import attrs

from statefun.engine.letters import DeadLetterTopic
from statefun.module.model import Module
from statefun.sdk.failure import FailurePolicy, OnFailure, Retry


@attrs.frozen
class Policies:
    """The failure policies of an application as a whole."""

    dead_letters: DeadLetterTopic | None = None
    """The topic of dead letters, if there is one."""
    unregistered: OnFailure = OnFailure.FAIL
    """The policy for messages to functions that are not registered."""

    @classmethod
    def of(cls, module: Module, unregistered: OnFailure) -> Policies:
        """Return the policies of ``module``, with ``unregistered`` for messages to unregistered functions."""
        return cls(DeadLetterTopic.of(module.dead_letters), unregistered)

    @property
    def default(self) -> OnFailure:
        """The policy where none is declared: dead letters if there is a topic for them, or else to stop."""
        return OnFailure.DEAD_LETTER if self.dead_letters else OnFailure.FAIL

    def last_resort(self, policy: FailurePolicy | None) -> OnFailure:
        """Return the policy for a message that is not tried again: ``policy``, or ``then`` if it is a ``Retry``.

        If ``policy`` is None, return the default.
        """
        return (policy.then if isinstance(policy, Retry) else policy) or self.default
