# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from statefun.files.folder_watch import WaitingClock, Watch
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
            "s3://bucket/in/[ab]*.csv?region=eu-west-1",  # nobody is asked whether it exists
            "s3://bucket/in?region=eu-west-1",
            "[ab]*.csv",
        ),
    ],
)
def test_a_path_is_a_folder_and_names(path: str, folder: str, name: str) -> None:
    """This holds at the root, and for URIs with characters of patterns in their options."""
    place = Place.of(path)
    assert (place.folder.location, place.name) == (folder, name)


def test_a_folder_means_all_of_its_files(tmp_path: Path) -> None:
    """Files that are still being written are left out."""
    place = checked_place("ingress a/b", str(tmp_path))
    assert place.folder.location == str(tmp_path)
    assert [name for name in ("a.csv", ".a.csv", "_a") if place.takes(name)] == ["a.csv"]


def test_the_name_of_a_file_or_folder_that_exists_may_have_brackets(tmp_path: Path) -> None:
    """A browser names a second download so; as a pattern, the name would silently match nothing."""
    (tmp_path / "report[1].csv").touch()
    (tmp_path / "in[2026]").mkdir()
    (tmp_path / "in[2026]" / "a.jsonl").touch()
    names = ["report[1].csv", "report1.csv", "in2026", "a.jsonl"]

    def taken(name: str) -> list[str]:
        place = checked_place("ingress a/b", str(tmp_path / name))
        return [each for each in names if place.takes(each)]

    assert taken("report[1].csv") == ["report[1].csv"]
    assert taken("report[12].csv") == ["report1.csv"]
    assert taken("*t[1].csv") == ["report1.csv"]
    assert taken("in[2026]") == names


@pytest.mark.parametrize("path", ["_names.txt", "_*.txt"])
def test_a_file_that_is_named_is_read_whatever_its_name_is(path: str, tmp_path: Path) -> None:
    """Only the other files of a folder are left out because of the first characters of their names."""
    for name in ("_names.txt", ".names.txt", "names.txt"):
        (tmp_path / name).touch()
    place = checked_place("ingress a/b", str(tmp_path / path))
    watch = Watch("ingress a/b", {path: place}, WaitingClock())

    watch.list_folders({}, may_be_empty=False)

    assert [file.name for file in watch.readable()] == ["_names.txt"]


def test_a_path_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """The error has the ingress, and the reason of the file system."""
    with pytest.raises(ConnectorError, match=r"ingress a/b: .* cannot be read: .*too long"):
        checked_place("ingress a/b", str(tmp_path / ("x" * 300)))


def test_secrets_of_a_path_are_not_shown() -> None:
    """Errors leave out the query of a URI, which is for pyarrow."""
    with pytest.raises(ConnectorError) as raised:
        checked_place("ingress a/b", "mock:///nowhere/*.csv?secret=planted")
    assert "planted" not in str(raised.value)
    assert "path mock:///nowhere/*.csv does not exist" in raised.value.message
