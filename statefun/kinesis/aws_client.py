# SPDX-License-Identifier: Apache-2.0
"""Makes boto3 clients of Kinesis, and finds out from their errors whether to repeat a request."""

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
    "ResourceInUseException",  # a stream that is being created
}
"""The error codes after which the same request may succeed later."""
_CLIENT = {"connect_timeout": 5, "read_timeout": 30, "max_pool_connections": 1000}
"""Default settings of boto3's client, which a component may replace; each shard needs its own connection."""
EXPIRED = "ExpiredIteratorException"
_LONGEST_TEXT = 500
"""How many characters of a server's error message are shown: a proxy may send a whole page."""
_TOO_MANY = 429
_SERVER_ERROR = 500


@attrs.frozen
class RequestFailure:
    """Why a request to Kinesis has failed."""

    text: str
    is_temporary: bool
    """Whether the same request may succeed later."""
    code: str = ""
    """The error code of AWS; an empty string if Kinesis has not answered."""


def connect(connection: Connection) -> Any:
    """Return a boto3 client that sends requests to Kinesis.

    Raises:
        ConfigurationError: if boto3 is not installed, or boto3 does not accept the settings.
    """
    try:
        import boto3  # noqa: PLC0415 - an optional package
        import botocore.session  # noqa: PLC0415 - the same
        from botocore.config import Config  # noqa: PLC0415 - the same
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - the same
    except ImportError as error:
        raise ConfigurationError(
            f"{connection.owner}: Kinesis needs the package boto3; install statefun[kinesis]"
        ) from error
    credentials = connection.credentials
    try:
        # boto3 has one file of profiles for the whole process; a session of botocore has its own.
        files = botocore.session.Session(profile=credentials.profile)
        if credentials.profile_file is not None:
            Path(
                credentials.profile_file
            ).read_bytes()  # for botocore, a missing file is an empty one
            files.set_config_variable("credentials_file", credentials.profile_file)
            files.set_config_variable("config_file", credentials.profile_file)
        session = boto3.Session(
            credentials.access_key_id, credentials.secret_access_key, botocore_session=files
        )
        # Callers repeat requests: attempts of botocore would delay the end of a run by a minute.
        config = Config(retries={"total_max_attempts": 1}, **{**_CLIENT, **connection.client})
        client = session.client(
            "kinesis",
            region_name=connection.region,
            endpoint_url=connection.endpoint,
            config=config,
        )
    except OSError as error:
        text = f"{connection.owner}: profilePath {credentials.profile_file} cannot be read: {error.strerror}"
        raise ConfigurationError(text) from None
    except (BotoCoreError, ValueError) as error:
        text = without_secrets(error, connection.endpoint or "")
        raise ConfigurationError(f"{connection.owner}: {text}") from None
    check_answers(client)
    return client


def trouble_of(error: Exception) -> RequestFailure:
    """Return why a request has failed, and whether to repeat it, given the exception of boto3."""
    from botocore.exceptions import (  # noqa: PLC0415 - an optional package
        ClientError,
        NoCredentialsError,
        ParamValidationError,
        PartialCredentialsError,
    )

    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        text = error.response.get("Error", {}).get("Message", "")[:_LONGEST_TEXT]
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        is_temporary = code in _BUSY or status == _TOO_MANY or status >= _SERVER_ERROR
        return RequestFailure(f"{code}: {text}" if text else code, is_temporary, code)
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return RequestFailure(f"{error}; set awsCredentials", is_temporary=False)
    if isinstance(error, ParamValidationError):  # botocore has not sent the request
        return RequestFailure(" ".join(str(error).split()), is_temporary=False)
    url = getattr(error, "kwargs", {}).get("endpoint_url", "")
    return RequestFailure(
        f"{type(error).__name__}: {without_secrets(error, url)}", is_temporary=True
    )


def connector_error(connection: Connection, what: str, trouble: RequestFailure) -> ConnectorError:
    """Return the error that ends a run because a component cannot use Kinesis.

    Args:
        connection: names the component and the server.
        what: the first part of the error text, such as "the stream cannot be read".
        trouble: why the request has failed.
    """
    return ConnectorError(f"{connection.owner}: {what} at {connection.place}: {trouble.text}")
