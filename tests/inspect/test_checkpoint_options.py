# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from statefun.inspect.checkpoint_options import micro_batch_number, positive_number, usable
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.store_errors import StoreError
from statefun.sdk.errors import CheckpointError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError("no access"), "[SF600] checkpoint {} cannot be used: no access"),
        (StoreError("no answer"), "[SF600] no answer"),
        (CheckpointError("it is damaged"), "[SF600] it is damaged"),
    ],
)
def test_errors_of_files_are_one_sentence(tmp_path: Path, error: Exception, text: str) -> None:
    """An error that is one already stays as it is, also the one of an object store, which is an OSError, too."""
    with pytest.raises(CheckpointError) as caught, usable(Folder.at(tmp_path)):
        raise error

    assert str(caught.value) == text.format(tmp_path)


@pytest.mark.parametrize(
    ("parse", "text", "least"),
    [
        (micro_batch_number, "-1", 0),
        (micro_batch_number, "newest", 0),
        (positive_number, "0", 1),
        (positive_number, "1.5", 1),
    ],
)
def test_numbers_are_whole(parse: Callable[[str], int], text: str, least: int) -> None:
    """The error has the smallest number and what was given."""
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse(text)

    assert str(caught.value) == f"must be a whole number, at least {least}, not {text!r}"
    assert parse(f"{least}") == least
