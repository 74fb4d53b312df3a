# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import attrs
import pytest

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.run import run
from statefun.runtime.settings import KEYS, Settings, keyword_of, running_script
from statefun.sdk.errors import ConfigurationError

SCRIPT = Path("/srv/greeter/app.py")
EMPTY: Mapping[str, str] = {}


def resolve(conf: Mapping[str, str] = EMPTY, **arguments: object) -> Settings:
    """Resolve settings for a program in a separate folder."""
    return Settings.resolve(conf, SCRIPT, **arguments)


def test_nothing_has_to_be_set() -> None:
    """Without arguments and configuration, everything has a value; files lie by the program."""
    settings = resolve()

    assert settings.modules == (Path("/srv/greeter/module.yaml"),)
    assert settings.checkpoint == Folder("/srv/greeter/.statefun/app")
    assert settings.trigger == timedelta(0)
    assert settings.available_now is False
    assert settings.records_per_batch == 100_000
    assert settings.state_partitions is None
    assert settings.kafka_timeout == timedelta(seconds=15)
    assert settings.debug is False


def test_an_interactive_session_uses_its_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a program, defaults are relative to where Python was started."""
    monkeypatch.chdir(tmp_path)

    settings = Settings.resolve({}, None)

    assert settings.modules == (tmp_path / "module.yaml",)
    assert settings.checkpoint == Folder.at(tmp_path / ".statefun" / "application")


def test_every_setting_has_a_key_and_an_argument() -> None:
    """Every argument has a key in Spark's configuration; both are documented."""
    fields = {field.name.replace("_", "-") for field in attrs.fields(Settings)}
    arguments = set(inspect.signature(run).parameters) - {"functions", "components"}

    assert fields - {"modules"} | {"module"} == {key.replace(".", "-") for key in KEYS}
    assert arguments == set(map(keyword_of, KEYS))
    assert set(re.findall(r"^    (\w+): ", inspect.getdoc(run) or "", re.MULTILINE)) >= arguments


@pytest.mark.parametrize(
    ("key", "text", "field", "expected"),
    [
        ("module", "a.yaml", "modules", (Path("a.yaml"),)),
        ("module", "a.yaml, /b c/d.yaml ,", "modules", (Path("a.yaml"), Path("/b c/d.yaml"))),
        ("checkpoint", "/a b", "checkpoint", Folder("/a b")),
        ("checkpoint", "file:///a%20b", "checkpoint", Folder("/a b")),
        ("checkpoint", "mock://b/c/", "checkpoint", Folder("mock://b/c")),
        ("checkpoint-lock", "none", "checkpoint_lock", "none"),
        ("trigger", "5s", "trigger", timedelta(seconds=5)),
        ("trigger", "250", "trigger", timedelta(milliseconds=250)),
        ("available-now", "true", "available_now", True),
        ("available-now", " False ", "available_now", False),
        ("records-per-batch", "10", "records_per_batch", 10),
        ("records-per-batch", "99999999999", "records_per_batch", 99999999999),
        ("state-partitions", " 3 ", "state_partitions", 3),
        ("kafka-timeout", "1 min", "kafka_timeout", timedelta(minutes=1)),
        ("kafka-timeout", "1 h", "kafka_timeout", timedelta(hours=1)),
        ("otlp-endpoint", "http://[::1]:4318/", "otlp_endpoint", "http://[::1]:4318"),
        ("otlp-endpoint", " https://otel.example/a", "otlp_endpoint", "https://otel.example/a"),
        ("call-port", " 7080 ", "call_port", 7080),
        ("debug", "TRUE", "debug", True),
    ],
)
def test_configuration_is_text(key: str, text: str, field: str, expected: object) -> None:
    """Every key of Spark's configuration is read into the type of its field."""
    settings = resolve({f"spark.statefun.{key}": text, "spark.other": "x", "other": "y"})

    assert getattr(settings, field) == expected


@pytest.mark.parametrize(
    ("argument", "value", "field", "expected"),
    [
        ("module", Path("a,b.yaml"), "modules", (Path("a,b.yaml"),)),
        ("module", ["a.yaml", Path("b.yaml")], "modules", (Path("a.yaml"), Path("b.yaml"))),
        ("checkpoint", Path("/a b"), "checkpoint", Folder("/a b")),
        ("checkpoint_lock", "file", "checkpoint_lock", "file"),
        ("trigger", timedelta(seconds=5), "trigger", timedelta(seconds=5)),
        ("trigger", timedelta(0), "trigger", timedelta(0)),
        ("available_now", False, "available_now", False),
        ("records_per_batch", 10, "records_per_batch", 10),
        ("state_partitions", 3, "state_partitions", 3),
        ("call_port", 65_535, "call_port", 65_535),
        ("kafka_timeout", timedelta(minutes=1), "kafka_timeout", timedelta(minutes=1)),
        ("debug", False, "debug", False),
    ],
)
def test_arguments_win(argument: str, value: object, field: str, expected: object) -> None:
    """The program's arguments win over Spark's configuration, also if they are False."""
    conf = {
        "spark.statefun.module": "conf.yaml",
        "spark.statefun.checkpoint": "/conf",
        "spark.statefun.checkpoint-lock": "none",
        "spark.statefun.trigger": "99s",
        "spark.statefun.available-now": "true",
        "spark.statefun.records-per-batch": "99",
        "spark.statefun.state-partitions": "99",
        "spark.statefun.kafka-timeout": "99s",
        "spark.statefun.debug": "true",
    }

    given, not_given = resolve(conf, **{argument: value}), resolve(conf, **{argument: None})

    assert getattr(given, field) == expected
    assert getattr(not_given, field) == getattr(resolve(conf), field) != expected


