# SPDX-License-Identifier: Apache-2.0
"""Checks, before a start, that an ingress or egress can reach Kinesis and that its streams exist."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

from statefun.components import ConnectorEgress, ConnectorIngress
from statefun.kinesis.aws_client import RequestFailure, connect, connector_error, trouble_of
from statefun.kinesis.connection import Connection, EgressSettings, IngressSettings
from statefun.kinesis.shard_list import ShardList
from statefun.sdk.errors import ConfigurationError, ConnectorError

_FIRST_PAUSE = timedelta(milliseconds=50)
_LONGEST_PAUSE = timedelta(seconds=1)
_NO_RIGHT = "AccessDeniedException"


def check_ingress(ingress: ConnectorIngress, timeout: timedelta) -> Iterator[str]:
    """Yield a text for each problem that keeps an ingress from reading its streams.

    Raises:
        ConfigurationError: if boto3 is not installed, or does not accept the settings.
    """
    settings: IngressSettings = ingress.settings
    check_date(settings)
    client = connect(settings.connection)
    for route in ingress.topics:
        trouble = _retried(ShardList(client, [route.topic]).update, timeout)
        if trouble is not None:
            yield str(unlisted_streams_error(settings.connection, trouble))
            if (
                trouble.is_temporary
            ):  # Kinesis is not reachable: so the other streams are not, either
                return


def check_egress(egress: ConnectorEgress, timeout: timedelta) -> Iterator[str]:
    """Yield a text for each problem that keeps an egress from reaching Kinesis.

    The streams of an egress are not checked: only the messages to the egress name them.

    Raises:
        ConfigurationError: if boto3 is not installed, or does not accept the settings.
    """
    settings: EgressSettings = egress.settings
    client = connect(settings.connection)

    def ask() -> RequestFailure | None:
        try:
            client.list_streams(Limit=1)
        except Exception as error:  # noqa: BLE001 - boto3 makes the classes of its errors
            trouble = trouble_of(error)
            # An egress needs no right to list streams; this answer shows that Kinesis can be reached.
            return None if trouble.code == _NO_RIGHT else trouble
        return None

    trouble = _retried(ask, timeout)
    if trouble is not None:
        yield str(connector_error(settings.connection, "it cannot be reached", trouble))


def check_date(settings: IngressSettings) -> None:
    """Check that the date of an ingress's startupPosition is not in the future.

    Raises:
        ConfigurationError: if the date is in the future.
    """
    if isinstance(settings.start, datetime) and settings.start > datetime.now(timezone.utc):
        owner = settings.connection.owner
        raise ConfigurationError(f"{owner}: the date of startupPosition must not be in the future")


def check_streams(connection: Connection, shards: ShardList, timeout: timedelta) -> None:
    """Check that the shards of all streams can be listed; store them in ``shards``.

    Raises:
        ConnectorError: if a stream does not exist, or Kinesis does not answer within ``timeout``.
    """
    trouble = _retried(shards.update, timeout)
    if trouble is not None:
        raise unlisted_streams_error(connection, trouble)


def unlisted_streams_error(connection: Connection, trouble: RequestFailure) -> ConnectorError:
    """Return the error for an ingress if the shards of its streams cannot be listed."""
    return connector_error(connection, "its streams cannot be listed", trouble)


def _retried(ask: Callable[[], RequestFailure | None], timeout: timedelta) -> RequestFailure | None:
    """Repeat a request while it fails for a temporary reason, at most until the timeout.

    Args:
        ask: sends the request, and returns why it has failed, or None.
        timeout: how long to repeat the request.

    Returns:
        Why the last request has failed; None if it has succeeded.
    """
    deadline, pause = time.monotonic() + timeout.total_seconds(), _FIRST_PAUSE.total_seconds()
    while (trouble := ask()) and trouble.is_temporary and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE.total_seconds())
    return trouble
