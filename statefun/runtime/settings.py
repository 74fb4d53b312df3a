# SPDX-License-Identifier: Apache-2.0
"""How an application is to run: arguments of ``run`` win over ``spark.statefun.*``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import attrs

from statefun.runtime.filesystem import Folder
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.failure import OnFailure
from statefun.spec.durations import parse_duration

PREFIX = "spark.statefun."
V = TypeVar("V")


@attrs.frozen
class Settings:
    """Everything that can be set, resolved."""

    modules: tuple[Path, ...]
    """The module files."""
    checkpoint: Folder
    """Where state, progress and staged effects live."""
    checkpoint_lock: str
    """What keeps a second driver off the checkpoint: locks on local files (``file``) or nothing
    (``none``)."""
    trigger: timedelta
    """Time between the starts of micro-batches; zero: as soon as the last one has ended."""
    available_now: bool
    """Whether to process what is there now and then end."""
    records_per_batch: int
    """How many records a micro-batch takes from each ingress at most."""
    state_partitions: int | None
    """Into how many parts state is divided; fixed by a checkpoint's first start."""
    async_concurrency: int
    """How many addresses of coroutine functions a worker runs side by side."""
    immediate_messages: int
    """How many messages of an address, to itself and to functions without state, may be delivered
    in the micro-batch that sends them; further ones come in the next."""
    egress_lanes: int
    """Into how many parts an egress's records are divided; more than one are published by Spark
    tasks, side by side."""
    dispatch: str
    """How workers evaluate the operator: ``arrow``, or ``pandas`` as Spark itself does."""
    kafka_timeout: timedelta
    """How long to try to reach a Kafka cluster at start."""
    on_unregistered: OnFailure
    """What becomes of messages for functions that are not registered."""
    quiet: bool
    """Whether to say nothing but warnings and errors."""
    debug: bool
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
        keys = {key.removeprefix(PREFIX) for key in conf if key.startswith(PREFIX)}
        unknown = sorted(keys - KEYS)
        if unknown:
            raise ConfigurationError(
                f"{PREFIX}{unknown[0]} is no setting; there are: "
                + ", ".join(f"{PREFIX}{key}" for key in sorted(KEYS))
            )
        here = script.parent if script else Path.cwd()

        def pick(key: str, parse: Callable[[Any], V], default: V) -> V:
            argument = re.sub("[-.]", "_", key)
            given, source = arguments.get(argument), f"{argument}="
            if given is None:
                given, source = conf.get(PREFIX + key), PREFIX + key + "="
            if given is None:
                return default
            try:
                return parse(given)
            except (ValueError, TypeError) as error:
                raise ConfigurationError(f"{source}{given}: {error}") from error

        checkpoint = pick("checkpoint", Folder.at, None)
        if checkpoint is None:
            checkpoint = _default_checkpoint(conf, here, script)
        return cls(
            modules=pick("module", _paths, (here / "module.yaml",)),
            checkpoint=checkpoint,
            checkpoint_lock=pick("checkpoint-lock", _one_of("file", "none"), "file"),
            trigger=pick("trigger", _duration, timedelta(0)),
            available_now=pick("available-now", _flag, default=False),
            records_per_batch=pick("records-per-batch", _positive, 100_000),
            state_partitions=pick("state-partitions", _positive, None),
            async_concurrency=pick("async-concurrency", _positive, 1000),
            immediate_messages=pick("immediate-messages", _positive, 1000),
            egress_lanes=pick("egress.lanes", _positive, 1),
            dispatch=pick("dispatch", _one_of("arrow", "pandas"), "arrow"),
            kafka_timeout=pick("kafka-timeout", _duration, timedelta(seconds=15)),
            on_unregistered=pick("on-unregistered", _on_failure, OnFailure.FAIL),
            quiet=pick("quiet", _flag, default=False),
            debug=pick("debug", _flag, default=False),
        )

    @property
    def has_lock(self) -> bool:
        """Whether a second driver is to be kept off the checkpoint."""
        return self.checkpoint_lock == "file"


KEYS = frozenset(
    {
        "async-concurrency",
        "available-now",
        "checkpoint",
        "checkpoint-lock",
        "debug",
        "dispatch",
        "egress.lanes",
        "kafka-timeout",
        "module",
        "immediate-messages",
        "on-unregistered",
        "quiet",
        "records-per-batch",
        "state-partitions",
        "trigger",
    }
)
"""What may follow ``spark.statefun.``."""


def is_local_master(conf: Mapping[str, str]) -> bool:
    """Tell whether Spark's workers run on this machine, as those of ``local-cluster`` do."""
    return conf.get("spark.master", "local").startswith("local")


def running_script() -> Path | None:
    """Return the program that Python runs; None in an interactive session."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(file).absolute() if file else None


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


def _default_checkpoint(conf: Mapping[str, str], here: Path, script: Path | None) -> Folder:
    folder = Folder.at(here / ".statefun" / (script.stem if script else "application"))
    if not is_local_master(conf):
        raise ConfigurationError(
            f"{PREFIX}checkpoint is not set, and the default, {folder.location}, is a folder of "
            f"this machine alone; set it to one that all machines of {conf['spark.master']} reach"
        )
    return folder
