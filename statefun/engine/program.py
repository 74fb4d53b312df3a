# SPDX-License-Identifier: Apache-2.0
"""What the engine runs: functions, with the egresses, policies and deserializers of module files."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from statefun.engine.policies import Policies
from statefun.engine.sinks import Sink, sinks_of
from statefun.module.model import Module
from statefun.module.topic_routes import Deserializer
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions


@attrs.frozen
class Program:
    """The parts of an application that a worker needs: its functions, egresses and policies."""

    functions: StatefulFunctions
    egresses: Mapping[str, Sink]
    """All declared egresses, by id."""
    policies: Policies = attrs.field(factory=Policies)
    """The failure policies."""
    deserializers: Mapping[str, Deserializer] = attrs.field(factory=dict)
    """The deserializers of records, by name."""

    @classmethod
    def of(
        cls, functions: StatefulFunctions, module: Module, unregistered: OnFailure = OnFailure.FAIL
    ) -> Program:
        """Combine functions with the declarations of ``module``.

        Args:
            functions: the functions of the application.
            module: the content of its module files.
            unregistered: the policy for messages to other functions.
        """
        policies = Policies.of(module, unregistered)
        return cls(functions, sinks_of(module), policies, module.deserializers)

    def deserializer_of(self, name: str, topic: str) -> Deserializer | None:
        """Return a deserializer; one that is gone has the place of another one of its topic."""
        if name in self.deserializers:
            return self.deserializers[name]
        route = self.policies.route_of(topic)
        return None if route is None else route.deserializer
