# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from importlib.metadata import packages_distributions, requires

import pytest

from statefun.runtime.spark_internals.distributions import OF_SPARK


@pytest.mark.origin("python/packaging/classic/setup.py")
def test_pyspark_needs_one_package() -> None:
    """Without its extras it requires Py4J alone; the packages and their modules have the same names."""
    needed = [each for each in requires("pyspark") or () if "extra" not in each]

    assert [each.partition("<")[0].partition("=")[0] for each in needed] == ["py4j"]
    assert all(packages_distributions()[name] == [name] for name in OF_SPARK)
