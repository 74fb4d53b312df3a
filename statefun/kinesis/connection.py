# SPDX-License-Identifier: Apache-2.0
"""What module files say of Kinesis, as plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

import attrs

from statefun.components import shown_uri


class FromEnd(Enum):
    """Startup positions that need no further value."""

    EARLIEST = "earliest"
    LATEST = "latest"


class OnDataLoss(Enum):
    """What to do when planned records are gone before they were read."""

    FAIL = "fail"
    GO_ON = "go-on"


@attrs.frozen
class Credentials:
    """Who to be in AWS; with nothing given, whoever boto3 finds."""

    access_key_id: str | None = attrs.field(default=None, repr=False)
    secret_access_key: str | None = attrs.field(default=None, repr=False)
    profile: str | None = None
    profile_file: str | None = None


@attrs.frozen
class Connection:
    """How to reach Kinesis."""

    owner: str
    """Who connects, for messages: ``ingress example/in``."""
    region: str | None = None
    """None for the one that boto3 finds."""
    endpoint: str | None = None
    """The URL of another server than the region's."""
    credentials: Credentials = Credentials()
    client: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Settings of botocore's client, by its names."""

    @property
    def place(self) -> str:
        """Where it connects to, for messages."""
        return shown_uri(self.endpoint or "") or f"Kinesis in {self.region or 'the default region'}"


@attrs.frozen
class IngressSettings:
    """What an ingress needs beside its routes."""

    connection: Connection
    start: FromEnd | datetime = FromEnd.LATEST
    """Where to start on a fresh checkpoint."""
    on_data_loss: OnDataLoss = OnDataLoss.FAIL


@attrs.frozen
class EgressSettings:
    """What an egress needs."""

    connection: Connection
    max_outstanding_records: int = 1000
    """How many records may be on their way at once."""
    threads: int | None = None
    """How many requests may be on their way at once; None for as many as the records need."""
