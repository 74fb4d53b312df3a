# SPDX-License-Identifier: Apache-2.0
"""The settings that module files declare for Kinesis, as plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

import attrs

from statefun.components import shown_uri


class FromEnd(Enum):
    """The values of startupPosition that name an end of the stream: its oldest or its newest record."""

    EARLIEST = "earliest"
    LATEST = "latest"


class OnDataLoss(Enum):
    """What to do when Kinesis has deleted unread records because their retention period has ended."""

    FAIL = "fail"
    GO_ON = "go-on"


@attrs.frozen
class Credentials:
    """The identity for requests to AWS; if all fields are None, boto3 finds the identity itself."""

    access_key_id: str | None = attrs.field(default=None, repr=False)
    secret_access_key: str | None = attrs.field(default=None, repr=False)
    profile: str | None = None
    profile_file: str | None = None


@attrs.frozen
class Connection:
    """The settings with which a component connects to Kinesis."""

    owner: str
    """The component that connects, as error texts name it: ``ingress example/in``."""
    region: str | None = None
    """The id of the AWS region; None if boto3 finds the region itself."""
    endpoint: str | None = attrs.field(default=None, repr=lambda url: repr(url and shown_uri(url)))
    """The URL of the Kinesis server; None for AWS's server in the region."""
    credentials: Credentials = Credentials()
    client: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Further settings of botocore's client, by name."""

    @property
    def place(self) -> str:
        """The server as error texts name it: its URL, or the AWS region."""
        return shown_uri(self.endpoint or "") or f"Kinesis in {self.region or 'the default region'}"


@attrs.frozen
class IngressSettings:
    """The settings of a Kinesis ingress, apart from its routes."""

    connection: Connection
    start: FromEnd | datetime = FromEnd.LATEST
    """The startup position: where reading begins if the checkpoint is fresh."""
    on_data_loss: OnDataLoss = OnDataLoss.FAIL


@attrs.frozen
class EgressSettings:
    """The settings of a Kinesis egress."""

    connection: Connection
    max_outstanding_records: int = 1000
    """How many records that were sent to Kinesis may wait for its confirmation at once."""
    threads: int | None = None
    """How many requests may run at once; None if only ``max_outstanding_records`` limits them."""
