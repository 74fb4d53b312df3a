# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from statefun.runtime.spark.connector import TESTED, spark_kafka_connector
from statefun.runtime.spark_internals.class_path import spark_jars_folder
from statefun.sdk.errors import PlatformError

ROOT = Path(__file__).resolve().parents[3]


def test_the_tested_spark_is_the_one_that_is_installed_with_statefun() -> None:
    """The package requires the release that has a published connector."""
    assert f",<={TESTED}" in (ROOT / "pyproject.toml").read_text()


def test_connector_that_spark_ships_is_not_added(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is resolved when the connector is among Spark's own jars."""
    (tmp_path / "jars").mkdir()
    for name in ("ivy-2.5.3.jar", "spark-sql-kafka-0-10_2.13-4.2.0.jar"):
        (tmp_path / "jars" / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    jars = spark_kafka_connector()

    assert spark_jars_folder() == tmp_path / "jars"
    assert jars == ()


def test_connector_adds_only_what_spark_lacks() -> None:
    """The connector comes with Kafka's client, but without any jar that Spark has already."""
    jars = spark_kafka_connector()

    artifacts = {jar.name.split("_", 1)[1].rsplit("-", 1)[0] for jar in jars}
    assert artifacts == {
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    }


def test_the_connector_of_an_earlier_release_stands_in(caplog: pytest.LogCaptureFixture) -> None:
    """An earlier connector of the same minor version is used, and logged, if the exact one is missing."""
    caplog.set_level(logging.INFO, "statefun")

    jars = spark_kafka_connector(spark="4.2.1")

    assert any("spark-sql-kafka-0-10_2.13-4.2.0.jar" in jar.name for jar in jars)
    assert caplog.messages == [
        "Spark's Kafka connector is not published for PySpark 4.2.1; using the connector of PySpark 4.2.0"
    ]


def test_a_release_without_any_connector_is_named_with_what_helps() -> None:
    """The error names the PySpark to install, without Ivy's output."""
    with pytest.raises(PlatformError) as caught:
        spark_kafka_connector(spark="4.99.0")

    assert re.sub(r"\s+", " ", str(caught.value)) == (
        "[SF700] Spark's Kafka connector is not published for PySpark 4.99.0, nor for an earlier "
        f"release of the same minor version; run: pip install 'pyspark=={TESTED}'"
    )
