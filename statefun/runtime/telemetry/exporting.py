# SPDX-License-Identifier: Apache-2.0
"""Sends the metrics of a running application to a collector of OpenTelemetry, if the settings name one.

OpenTelemetry, which only an extra installs, is imported only then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.control import Control
from statefun.runtime.definition import Definition
from statefun.runtime.reporting.figures import Figures
from statefun.sdk.errors import ConfigurationError

logger = logging.getLogger("statefun")


@contextmanager
def exporting(
    definition: Definition, control: Control, figures: Figures, name: Callable[[], str]
) -> Iterator[None]:
    """Send the metrics of an application during the block, if its settings name a collector.

    Args:
        definition: the application.
        control: the orders to it.
        figures: the counts of the application.
        name: returns the name of the application.

    Raises:
        ConfigurationError: if OpenTelemetry is not installed, or its environment variables cannot be used.
    """
    endpoint = definition.settings.otlp_endpoint
    if endpoint is None:
        yield
        return
    try:
        from statefun.runtime.telemetry.exports import Exports  # noqa: PLC0415 - needs an extra
    except ImportError as error:
        raise ConfigurationError(
            f"otlp-endpoint needs OpenTelemetry ({error}): pip install 'statefun[otel]'"
        ) from error
    exports = Exports(endpoint, AdminViews(definition, control, figures), name())
    exports.start()
    logger.info("metrics are sent to %s", endpoint)
    try:
        yield
    finally:
        exports.end()
