# SPDX-License-Identifier: Apache-2.0
"""Shows module files, without their secrets, and what was found in them."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from statefun.module.findings import warnings_of, warnings_of_use
from statefun.module.user_program import UserProgram
from statefun.runtime.definition import Definition
from statefun.runtime.kafka.security import is_secret
from statefun.sdk.shown_uris import shown_uri

_HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"(?i)pass|pwd|secret|token|credential|auth|user\.?info|signature|cookie|bearer|private|key\b"
    r"|api.?key|access.?key|account.?key"
)
"""A name of a possible secret, besides the settings of Kafka clients; too many are hidden rather than too few."""
_REFERENCE = re.compile(r"\$\{(?:file:)?[^{}:]+\}")
"""A reference to a secret elsewhere, which is none itself; a default after ``:-`` may be one."""
_INSIDE = re.compile(
    r"""(?i)((?:pass\w*|pwd|secret|token|key|sig\w*)\s*=\s*)(?:"[^"]*"|'[^']*'|[^;&"'\n]+)"""
)
"""An assignment inside a text, such as one of ``sasl.jaas.config``; a value without quotation marks may have blanks."""
_LOGIN = re.compile(r"(?i)(jdbc:oracle:\w+:)[^@\s]+(?=@)")
"""A user and password in Oracle's URLs, which have them before the host without slashes."""
_URI = re.compile(r"\w[\w+.-]*://\S+")
_AUTHORIZATION = re.compile(r"""(?i)\b(bearer|basic)([ \t]+)[^\s"']+""")
"""The value of a header of HTTP, whose name may be any."""
_PRIVATE_KEY = re.compile("-----BEGIN [A-Z ]*PRIVATE KEY")
_NO_CONTAINERS = {"key"}
"""Names that are of secrets if a text has them; a mapping may describe the key of a record."""
_NO_SECRETS = {"type"}
"""Names of entries whose texts are no secrets, also below the name of one, such as ``awsCredentials``."""
_WORD = re.compile(r"[A-Za-z._-]{1,32}")
"""A key that is no secret, also below the name of one; another key may be the token of a client."""
_MERGE = "tag:yaml.org,2002:merge"
"""The tag of the key ``<<``, which has no value."""
_BLOCK_COMMENT = re.compile(r"\A([|>]\S*)[ \t]+#.*")
"""The first line of a text in several lines, with a comment."""


def module_files(definition: Definition) -> list[dict[str, Any]]:
    """Return the files that declare an application's parts, with the warnings of ``statefun validate``.

    The text of a module file has the lines of the file, without possible secrets. A program has warnings, but no text.
    """
    functions = definition.functions
    # A notebook has no file; its modules are in the working directory.
    file = getattr(sys.modules["__main__"], "__file__", "notebook")
    program = UserProgram([functions], (), Path(file))
    found: dict[str, list[dict[str, Any]]] = {}
    for each in (
        *warnings_of(definition.module),
        *warnings_of_use(definition.module, functions, program.text()),
    ):
        place = each.problem
        shown = {"severity": each.severity, "line": place.line, "column": place.column}
        found.setdefault(place.file, []).append({**shown, "text": place.text})
    texts = {str(path): module_text(path) for path in definition.settings.modules if path.is_file()}
    return [
        {"file": Path(file).name, "text": texts.get(file, ""), "findings": found.get(file, [])}
        for file in {**texts, **found}
    ]


def module_text(path: Path) -> str:
    r"""Return the content of a module file, line by line, without comments and possible secrets.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     count = file.write("url: https://ada:1234@host/?code=5  # 1234\nsasl.password: ${PASSWORD:-1234}")
    ...     file.flush()
    ...     print(module_text(Path(file.name)))  # doctest: +NORMALIZE_WHITESPACE
    url: "https://host/?code=***"
    sasl.password: "***"
    """
    try:
        return _shown_text(path.read_text("utf-8")) or ""
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return ""  # it has changed since the application read it


def _shown_text(text: str) -> str | None:
    """Return YAML documents without comments and possible secrets; None if none of them is a mapping or a list."""
    replaced: dict[int, Any] = {}
    documents = list(yaml.compose_all(text, yaml.SafeLoader))
    if not any(isinstance(each, yaml.CollectionNode) for each in documents):
        return None
    for document in documents:
        _hide(document, "", replaced, set())
    return "".join(_pieces(text, replaced))


