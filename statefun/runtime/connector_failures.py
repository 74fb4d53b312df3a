# SPDX-License-Identifier: Apache-2.0
"""Converts exceptions of connectors' code to errors that name the ingress or egress.

The text of another package's exception rarely says which component has failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from statefun.runtime.spark_internals.error_texts import first_words
from statefun.runtime.spark_internals.jvm import JVM_GONE, JvmError
from statefun.sdk.errors import ConnectorError, StatefunError


def with_owner(owner: str, error: Exception) -> Exception:
    """Return the error to raise for an exception that a connector's code has raised.

    Args:
        owner: the component and the connector's function, for the error text.
        error: the exception. It is returned unchanged if it is an error of statefun, which already
            says what is wrong, or if it means that Spark's JVM has ended, which is no failure of a connector.
    """
    # Clients of connectors raise ConnectionError as well, which is no JvmError.
    is_gone = isinstance(error, JvmError) and isinstance(error, JVM_GONE)
    if is_gone or isinstance(error, StatefunError):
        return error
    failure = ConnectorError(f"{owner}: {first_words(error)}")
    failure.__cause__ = error
    return failure


@contextmanager
def named_failures(owner: str, *signals: type[Exception]) -> Iterator[None]:
    """Replace exceptions of the block by errors that name ``owner``; let exceptions of ``signals`` pass.

    Args:
        owner: the component and the connector's function.
        signals: classes of exceptions that are no failures.

    Raises:
        ConnectorError: instead of an exception that the connector's code has raised.
    """
    try:
        yield
    except signals:
        raise
    except Exception as error:  # noqa: BLE001 - whatever another package raises
        raise with_owner(owner, error) from error.__cause__
