# SPDX-License-Identifier: Apache-2.0
"""The settings of a run: arguments of ``run`` win over ``spark.statefun.*`` keys."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import attrs

from statefun.module.yaml.durations import parse_duration
from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.failure import OnFailure

SETTINGS_PREFIX = "spark.statefun."
V = TypeVar("V")
_LONGEST_ANSWER = timedelta(hours=1)
"""The longest time that librdkafka waits for the answer to a request."""


def _paths(value: str | Path | Sequence[str | Path]) -> tuple[Path, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, Path):
        value = [value]
    if not value:
        raise ValueError("name at least one module file")
    return tuple(map(Path, value))


def _duration(value: str | timedelta) -> timedelta:
    if not isinstance(value, str | timedelta):
        raise TypeError("expected a timedelta")
    duration = value if isinstance(value, timedelta) else parse_duration(value)
    if duration < timedelta(0):
        raise ValueError("a duration cannot be negative")
    return duration


def _answer_time(value: str | timedelta) -> timedelta:
    duration = _duration(value)
    if duration > _LONGEST_ANSWER:
        raise ValueError("Kafka's clients wait for an answer for an hour at most")
    return duration


def _flag(value: str | bool) -> bool:  # noqa: FBT001 - the value itself is a bool
    words = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in words:
        raise ValueError("expected true or false")
    return words[word]


def _positive(value: str | int) -> int:
    text = str(value).strip()
    if not (text.isdecimal() and int(text) >= 1):
        raise ValueError("expected a whole number from 1 up")
    return int(text)


def _on_failure(value: str | OnFailure) -> OnFailure:
    try:
        return OnFailure(value)
    except ValueError:
        raise ValueError("expected fail, skip or dead-letter") from None


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in words:
            raise ValueError(f"expected {' or '.join(words)}")
        return value

    return parse


def _setting(
    parse: Callable[[Any], V], default: V | None = None, *, key: str | None = None
) -> dict[str, Any]:
    """Declare a setting: its key is the field's name with dashes, unless one is given.

    Args:
        parse: converts an argument of ``run``, or the text of a key, to the field's value; raises
            ValueError or TypeError.
        default: the value if neither is given; :meth:`Settings.resolve` replaces None.
        key: the key after ``spark.statefun.``; in the argument of ``run``, underscores replace its
            dots and dashes.
    """
    return {"key": key, "parse": parse, "default": default}


@attrs.frozen
class Settings:
    """All settings of a run, resolved."""

    modules: tuple[Path, ...] = attrs.field(metadata=_setting(_paths, key="module"))
    """The module files."""
    checkpoint: Folder = attrs.field(metadata=_setting(Folder.at))
    """The folder of state, progress and staged effects."""
    checkpoint_lock: str = attrs.field(metadata=_setting(_one_of("file", "none"), "file"))
    """The lock against a second driver on the checkpoint: locks on local files (``file``) or none
    (``none``)."""
    trigger: timedelta = attrs.field(metadata=_setting(_duration, timedelta(0)))
    """Time between the starts of micro-batches; zero: each starts as soon as the last has ended."""
    available_now: bool = attrs.field(metadata=_setting(_flag, default=False))
    """Whether to process the records that exist now, and then end."""
    records_per_batch: int = attrs.field(metadata=_setting(_positive, 100_000))
    """How many records a micro-batch takes from each ingress at most."""
    state_partitions: int | None = attrs.field(metadata=_setting(_positive))
    """Into how many parts state is divided; fixed by a checkpoint's first start."""
    async_concurrency: int = attrs.field(metadata=_setting(_positive, 1000))
    """How many addresses of coroutine functions a worker runs side by side."""
    immediate_messages: int = attrs.field(metadata=_setting(_positive, 1000))
    """How many messages of an address, to itself and to functions without state, may be delivered
    in the micro-batch that sends them; further ones come in the next."""
    egress_lanes: int = attrs.field(metadata=_setting(_positive, 1, key="egress.lanes"))
    """Into how many parts an egress's records are divided; more than one are published by Spark
    tasks, side by side."""
    dispatch: str = attrs.field(metadata=_setting(_one_of("arrow", "pandas"), "arrow"))
    """How workers evaluate the operator: ``arrow``, or ``pandas`` as Spark itself does."""
    kafka_timeout: timedelta = attrs.field(metadata=_setting(_answer_time, timedelta(seconds=15)))
    """How long to try to reach a Kafka cluster at start; an hour at most."""
    on_unregistered: OnFailure = attrs.field(metadata=_setting(_on_failure, OnFailure.FAIL))
    """The policy for messages to functions that are not registered."""
    shutdown_grace: timedelta = attrs.field(metadata=_setting(_duration, timedelta(seconds=5)))
    """How long calls that go on outside of micro-batches may take to end when the run is stopped."""
    quiet: bool = attrs.field(metadata=_setting(_flag, default=False))
    """Whether to log only warnings and errors."""
    debug: bool = attrs.field(metadata=_setting(_flag, default=False))
    """Whether to show Spark's log and the causes of errors."""

    @classmethod
    def resolve(cls, conf: Mapping[str, str], script: Path | None, **arguments: object) -> Settings:
        """Combine the arguments of ``run`` (None: not given) with ``spark.statefun.*`` keys.

        Args:
            conf: Spark's configuration.
            script: the program that runs: defaults are relative to its folder.
            arguments: by the names of this class's fields, ``modules`` as ``module``.

        Raises:
            ConfigurationError: on an unknown key or a value that cannot be used.
        """
        keys = {
            key.removeprefix(SETTINGS_PREFIX) for key in conf if key.startswith(SETTINGS_PREFIX)
        }
        unknown_keys = sorted(keys - KEYS)
        if unknown_keys:
            raise ConfigurationError(
                f"{SETTINGS_PREFIX}{unknown_keys[0]} is no setting; the settings are: "
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
        """Whether a lock keeps a second driver off the checkpoint."""
        return self.checkpoint_lock == "file"


_FIELDS = {
    field.metadata["key"] or field.name.replace("_", "-"): field for field in attrs.fields(Settings)
}
KEYS = frozenset(_FIELDS)
"""The keys after ``spark.statefun.``."""


def _value(
    key: str,
    metadata: Mapping[str, Any],
    conf: Mapping[str, str],
    arguments: Mapping[str, object],
) -> Any:
    """Return the value of the argument, or else of Spark's configuration, or else the default."""
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
    """Return the argument of ``run`` for a key after ``spark.statefun.``.

    >>> keyword_of("egress.lanes")
    'egress_lanes'
    """
    return re.sub("[-.]", "_", key)


def is_local_master(conf: Mapping[str, str]) -> bool:
    """Return whether Spark's workers run on this machine, also with a ``local-cluster`` master."""
    return conf.get("spark.master", "local").startswith("local")


def running_script() -> Path | None:
    """Return the program that Python runs; None in an interactive session."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(file).absolute() if file else None


def _default_checkpoint(
    conf: Mapping[str, str], program_folder: Path, script: Path | None
) -> Folder:
    folder = Folder.at(program_folder / ".statefun" / (script.stem if script else "application"))
    if not is_local_master(conf):
        raise ConfigurationError(
            f"{SETTINGS_PREFIX}checkpoint is not set, and the default, {folder.shown}, is a folder of "
            f"this machine alone; set it to one that all machines of {conf['spark.master']} reach"
        )
    return folder
