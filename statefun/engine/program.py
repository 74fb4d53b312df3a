# SPDX-License-Identifier: Apache-2.0
"""The program that the engine runs: functions, egresses, policies and routes."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from statefun.engine.policies import Policies
from statefun.engine.record_routes import RecordRoutes
from statefun.engine.sinks import Sink, sinks_of
from statefun.module.model import Module
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions


@attrs.frozen
class Program:
    """The parts of an application that a worker process needs."""

    functions: StatefulFunctions
    egresses: Mapping[str, Sink]
    """All declared egresses, by id."""
    policies: Policies = attrs.field(factory=Policies)
    """The failure policies that apply where a function or route declares none."""
    routes: RecordRoutes = attrs.field(factory=RecordRoutes)
    """The routes of records, with their deserializers and policies."""

    @classmethod
    def of(
        cls, functions: StatefulFunctions, module: Module, unregistered: OnFailure = OnFailure.FAIL
    ) -> Program:
        """Combine functions with the declarations of ``module``.

        Args:
            functions: the functions of the application.
            module: the content of its module files.
            unregistered: the policy for messages to functions that are not registered.
        """
        policies = Policies.of(module, unregistered)
        return cls(functions, sinks_of(module), policies, RecordRoutes.of(module))
