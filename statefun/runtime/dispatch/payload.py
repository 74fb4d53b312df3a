# SPDX-License-Identifier: Apache-2.0
"""Ships the functions of an application to Python workers, which keep them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping

import attrs

from statefun.module.model import Module
from statefun.module.policies import Policies
from statefun.module.program import LOADED
from statefun.module.sinks import Sink, sinks_of
from statefun.module.topic_routes import Deserializer
from statefun.runtime.spark_internals.closures import (
    pickle_by_value,
    pickled_closure,
    unpickled_closure,
)
from statefun.sdk.errors import PlatformError
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.types import TypeRegistry, default_types


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


_loaded: dict[str, Program] = {}


@attrs.frozen
class Payload:
    """An application as the driver pickled it, by value where it is part of the main program.

    Spark unpickles its functions once per task; the application is unpickled once per worker
    process, so that globals of the user's code, such as clients and models, live on.
    """

    digest: str
    content: bytes = attrs.field(repr=False)  # with whatever secrets the program has
    paths: tuple[str, ...] = ()
    """Further folders in which workers look for modules."""

    @classmethod
    def of(cls, program: Program, paths: tuple[str, ...] = ()) -> Payload:
        """Pickle ``program`` together with the registered types."""
        loaded = sys.modules.get(LOADED)
        if loaded is not None:  # such as a program under test: workers cannot import it
            pickle_by_value(loaded)
        content = pickled_closure((program, default_types))
        return cls(hashlib.sha256(content).hexdigest(), content, paths)

    def load(self) -> Program:
        """Return this process's copy of the application.

        The content comes only from the application's driver, over the channel that Spark sends
        its code through.

        Raises:
            PlatformError: if a needed module cannot be imported here.
        """
        if self.digest not in _loaded:
            sys.path.extend(path for path in self.paths if path not in sys.path)
            try:
                loaded: tuple[Program, TypeRegistry] = unpickled_closure(self.content)
            except ModuleNotFoundError as error:
                raise PlatformError(
                    f"the Python workers cannot import module {error.name}, which a function of the "
                    "application comes from or uses; pass it with spark-submit --py-files, or "
                    "install it wherever workers run"
                ) from error
            program, types = loaded
            default_types.update(types)
            _loaded[self.digest] = program
        return _loaded[self.digest]
