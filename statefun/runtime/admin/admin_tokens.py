# SPDX-License-Identifier: Apache-2.0
"""The tokens with which clients of the admin API show that they may use it."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path

import attrs

from statefun.sdk.errors import ConfigurationError

VARIABLE = "STATEFUN_ADMIN_TOKEN"
"""The environment variable that may have a token."""
_SHORTEST = 16
_SCHEME = "bearer "


@attrs.frozen
class Tokens:
    """The tokens that clients may use, and the names of the clients."""

    _names: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """The name of the client, by its token."""

    @classmethod
    def of(cls, file: Path | None, environment: Mapping[str, str]) -> Tokens:
        """Read the tokens of a file, and that of the environment variable ``STATEFUN_ADMIN_TOKEN``.

        Raises:
            ConfigurationError: if the file cannot be read or has no token, a token is too short, two clients have
                the same one, or a line among lines with names has one word.
        """
        names = {} if file is None else _tokens_of(file)
        token = environment.get(VARIABLE, "").strip()
        if token:
            _check(token, f"the variable {VARIABLE}")
            names.setdefault(token, VARIABLE)
        return cls(names)

    def __bool__(self) -> bool:
        return bool(self._names)

    def client(self, authorization: str | None) -> str | None:
        """Return the name of the client that has sent a header ``Authorization``; None if it has no token.

        The time that this takes does not depend on how much of a token is right.
        """
        header = authorization or ""
        given = header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else ""
        found = None
        for token, name in self._names.items():
            if hmac.compare_digest(token.encode(), given.encode("utf-8", "surrogateescape")):
                found = name
        return found


def _tokens_of(file: Path) -> dict[str, str]:
    """Return the names of clients by their tokens, as a file has them: ``<name> <token>``, or only a token, in each line.

    Raises:
        ConfigurationError: as for :meth:`Tokens.of`.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"the file with the tokens of the admin API, {file}, cannot be read: {error}"
        ) from error
    words = {number: line.split() for number, line in enumerate(lines, 1)}
    words = {number: each for number, each in words.items() if each and each[0][0] != "#"}
    if not words:
        raise ConfigurationError(f"{file} has no token for the admin API: add a line with one")
    has_names = any(len(each) > 1 for each in words.values())
    names: dict[str, str] = {}
    lines_of: dict[str, int] = {}
    for number, each in words.items():
        # A name whose token is missing must not become a token.
        if len(each) != 1 + has_names:
            raise ConfigurationError(
                f"{file}, line {number}: a line must be '<name> <token>', or only a token if no line has a name"
            )
        name, token = each[0] if has_names else f"line {number}", each[-1]
        _check(token, f"{file}, the last word of line {number}")
        # The errors quote no names, as a name and its token may be in the wrong order.
        if names.setdefault(token, name) != name:
            raise ConfigurationError(
                f"{file}, line {number}: line {lines_of[token]} has the same token for another client, so that the log "
                "of changes could not name the client: give each client a token of its own, after its name"
            )
        lines_of.setdefault(token, number)
    return names


def _check(token: str, place: str) -> None:
    if len(token) < _SHORTEST or not token.isascii():
        raise ConfigurationError(
            f"{place}: a token for the admin API must have at least {_SHORTEST} characters, all of ASCII"
        )
