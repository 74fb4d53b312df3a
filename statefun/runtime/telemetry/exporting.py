# SPDX-License-Identifier: Apache-2.0
"""Sends the metrics and traces of a running application to a collector of OpenTelemetry, if the settings name one.

OpenTelemetry, which only an extra installs, is imported only then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.control import Control
from statefun.runtime.definition import Definition
from statefun.runtime.reporting.figures import Figures
from statefun.sdk.errors import ConfigurationError

logger = logging.getLogger("statefun")

OnStaged = Callable[[int, Sequence[Outcome]], None]
"""Gets the number of a staged micro-batch, and the outcomes of its tasks."""


def _nothing(batch: int, outcomes: Sequence[Outcome]) -> None:
    """Ignore a micro-batch, since no collector gets its spans."""


@contextmanager
def exporting(
    definition: Definition, control: Control, figures: Figures, name: Callable[[], str]
) -> Iterator[OnStaged]:
    """Send the metrics and traces of an application during the block, if its settings name a collector.

    Yields a function that must be called with each staged micro-batch, whose spans are sent once it is committed.

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
        yield _nothing
        return
    try:
        from statefun.runtime.telemetry.exports import Exports  # noqa: PLC0415 - needs an extra
    except ImportError as error:
        raise ConfigurationError(
            f"otlp-endpoint needs OpenTelemetry ({error}): pip install 'statefun[otel]'"
        ) from error
    exports = Exports(endpoint, AdminViews(definition, control, figures), name())
    exports.start()
    what = "metrics and traces" if definition.settings.trace_journal else "metrics"
    logger.info("%s are sent to %s", what, endpoint)
    try:
        yield exports.spans.add
    finally:
        exports.end()
