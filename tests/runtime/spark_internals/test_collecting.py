# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statefun.runtime.spark.session import open_session
from statefun.runtime.spark_internals import collecting
from statefun.runtime.spark_internals.collecting import collected, forget_sockets
from statefun.runtime.spark_internals.jvm import jvm

pytestmark = pytest.mark.spark


@pytest.fixture
def spark() -> SparkSession:
    """Return the session of the tests, which has run a job before."""
    session = open_session(debug=False, state_partitions=None, kafka=False)
    session.range(3).collect()
    return session


def remembered() -> set[str]:
    """Return the paths that Java is to delete at the end of the JVM."""
    field = jvm().java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
    field.setAccessible(True)
    return set(field.get(None))


def test_java_forgets_the_sockets_of_jobs(spark: SparkSession, tmp_path: Path) -> None:
    """It remembers one for each job, as long as nobody interferes; other paths stay."""
    kept, gone = tmp_path / "there.sock", tmp_path / "gone.txt"
    kept.touch()
    for path in (kept, gone):
        jvm().java.io.File(str(path)).deleteOnExit()
    forget_sockets()
    before = remembered()

    for _ in range(5):
        spark.range(3).collect()
    meanwhile = remembered()

    assert len(meanwhile - before) == 5
    assert forget_sockets() == 5
    assert remembered() == before
    assert {str(kept), str(gone)} <= before


def test_each_so_many_jobs_are_forgotten(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of DataFrames and of RDDs count."""
    monkeypatch.setattr(collecting, "_JOBS_PER_SEARCH", 4)
    forget_sockets()
    before, numbers = remembered(), []

    for _ in range(8):
        rows = collected(spark.range(3))
        items = collected(spark.sparkContext.parallelize([1, 2, 3], 1))
        numbers.append(len(remembered() - before))

    assert [row.id for row in rows] == [0, 1, 2]
    assert items == [1, 2, 3]
    assert max(numbers) < 4
    assert min(numbers) < 2  # jobs of other tests count as well
