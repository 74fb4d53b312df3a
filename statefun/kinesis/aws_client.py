# SPDX-License-Identifier: Apache-2.0
"""Clients of Kinesis, and what their errors mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from statefun.components import without_secrets
from statefun.kinesis.answers import check_answers
from statefun.kinesis.connection import Connection
from statefun.sdk.errors import ConfigurationError, ConnectorError

_BUSY = {
    "ProvisionedThroughputExceededException",
    "LimitExceededException",
    "KMSThrottlingException",
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "InternalFailure",
    "InternalServerError",
    "ServiceUnavailable",
    "ResourceInUseException",  # a stream that is being made
}
"""Answers after which the same request may succeed."""
_CLIENT = {"connect_timeout": 5, "read_timeout": 30, "max_pool_connections": 1000}
"""Settings of the client, unless the component has others: a thread reads each shard."""
EXPIRED = "ExpiredIteratorException"
_LONGEST_TEXT = 500
"""How much is shown of what an error says: a proxy's is a page."""
_TOO_MANY = 429
_SERVER_ERROR = 500


@attrs.frozen
class Trouble:
    """Why a request has failed."""

    text: str
    passes: bool
    """Whether the same request may succeed later."""
    code: str = ""
    """AWS's name for it, if there was an answer."""


def connect(connection: Connection) -> Any:
    """Return boto3's client of Kinesis.

    Raises:
        ConfigurationError: if boto3 is not installed, or the connection's settings cannot be used.
    """
    try:
        import boto3  # noqa: PLC0415 - an optional package
        import botocore.session  # noqa: PLC0415 - the same
        from botocore.config import Config  # noqa: PLC0415 - the same
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - the same
    except ImportError as error:
        raise ConfigurationError(
            f"{connection.owner}: Kinesis needs boto3; install statefun[kinesis]"
        ) from error
    who = connection.credentials
    try:
        # boto3 takes the files of profiles for the whole process; a session of botocore's has its own.
        files = botocore.session.Session(profile=who.profile)
        if who.profile_file is not None:
            Path(who.profile_file).read_bytes()  # botocore takes a missing file for an empty one
            files.set_config_variable("credentials_file", who.profile_file)
            files.set_config_variable("config_file", who.profile_file)
        session = boto3.Session(who.access_key_id, who.secret_access_key, botocore_session=files)
        # Attempts are ours: botocore's own would hold up a stop for a minute.
        config = Config(retries={"total_max_attempts": 1}, **{**_CLIENT, **connection.client})
        client = session.client(
            "kinesis",
            region_name=connection.region,
            endpoint_url=connection.endpoint,
            config=config,
        )
    except OSError as error:
        text = (
            f"{connection.owner}: profilePath {who.profile_file} cannot be read: {error.strerror}"
        )
        raise ConfigurationError(text) from None
    except (BotoCoreError, ValueError) as error:
        text = without_secrets(error, connection.endpoint or "")
        raise ConfigurationError(f"{connection.owner}: {text}") from None
    check_answers(client)
    return client


def trouble_of(error: Exception) -> Trouble:
    """Return what an exception of boto3's means."""
    from botocore.exceptions import (  # noqa: PLC0415 - an optional package
        ClientError,
        NoCredentialsError,
        PartialCredentialsError,
    )

    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        text = error.response.get("Error", {}).get("Message", "")[:_LONGEST_TEXT]
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        passes = code in _BUSY or status == _TOO_MANY or status >= _SERVER_ERROR
        return Trouble(f"{code}: {text}" if text else code, passes, code)
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return Trouble(f"{error}; give awsCredentials", passes=False)
    url = getattr(error, "kwargs", {}).get("endpoint_url", "")
    return Trouble(f"{type(error).__name__}: {without_secrets(error, url)}", passes=True)


def connector_error(connection: Connection, what: str, trouble: Trouble) -> ConnectorError:
    """Return the error of a request that will not succeed."""
    return ConnectorError(f"{connection.owner}: {what} at {connection.place}: {trouble.text}")
