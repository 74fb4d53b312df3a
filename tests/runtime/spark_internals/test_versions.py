# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import runpy
import sys

import pyspark
import pytest

import statefun
from statefun.runtime.spark_internals import versions
from statefun.runtime.spark_internals.versions import check_release, check_writes_states
from statefun.sdk.errors import PlatformError


@pytest.mark.parametrize("version", ["3.4.4", "3.5.9"])
def test_an_old_release_is_refused(version: str) -> None:
    """One sentence names the installed release and the needed one."""
    with pytest.raises(PlatformError) as caught:
        check_release(version)

    assert caught.value.message == (
        f"PySpark {version} is too old: statefun needs Spark 4.0 or newer; run: pip install "
        "'pyspark==4.2.0', and submit to a cluster of Spark 4.2"
    )


@pytest.mark.parametrize(
    "version", ["4.0.2", "4.1.2", "4.2.0", "4.2.1", "4.3.0", "4.10.0.dev1", "5.0.0"]
)
def test_other_releases_are_tried(version: str) -> None:
    """A later release may work."""
    check_release(version)


def test_a_program_is_refused_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old release may lack names that statefun imports, and settings may be wrong, too."""
    run = statefun.run

    def refuse() -> None:
        raise PlatformError("too old")

    monkeypatch.setattr("statefun.runtime.run.check_release", refuse)

    with pytest.raises(PlatformError, match="too old"):
        run(checkpoint="ftp://nowhere")


def test_spark_before_4_2_writes_no_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rescaling and new checkpoints are refused in one sentence."""
    check_writes_states()
    monkeypatch.setattr("statefun.runtime.spark_internals.versions.RELEASE", (4, 1))

    with pytest.raises(PlatformError, match="cannot write states outside of a query"):
        check_writes_states()


def test_the_version_is_known_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the PySpark that would be imported."""
    monkeypatch.delitem(sys.modules, "pyspark")

    assert runpy.run_path(versions.__file__)["VERSION"] == pyspark.__version__
    assert "pyspark" not in sys.modules
