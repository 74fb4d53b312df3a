# SPDX-License-Identifier: Apache-2.0
"""The settings of Kinesis in module files, as plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

import attrs

from statefun.components import shown_uri


class FromEnd(Enum):
    """Startup positions without a further value."""

    EARLIEST = "earliest"
    LATEST = "latest"


class OnDataLoss(Enum):
    """What to do when records of a planned micro-batch, or a shard with unread records, have expired."""

    FAIL = "fail"
    GO_ON = "go-on"


@attrs.frozen
class Credentials:
    """The identity in AWS; if all fields are None, the identity that boto3 finds."""

    access_key_id: str | None = attrs.field(default=None, repr=False)
    secret_access_key: str | None = attrs.field(default=None, repr=False)
    profile: str | None = None
    profile_file: str | None = None


@attrs.frozen
class Connection:
    """How to reach Kinesis."""

    owner: str
    """The component that connects, for messages: ``ingress example/in``."""
    region: str | None = None
    """The id of the AWS region; None for the region that boto3 finds."""
    endpoint: str | None = None
    """The URL of the server; None for the server of the region."""
    credentials: Credentials = Credentials()
    client: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Settings of botocore's client."""

    @property
    def place(self) -> str:
        """The server, for messages."""
        return shown_uri(self.endpoint or "") or f"Kinesis in {self.region or 'the default region'}"


@attrs.frozen
class IngressSettings:
    """The settings of an ingress, apart from its routes."""

    connection: Connection
    start: FromEnd | datetime = FromEnd.LATEST
    """Where to start reading on a fresh checkpoint."""
    on_data_loss: OnDataLoss = OnDataLoss.FAIL


@attrs.frozen
class EgressSettings:
    """The settings of an egress."""

    connection: Connection
    max_outstanding_records: int = 1000
    """How many records may be sent and not yet confirmed."""
    threads: int | None = None
    """How many requests may run at once; None for as many as the records need."""
