# SPDX-License-Identifier: Apache-2.0
"""Sends requests to the admin API of a running application."""

from __future__ import annotations

import http.client
import json
from http import HTTPStatus
from typing import Any

import attrs

from statefun.runtime.admin.admin_tokens import VARIABLE
from statefun.runtime.http_server import ListenAddress
from statefun.sdk.errors import ConfigurationError, PlatformError

_TIMEOUT_SECONDS = 10


@attrs.frozen
class AdminClient:
    """A client of the admin API at an address; it opens a connection for each request."""

    address: ListenAddress
    _token: str = attrs.field(default="", repr=False)

    def get(self, path: str) -> Any:
        """Request a path of the API; return the content of the answer, decoded from JSON.

        Raises:
            ConfigurationError: if the API needs a token, or refuses the given token.
            PlatformError: if the API does not answer, or its answer is an error.
        """
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        host, port = self.address.host, self.address.port
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            content = json.loads(answer.read())
        except OSError as error:
            raise PlatformError(
                f"no application answers at {self.address.url}: {error.strerror or error}; start it with --conf "
                f"spark.statefun.admin={port}, or give the address that its setting admin has"
            ) from error
        except (http.client.HTTPException, ValueError) as error:
            raise self.no_api() from error
        finally:
            connection.close()
        if answer.status == HTTPStatus.UNAUTHORIZED:
            problem = "refuses this token" if self._token else "needs a token"
            raise ConfigurationError(
                f"the admin API at {self.address.url} {problem}; set the "
                f"environment variable {VARIABLE} to one of the API's tokens"
            )
        if answer.status != HTTPStatus.OK:
            text = content.get("message") if isinstance(content, dict) else None
            raise PlatformError(
                f"the admin API answers {self.address.url}{path} with status {answer.status}: "
                f"{text or 'it gives no reason'}"
            )
        return content

    def no_api(self) -> PlatformError:
        """Return the error about a server that is another one."""
        return PlatformError(
            f"the server at {self.address.url} is not the admin API of a statefun application; give the "
            "address that the application's setting spark.statefun.admin has"
        )
