# SPDX-License-Identifier: Apache-2.0
"""The settings of a run: arguments of ``run``, or else keys ``spark.statefun.*`` of Spark's configuration."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import attrs

from statefun.module.yaml.durations import parse_duration
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.http_server import ListenAddress
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.failure import OnFailure

SETTINGS_PREFIX = "spark.statefun."
V = TypeVar("V")
_LONGEST_ANSWER = timedelta(hours=1)
"""The longest time for which librdkafka waits for the answer to a request."""
_MOST_PARTS = 2**31 - 1
"""The largest number of partitions and of lanes that Spark and checkpoints can hold."""
_LAST_PORT = 65_535


def _paths(value: str | Path | Sequence[str | Path]) -> tuple[Path, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, Path):
        value = [value]
    if not value:
        raise ValueError("there must be at least one module file")
    return tuple(map(Path, value))


def _duration(value: str | timedelta) -> timedelta:
    if not isinstance(value, str | timedelta):
        raise TypeError("must be a timedelta")
    duration = value if isinstance(value, timedelta) else parse_duration(value)
    if duration < timedelta(0):
        raise ValueError("a duration must not be negative")
    return duration


def _answer_time(value: str | timedelta) -> timedelta:
    duration = _duration(value)
    if duration > _LONGEST_ANSWER:
        raise ValueError(
            "must be an hour at most, the longest time for which Kafka's clients wait for an answer"
        )
    return duration


def _flag(value: str | bool) -> bool:  # noqa: FBT001 - the value itself is a bool
    words = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in words:
        raise ValueError("must be true or false")
    return words[word]


def _positive(value: str | int) -> int:
    text = str(value).strip()
    if not (text.isdecimal() and int(text) >= 1):
        raise ValueError("must be a whole number, at least 1")
    return int(text)


def _parts(value: str | int) -> int:
    parts = _positive(value)
    if parts > _MOST_PARTS:
        raise ValueError(f"must be at most {_MOST_PARTS}")
    return parts


def _port(value: str | int) -> int:
    text = str(value).strip()
    if not (text.isdecimal() and int(text) <= _LAST_PORT):
        raise ValueError(f"must be a port, from 1 to {_LAST_PORT}, or 0 for any free one")
    return int(text)


def _checkpoint(value: str | Path) -> Folder:
    if not str(value).strip():  # it would be the current folder
        raise ValueError("must be a folder or the URI of one, and is empty")
    return Folder.at(value)


def _size(value: str | int) -> int:
    match = re.fullmatch(r"(\d{1,9})([kmgt]?)b?", str(value).strip().lower())
    if isinstance(value, bool) or match is None or int(match[1]) == 0:
        raise ValueError("must be a size above zero, such as 256m or 2g")
    return int(match[1]) << 10 * "_kmgt".index(match[2] or "_")


def _collector(value: str) -> str:
    """Return the URL of a collector without a slash at its end.

    Raises:
        ConfigurationError: if it may have a secret, which no text of an error may repeat.
    """
    text = str(value).strip()
    if any(mark in text for mark in "@?#"):
        raise ConfigurationError(
            "the URL of otlp-endpoint must have neither a user, a password nor a query: set the environment "
            "variable OTEL_EXPORTER_OTLP_HEADERS, such as to authorization=Bearer%20TOKEN"
        )
    parts = urlsplit(text)
    is_http = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    if not is_http:
        raise ValueError("must be the URL of a collector, such as http://127.0.0.1:4318")
    return parts.geturl().rstrip("/")


def _share(value: str | float) -> float:
    share = float(value)
    if not 0 <= share <= 1:
        raise ValueError("must be a number from 0 to 1")
    return share


def _on_failure(value: str | OnFailure) -> OnFailure:
    try:
        return OnFailure(value)
    except ValueError:
        raise ValueError("must be fail, skip or dead-letter") from None


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in words:
            raise ValueError(f"must be {' or '.join(words)}")
        return value

    return parse


def _setting(
    parse: Callable[[Any], V], default: V | None = None, *, key: str | None = None
) -> dict[str, Any]:
    """Declare a setting; its key is the field's name with dashes, unless ``key`` is given.

    Args:
        parse: converts an argument of ``run``, or the text of a key, to the field's value; raises
            ValueError or TypeError.
        default: the value if neither argument nor key is given; None if the run determines the value later.
        key: the key after ``spark.statefun.``; in the argument of ``run``, underscores replace its
            dots and dashes.
    """
    return {"key": key, "parse": parse, "default": default}


@attrs.frozen
class Settings:
    """All settings of a run, with defaults for those that were not given."""

    modules: tuple[Path, ...] = attrs.field(metadata=_setting(_paths, key="module"))
    """The paths of the module files."""
    checkpoint: Folder = attrs.field(metadata=_setting(_checkpoint))
    """The folder that has the state, the progress and the staged effects."""
    checkpoint_lock: str = attrs.field(metadata=_setting(_one_of("file", "none"), "file"))
    """How a second driver is kept from using the checkpoint: by locks on local files or a lease in a store
    (``file``), or not at all (``none``)."""
    trigger: timedelta = attrs.field(metadata=_setting(_duration, timedelta(0)))
    """The time between the starts of micro-batches; zero: each starts as soon as the last one has ended."""
    available_now: bool = attrs.field(metadata=_setting(_flag, default=False))
    """Whether to process the records that exist at the start, and then end."""
    final_watermark: bool = attrs.field(metadata=_setting(_flag, default=False))
    """Whether a run that ends by itself first delivers all messages of ``send_at``, and so closes all windows."""
    records_per_batch: int = attrs.field(metadata=_setting(_positive, 100_000))
    """The largest number of records that a micro-batch reads from each ingress."""
    state_partitions: int | None = attrs.field(metadata=_setting(_parts))
    """Into how many partitions the state is divided; a checkpoint's first start fixes the number."""
    async_concurrency: int = attrs.field(metadata=_setting(_positive, 1000))
    """The largest number of addresses of coroutine functions that a worker calls at the same time."""
    immediate_messages: int = attrs.field(metadata=_setting(_positive, 1000))
    """The largest number of messages of an address, to itself and to functions without state, that are
    delivered in the micro-batch that sends them; further messages are delivered in the next one."""
    egress_lanes: int = attrs.field(metadata=_setting(_parts, 1, key="egress.lanes"))
    """Into how many lanes an egress's records are divided; if there are several, Spark tasks publish them
    at the same time."""
    dispatch: str = attrs.field(metadata=_setting(_one_of("arrow", "pandas"), "arrow"))
    """How workers call functions: with Arrow batches (``arrow``), or with pandas frames (``pandas``), as
    Spark itself does."""
    kafka_timeout: timedelta = attrs.field(metadata=_setting(_answer_time, timedelta(seconds=15)))
    """How long to try to reach a Kafka cluster at the start; at most an hour."""
    on_unregistered: OnFailure = attrs.field(metadata=_setting(_on_failure, OnFailure.FAIL))
    """The policy for messages to functions that are not registered."""
    shutdown_grace: timedelta = attrs.field(metadata=_setting(_duration, timedelta(seconds=5)))
    """How long a run that is stopped waits for calls that go on after their micro-batches."""
    call_port: int = attrs.field(metadata=_setting(_port, 0))
    """At which port the driver takes workers' reports about long calls; 0: at any free one."""
    admin: ListenAddress | None = attrs.field(metadata=_setting(ListenAddress.parse))
    """Where the driver serves the admin API and the live page; None: it does not."""
    admin_tokens: Path | None = attrs.field(metadata=_setting(Path, key="admin.tokens"))
    """The file with the tokens of the admin API: each line has a token, and may have the client's name before it."""
    trace_journal: int | None = attrs.field(metadata=_setting(_size))
    """How many bytes of traces the checkpoint keeps, for ``statefun trace``; None: none are noted."""
    trace_share: float = attrs.field(metadata=_setting(_share, 1.0))
    """The share of the ingress records whose traces are noted; a record that comes with a trace does not count."""
    otlp_endpoint: str | None = attrs.field(metadata=_setting(_collector))
    """The URL of the collector of OpenTelemetry that gets metrics and traces; None: none does."""
    log_format: str = attrs.field(metadata=_setting(_one_of("text", "json"), "text"))
    """Whether statefun and the functions log lines of text (``text``) or of JSON (``json``)."""
    quiet: bool = attrs.field(metadata=_setting(_flag, default=False))
    """Whether to log only warnings and errors."""
    debug: bool = attrs.field(metadata=_setting(_flag, default=False))
    """Whether to show Spark's log, and the tracebacks of errors."""

    @classmethod
    def resolve(cls, conf: Mapping[str, str], script: Path | None, **arguments: object) -> Settings:
        """Combine the arguments of ``run`` (None: not given) with the keys ``spark.statefun.*`` and defaults.

        Args:
            conf: Spark's configuration.
            script: the program that runs: defaults are relative to its folder.
            arguments: the arguments of ``run``; they have the names of this class's fields, except ``module``
                for ``modules``.

        Raises:
            ConfigurationError: if a key is unknown, or a value cannot be used.
        """
        keys = {
            key.removeprefix(SETTINGS_PREFIX) for key in conf if key.startswith(SETTINGS_PREFIX)
        }
        unknown_keys = sorted(keys - KEYS)
        if unknown_keys:
            raise ConfigurationError(
                f"{SETTINGS_PREFIX}{unknown_keys[0]} is not a setting; the settings are: "
                + ", ".join(f"{SETTINGS_PREFIX}{key}" for key in sorted(KEYS))
            )
        values = {
            field.name: _value(key, field.metadata, conf, arguments)
            for key, field in _FIELDS.items()
        }
        program_folder = script.parent if script else Path.cwd()
        if values["modules"] is None:
            values["modules"] = (program_folder / "module.yaml",)
        if values["checkpoint"] is None:
            values["checkpoint"] = _default_checkpoint(conf, program_folder, script)
        return cls(**values)

    @property
    def has_lock(self) -> bool:
        """Whether a lock keeps a second driver from using the checkpoint."""
        return self.checkpoint_lock == "file"