def _hide(node: Any, name: str, replaced: dict[int, Any], seen: set[tuple[int, str]]) -> None:
    """Find the scalars that contain possible secrets, and the texts that are shown in their place.

    Args:
        node: a part of the document.
        name: the key of the entry whose value is the part, or is a list that contains the part; the key of an entry
            around it, if that is the name of a secret.
        replaced: gets the text for each such scalar, by the index at which the scalar ends; where it begins depends on
            tags and anchors.
        seen: the parts that were visited, as a document may contain itself.
    """
    if (id(node), name) in seen:
        return
    seen.add((id(node), name))
    if isinstance(node, yaml.MappingNode):
        entries = {str(key.value).lower(): value for key, value in node.value}
        entry_name = entries.get("name", entries.get("key"))
        for key, value in node.value:
            # An entry may be written as {name: X-Api-Key, value: ...}.
            is_value = str(key.value).lower() == "value"
            named = entry_name if is_value and isinstance(entry_name, yaml.ScalarNode) else key
            is_word = not _holds_secrets(name) or _WORD.fullmatch(str(key.value))
            _hide(key, "" if is_word else name, replaced, seen)
            _hide(value, _name_below(name, str(named.value), value), replaced, seen)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            _hide(each, name, replaced, seen)
    elif isinstance(node, yaml.ScalarNode) and node.tag != _MERGE:
        value = yaml.SafeLoader("").construct_object(node)
        shown = _without_secrets(_shown_inside(value) if isinstance(value, str) else value, name)
        if shown != value:
            replaced[node.end_mark.index] = shown


def _name_below(name: str, key: str, value: Any) -> str:
    """Return the name that decides about an entry: its key, or the name of the mapping if that is one of secrets."""
    is_no_secret = key.lower() in _NO_SECRETS and isinstance(value, yaml.ScalarNode)
    return name if _holds_secrets(name) and not is_no_secret else key


def _holds_secrets(name: str) -> bool:
    """Return whether a mapping with a name holds secrets, whatever their keys are."""
    return _is_secret_name(name) and name.lower() not in _NO_CONTAINERS


def _is_secret_name(name: str) -> bool:
    return is_secret(name.lower()) or _SECRET_NAME.search(name) is not None


def _shown_inside(text: str) -> str:
    """Return a text; if it is YAML itself, such as a module file in a ConfigMap, leave out its possible secrets."""
    try:
        shown = _shown_text(text)
    except yaml.YAMLError:
        return text
    return text if shown is None else shown


def _pieces(text: str, replaced: Mapping[int, Any]) -> Iterator[str]:
    """Yield a document in pieces, without comments and with the replaced scalars; lines keep their numbers."""
    end = 0
    for token in yaml.scan(text, yaml.SafeLoader):
        start, after = token.start_mark.index, token.end_mark.index
        if start == after:
            continue
        yield "".join(each for each in text[end:start] if each.isspace())
        content = _BLOCK_COMMENT.sub(r"\1", text[start:after])
        if isinstance(token, yaml.ScalarToken) and after in replaced:
            yield _replacement(replaced[after], content)
        else:
            yield content
        end = after


def _replacement(value: Any, content: str) -> str:
    """Return the text of a replaced scalar: it keeps the number of lines, and the form of a block after ``|``."""
    lines = content.split("\n")
    if content.startswith("|") and isinstance(value, str):
        first = next(each for each in lines[1:] if each.strip())
        shown = textwrap.indent(value, " " * (len(first) - len(first.lstrip())))
        shown = f"{lines[0]}\n{shown.rstrip()}"
    else:
        shown = json.dumps(value, ensure_ascii=False)
    return shown + "\n" * (len(lines) - 1 - shown.count("\n"))


def _without_secrets(value: Any, name: str) -> Any:
    """Return a scalar without secrets.

    Args:
        value: the scalar.
        name: the key of the entry whose value is the scalar, or is a list that contains the scalar.
    """
    if value is None or isinstance(value, bool):
        return value
    if _is_secret_name(name):
        return value if _REFERENCE.fullmatch(str(value)) else _HIDDEN
    if not isinstance(value, str):
        return value
    if _PRIVATE_KEY.search(value):
        return _HIDDEN
    shown = _LOGIN.sub(rf"\1{_HIDDEN}", _URI.sub(lambda uri: shown_uri(uri[0]), value))
    shown = _AUTHORIZATION.sub(rf"\1\2{_HIDDEN}", shown)
    return _INSIDE.sub(rf"\1{_HIDDEN}", shown)