@pytest.mark.parametrize("master", ["spark://a:7077", "yarn", "k8s://https://a"])
def test_a_cluster_needs_a_checkpoint_that_it_reaches(master: str) -> None:
    """The default is a folder of this machine; the error names the setting."""
    with pytest.raises(ConfigurationError) as caught:
        resolve({"spark.master": master})

    assert caught.value.message == (
        "spark.statefun.checkpoint must be set, since the default, /srv/greeter/.statefun/app, is a "
        f"folder of this machine alone; set it to a folder that all machines of {master} reach"
    )
    assert resolve({"spark.master": master}, checkpoint="/shared").checkpoint == Folder("/shared")


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]"])
def test_this_machine_reaches_its_own_folders(master: str) -> None:
    """Also if executors are separate processes."""
    assert resolve({"spark.master": master}).checkpoint.is_local


def test_an_unknown_key_is_refused_with_the_known_keys() -> None:
    """A misspelt key does not pass in silence."""
    with pytest.raises(ConfigurationError) as caught:
        resolve({"spark.statefun.avialable-now": "true"})

    assert caught.value.message == (
        "spark.statefun.avialable-now is not a setting; the settings are: "
        + ", ".join(f"spark.statefun.{key}" for key in sorted(KEYS))
    )


NO_DURATION = (
    "is not a duration; write a whole number and a unit (d, h, min, s, ms, us or ns), such as "
    "'15min'; without a unit it is milliseconds"
)
NO_COLLECTOR = "must be the URL of a collector, such as http://127.0.0.1:4318"


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("module", " , ", "there must be at least one module file"),
        ("checkpoint", "", "must be a folder or the URI of one, and is empty"),
        ("trigger", "soon", NO_DURATION),
        ("trigger", "-1s", NO_DURATION),
        ("kafka-timeout", "", NO_DURATION),
        (
            "kafka-timeout",
            "61 min",
            "must be an hour at most, the longest time for which Kafka's clients wait for an answer",
        ),
        ("available-now", "yes", "must be true or false"),
        ("debug", "1", "must be true or false"),
        ("records-per-batch", "0", "must be a whole number, at least 1"),
        ("records-per-batch", "many", "must be a whole number, at least 1"),
        ("state-partitions", "-2", "must be a whole number, at least 1"),
        ("state-partitions", "2.5", "must be a whole number, at least 1"),
        ("state-partitions", "2147483648", "must be at most 2147483647"),
        ("egress.lanes", "2147483648", "must be at most 2147483647"),
        ("otlp-endpoint", "127.0.0.1:4318", NO_COLLECTOR),
        ("otlp-endpoint", "grpc://a:4317", NO_COLLECTOR),
        ("otlp-endpoint", "http://:4318", NO_COLLECTOR),
        ("otlp-endpoint", "http://a:99999", "Port out of range 0-65535"),
    ],
)
def test_configuration_that_cannot_be_read_is_named(key: str, text: str, reason: str) -> None:
    """The error names the key, its value, and valid values."""
    with pytest.raises(ConfigurationError) as caught:
        resolve({f"spark.statefun.{key}": text})

    assert caught.value.message == f"spark.statefun.{key}={text}: {reason}"


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("module", [], "there must be at least one module file"),
        ("module", 5, "'int' object is not iterable"),
        ("trigger", 5, "must be a timedelta"),
        ("trigger", timedelta(seconds=-1), "a duration must not be negative"),
        ("kafka_timeout", 1.5, "must be a timedelta"),
        ("available_now", 1, "must be true or false"),
        ("records_per_batch", 0, "must be a whole number, at least 1"),
        ("records_per_batch", 2.5, "must be a whole number, at least 1"),
        ("call_port", 65_536, "must be a port, from 1 to 65535, or 0 for any free one"),
        ("call_port", -1, "must be a port, from 1 to 65535, or 0 for any free one"),
        ("state_partitions", True, "must be a whole number, at least 1"),
        ("checkpoint", " ", "must be a folder or the URI of one, and is empty"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(argument: str, value: object, reason: str) -> None:
    """A wrong type or value is an error that names the argument."""
    with pytest.raises(ConfigurationError) as caught:
        resolve(EMPTY, **{argument: value})

    assert caught.value.message == f"{argument}={value}: {reason}"


def test_a_checkpoint_that_nobody_reaches_is_refused() -> None:
    """A location of an unknown file system fails when settings are read, not in the first batch."""
    with pytest.raises(ConfigurationError, match="folder 'ftp://host/c' cannot be used"):
        resolve({"spark.statefun.checkpoint": "ftp://host/c"})


@pytest.mark.parametrize(
    "url",
    [
        "http://ada:hush@a:4318",
        "http://ada:hush@[a",
        "ada:hush@a",
        "http://a:4318?api-key=hush",
        "a/?hush",
        "http://a/#hush",
    ],
)
def test_a_secret_in_the_url_of_a_collector_is_not_repeated(url: str) -> None:
    """The error says where it belongs."""
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught:
        resolve({"spark.statefun.otlp-endpoint": url})

    assert "hush" not in str(caught.value)


def test_the_running_script_is_the_main_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's path is absolute; an interactive session has none."""
    monkeypatch.chdir(tmp_path)
    main = sys.modules["__main__"]

    monkeypatch.setattr(main, "__file__", "folder/app.py", raising=False)
    script = running_script()
    monkeypatch.delattr(main, "__file__")

    assert script == tmp_path / "folder" / "app.py"
    assert running_script() is None
