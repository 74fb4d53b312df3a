# SPDX-License-Identifier: Apache-2.0
"""Replaces references (``${VARIABLE}``, ``${file:/path}``) in the values of module files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import attrs

_REFERENCE = re.compile(
    r"""
    (?P<escape> \$\$\{ )                     # $${ is a literal ${
    | \$\{ (?P<body> [^{}]* ) \}
    | (?P<unclosed> \$\{ )
    """,
    re.VERBOSE,
)
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_.]*)(?::-(?P<default>.*))?", re.DOTALL)
_FILE_PREFIX = "file:"
_MAX_FILE_BYTES = 1 << 20


class SubstitutionError(ValueError):
    """Raised if a text has references that cannot be resolved; ``texts`` has a sentence for each."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        super().__init__("; ".join(texts))
        self.texts = texts


@attrs.frozen
class Substitution:
    """Replaces references with values; no error text contains a value, which may be a secret.

    * ``${NAME}`` is an environment variable;
    * ``${NAME:-default}`` is the default if the variable is unset or empty;
    * ``${file:/path}`` is the stripped content of a file; the path is relative to ``folder``;
    * ``$${`` is a literal ``${``.

    Inserted values are not searched for references again, and references do not nest.

    >>> Substitution({"HOST": "kafka"}).apply("${HOST}:${PORT:-9092} $${HOST}")
    'kafka:9092 ${HOST}'
    """

    environment: Mapping[str, str] = attrs.field(repr=False)
    folder: Path = Path()

    def apply(self, text: str) -> str:
        """Replace every reference in ``text`` by its value.

        Raises:
            SubstitutionError: if a reference cannot be resolved.
        """
        failures: list[str] = []

        def replace(match: re.Match[str]) -> str:
            if match["escape"]:
                return "${"
            try:
                return self._resolve(match)
            except ValueError as error:
                failures.append(str(error))
                return ""

        result = _REFERENCE.sub(replace, text)
        if failures:
            raise SubstitutionError(tuple(failures))
        return result

    def _resolve(self, match: re.Match[str]) -> str:
        body = match["body"]
        if match["unclosed"] is None and body.startswith(_FILE_PREFIX):
            return self._content(body.removeprefix(_FILE_PREFIX))
        variable = None if match["unclosed"] else _VARIABLE.fullmatch(body)
        if variable is None:
            raise ValueError(
                f"{match[0]!r} is not a valid reference; write ${{NAME}}, ${{NAME:-default}} or "
                "${file:/path} without nested braces, and $${ for a literal ${"
            )
        name, default = variable["name"], variable["default"]
        value = self.environment.get(name)
        if not value and default is not None:
            return default
        if value is None:
            raise ValueError(
                f"the environment variable {name!r} is not set; "
                f"set it, or write ${{{name}:-default}}, or $${{{name}}} for the text itself"
            )
        return value

    def _content(self, path: str) -> str:
        reference = f"${{file:{path}}}"
        file = self.folder / path
        # Only regular files: reading a pipe or a device might never end.
        if not file.is_file():
            raise ValueError(f"the file of {reference} does not exist, or is not a regular file")
        try:
            with file.open("rb") as stream:
                content = stream.read(_MAX_FILE_BYTES + 1)
        except OSError as error:
            raise ValueError(f"the file of {reference} cannot be read: {error.strerror}") from None
        if len(content) > _MAX_FILE_BYTES:
            raise ValueError(
                f"the file of {reference} must not be larger than {_MAX_FILE_BYTES} bytes"
            )
        try:
            return content.decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            # Not chained: the decoding error contains the bytes of the file.
            raise ValueError(f"the file of {reference} must be text in UTF-8") from None
