# SPDX-License-Identifier: Apache-2.0
"""The image of ``deploy/docker``: it has what an application needs, which its user cannot add."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from maven_repository import maven_repository

from statefun.runtime.spark.connector import spark_kafka_connector
from statefun.runtime.spark.jars import SETTINGS_VARIABLE
from statefun.runtime.spark.store_access import s3a_jars

DOCKERFILE = Path(__file__).parents[2] / "deploy" / "docker" / "Dockerfile"


def commands(stage: int) -> str:
    """Return the commands of a stage of the Dockerfile, one a line."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    return re.split(r"^FROM ", text, flags=re.MULTILINE)[stage + 1]


def test_the_build_keeps_the_jars_for_kafka_and_for_checkpoints_in_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the build's own commands, neither needs a repository, Java, or a folder that can be written."""
    programs = re.findall(r'^RUN \S+/python -c\s+"(.*)"$', commands(0), re.MULTILINE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(SETTINGS_VARIABLE, str(tmp_path / "ivysettings.xml"))
    with maven_repository(tmp_path / "ivysettings.xml"):
        for program in programs:
            subprocess.run([sys.executable, "-c", program], check=True)
    kept = sorted(each for each in tmp_path.rglob("*") if each.is_file())
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", os.devnull)

    jars = [jar.name for jar in (*spark_kafka_connector(), *s3a_jars())]

    assert any("spark-sql-kafka" in name for name in jars)
    assert any("hadoop-aws" in name for name in jars)
    assert kept == sorted(each for each in tmp_path.rglob("*") if each.is_file())
