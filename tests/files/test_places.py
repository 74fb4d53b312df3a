# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from statefun.files.places import Place, checked_place
from statefun.sdk.errors import ConnectorError


@pytest.mark.parametrize(
    ("path", "folder", "name"),
    [
        ("/data/*.csv", "/data", "*.csv"),
        ("/data.csv", "/", "data.csv"),
        ("/*.csv", "/", "*.csv"),
        ("file:///data.csv", "/", "data.csv"),
        ("file:///da%20ta/*.csv", "/da ta", "*.csv"),
        (
            "s3://bucket/in/[ab]*.csv?region=eu-west-1",
            "s3://bucket/in?region=eu-west-1",
            "[ab]*.csv",
        ),
    ],
)
def test_a_path_is_a_folder_and_names(path: str, folder: str, name: str) -> None:
    """Also at the root, and where a pattern is not part of a URI."""
    place = Place.of(path)
    assert (place.folder.location, place.name) == (folder, name)


def test_a_folder_means_all_of_its_files(tmp_path: Path) -> None:
    """But not those in the making."""
    place = checked_place("ingress a/b", str(tmp_path))
    assert place.folder.location == str(tmp_path)
    assert [name for name in ("a.csv", ".a.csv", "_a") if place.takes(name)] == ["a.csv"]


def test_a_path_that_cannot_be_is_told(tmp_path: Path) -> None:
    """With its owner, and what the file system says."""
    with pytest.raises(ConnectorError, match=r"ingress a/b: .* cannot be read: .*too long"):
        checked_place("ingress a/b", str(tmp_path / ("x" * 300)))


def test_what_may_be_secret_is_not_told() -> None:
    """The query of a URI is for pyarrow."""
    with pytest.raises(ConnectorError) as raised:
        checked_place("ingress a/b", "mock:///nowhere/*.csv?secret=planted")
    assert "planted" not in str(raised.value)
    assert "there is no mock:///nowhere/*.csv" in raised.value.message
