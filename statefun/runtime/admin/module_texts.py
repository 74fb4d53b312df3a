# SPDX-License-Identifier: Apache-2.0
"""Shows module files without their secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from statefun.runtime.kafka.security import is_secret
from statefun.sdk.shown_uris import shown_uri

_HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"(?i)pass|secret|token|credential|auth|user\.?info|signature|api.?key|access.?key|account.?key|\bkey\b|private"
)
"""A name of a possible secret, besides the settings of Kafka clients; too many are hidden rather than too few."""
_REFERENCE = re.compile(r"\$\{(?:file:)?[^{}:]+\}")
"""A reference to a secret elsewhere, which is none itself; a default after ``:-`` may be one."""
_INSIDE = re.compile(r"(?i)((?:pass\w*|secret|token|key|sig\w*)\s*=\s*)[^\s;&,]+")
"""An assignment inside a text, such as one of ``sasl.jaas.config``."""
_URI = re.compile(r"\w[\w+.-]*://\S+")


def module_text(path: Path) -> str:
    r"""Return the content of a module file as YAML, without comments and possible secrets.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     count = file.write("url: https://ada:1234@host/?code=5  # 1234\nsasl.password: ${PASSWORD:-1234}")
    ...     file.flush()
    ...     print(module_text(Path(file.name)))
    url: https://host/?code=***
    sasl.password: '***'
    <BLANKLINE>
    """
    try:
        documents = list(yaml.safe_load_all(path.read_text("utf-8")))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return ""  # it has changed since the application read it
    return yaml.safe_dump_all(
        [_without_secrets(each, "") for each in documents],
        sort_keys=False,
        allow_unicode=True,
        width=1000,
    )


def _without_secrets(value: Any, name: str) -> Any:
    """Return a value without secrets.

    Args:
        value: the value.
        name: the name of the entry that has it, or has a list with it.
    """
    if isinstance(value, dict):
        return {key: _without_secrets(each, str(key)) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_secrets(each, name) for each in value]
    if value is None or isinstance(value, bool):
        return value
    if is_secret(name.lower()) or _SECRET_NAME.search(name):
        return value if _REFERENCE.fullmatch(str(value)) else _HIDDEN
    if not isinstance(value, str):
        return value
    return _INSIDE.sub(rf"\1{_HIDDEN}", _URI.sub(lambda uri: shown_uri(uri[0]), value))
