# SPDX-License-Identifier: Apache-2.0
"""Checks that Kinesis has what an ingress or egress needs, before anything is read or written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

from statefun.components import ConnectorEgress, ConnectorIngress
from statefun.kinesis.aws_client import Trouble, connect, connector_error, trouble_of
from statefun.kinesis.connection import Connection, EgressSettings, IngressSettings
from statefun.kinesis.shard_list import ShardList
from statefun.sdk.errors import ConfigurationError, ConnectorError

_FIRST_PAUSE = timedelta(milliseconds=50)
_LONGEST_PAUSE = timedelta(seconds=1)
_NO_RIGHT = "AccessDeniedException"


def check_ingress(ingress: ConnectorIngress, timeout: timedelta) -> Iterator[str]:
    """Yield the problems that keep an ingress from reading its streams.

    Raises:
        ConfigurationError: if the settings cannot be used.
    """
    settings: IngressSettings = ingress.settings
    check_date(settings)
    client = connect(settings.connection)
    for route in ingress.topics:
        trouble = _patiently(ShardList(client, [route.topic]).look, timeout)
        if trouble is not None:
            yield str(unlisted_streams_error(settings.connection, trouble))
            if trouble.passes:  # Kinesis is not reachable: so the other streams are not, either
                return


def check_egress(egress: ConnectorEgress, timeout: timedelta) -> Iterator[str]:
    """Yield the problems that keep an egress from reaching Kinesis.

    Streams are not checked: messages name them.

    Raises:
        ConfigurationError: if the settings cannot be used.
    """
    settings: EgressSettings = egress.settings
    client = connect(settings.connection)

    def ask() -> Trouble | None:
        try:
            client.list_streams(Limit=1)
        except Exception as error:  # noqa: BLE001 - boto3 makes the classes of its errors
            trouble = trouble_of(error)
            # Credentials for writing need no right to list streams; and Kinesis has answered.
            return None if trouble.code == _NO_RIGHT else trouble
        return None

    trouble = _patiently(ask, timeout)
    if trouble is not None:
        yield str(connector_error(settings.connection, "it cannot be reached", trouble))


def check_date(settings: IngressSettings) -> None:
    """Check that the date of the startup position is not in the future.

    Raises:
        ConfigurationError: if it is.
    """
    if isinstance(settings.start, datetime) and settings.start > datetime.now(timezone.utc):
        owner = settings.connection.owner
        raise ConfigurationError(f"{owner}: the date of startupPosition is in the future")


def check_streams(connection: Connection, shards: ShardList, timeout: timedelta) -> None:
    """List the shards of all streams.

    Raises:
        ConnectorError: if a stream does not exist, or Kinesis does not answer in time.
    """
    trouble = _patiently(shards.look, timeout)
    if trouble is not None:
        raise unlisted_streams_error(connection, trouble)


def unlisted_streams_error(connection: Connection, trouble: Trouble) -> ConnectorError:
    """Return the error of streams whose shards cannot be listed."""
    return connector_error(connection, "its streams cannot be listed", trouble)


def _patiently(ask: Callable[[], Trouble | None], timeout: timedelta) -> Trouble | None:
    """Repeat a request until it succeeds, or cannot succeed, or time is over; return the last trouble."""
    deadline, pause = time.monotonic() + timeout.total_seconds(), _FIRST_PAUSE.total_seconds()
    while (trouble := ask()) and trouble.passes and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE.total_seconds())
    return trouble