_FIELDS = {
    field.metadata["key"] or field.name.replace("_", "-"): field for field in attrs.fields(Settings)
}
KEYS = frozenset(_FIELDS)
"""The keys of all settings, without ``spark.statefun.``."""


def _value(
    key: str,
    metadata: Mapping[str, Any],
    conf: Mapping[str, str],
    arguments: Mapping[str, object],
) -> Any:
    """Return the argument of ``run``, or else the value in Spark's configuration, or else the default."""
    argument = keyword_of(key)
    value, source = arguments.get(argument), f"{argument}="
    if value is None:
        value, source = conf.get(SETTINGS_PREFIX + key), SETTINGS_PREFIX + key + "="
    if value is None:
        return metadata["default"]
    try:
        return metadata["parse"](value)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{source}{value}: {error}") from error


def keyword_of(key: str) -> str:
    """Return the name of the argument of ``run`` for a key after ``spark.statefun.``.

    >>> keyword_of("egress.lanes")
    'egress_lanes'
    """
    return re.sub("[-.]", "_", key)


def is_local_master(conf: Mapping[str, str]) -> bool:
    """Return whether Spark's workers run on this machine; also true for a ``local-cluster`` master."""
    return conf.get("spark.master", "local").startswith("local")


def running_script() -> Path | None:
    """Return the path of the program that Python runs; None in an interactive session."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(file).absolute() if file else None


def _default_checkpoint(
    conf: Mapping[str, str], program_folder: Path, script: Path | None
) -> Folder:
    folder = Folder.at(program_folder / ".statefun" / (script.stem if script else "application"))
    if not is_local_master(conf):
        raise ConfigurationError(
            f"{SETTINGS_PREFIX}checkpoint must be set, since the default, {folder.shown}, is a folder of "
            f"this machine alone; set it to a folder that all machines of {conf['spark.master']} reach"
        )
    return folder
