# SPDX-License-Identifier: Apache-2.0
"""Describes an application to OpenTelemetry."""

from __future__ import annotations

from importlib.metadata import version

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope


def application_resource(name: str) -> Resource:
    """Return the description of an application; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` override it.

    Args:
        name: the name of the application.
    """
    return Resource.create({"service.name": name}).merge(OTELResourceDetector().detect())


def own_scope() -> InstrumentationScope:
    """Return what measures the application: statefun, with its version."""
    return InstrumentationScope("statefun", version("statefun"))
