# SPDX-License-Identifier: Apache-2.0
"""A file system that replaces a file in two steps, as HDFS does through pyarrow, and crashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from statefun.runtime.checkpoint import file_systems
from statefun.runtime.checkpoint.checkpoint_files import CheckpointFiles
from statefun.runtime.checkpoint.file_systems import files_of
from statefun.runtime.checkpoint.folder import Folder


class Crash(Exception):  # noqa: N818 - no error of the code under test
    """The process has ended."""


class TwoStepSystem(fs.FileSystemHandler):  # type: ignore[misc] # pyarrow has no types
    """Files in a local folder; as on HDFS, pyarrow deletes a file before it renames another to it.

    Args:
        root: where the files are.
        before: called before each step that reads or changes something, with its name.
        is_strict: whether it refuses to rename to an existing file, as SFTP does.
    """

    def __init__(
        self,
        root: Path,
        before: Callable[[str], None] = lambda step: None,
        *,
        is_strict: bool = False,
    ) -> None:
        self._root = root
        self._before = before
        self._is_strict = is_strict
        self._local = fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())

    def get_type_name(self) -> str:
        """Return the name by which pyarrow shows it."""
        return "hdfs"

    def normalize_path(self, path: str) -> str:
        """Return a path as it is."""
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        """Look at files."""
        self._before("read")
        return list(self._local.get_file_info(paths))

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """List a folder."""
        self._before("read")
        return list(self._local.get_file_info(selector))

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading."""
        self._before("read")
        return self._local.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Mapping[str, str]) -> pa.NativeFile:
        """Create a file."""
        self._before("create")
        return pa.PythonFile(_Halves((self._root / path).open("wb"), self._before), mode="w")

    def create_dir(self, path: str, recursive: bool) -> None:
        """Create a folder."""
        self._before("create folder")
        self._local.create_dir(path, recursive=recursive)

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self._before("delete")
        self._local.delete_file(path)

    def delete_dir(self, path: str) -> None:
        """Delete a folder and what is in it."""
        self._before("delete folder")
        self._local.delete_dir(path)

    def move(self, src: str, dest: str) -> None:
        """Rename a file, in two steps if another one has the name."""
        if (self._root / dest).exists():
            if self._is_strict:
                raise FileExistsError(dest)
            self.delete_file(dest)
        self._before("rename")
        self._local.move(src, dest)

    def _unused(self, *_: Any) -> Any:
        raise AssertionError("not part of what folders use")

    copy_file = delete_dir_contents = delete_root_dir_contents = _unused
    open_append_stream = open_input_stream = _unused


class _Halves:
    """A file whose content arrives in two steps."""

    def __init__(self, file: Any, before: Callable[[str], None]) -> None:
        self._file = file
        self._before = before

    def write(self, content: bytes) -> int:
        content = bytes(content)
        middle = len(content) // 2
        for half in (content[:middle], content[middle:]):
            self._before("write")
            self._file.write(half)
            self._file.flush()
        return len(content)

    def flush(self) -> None:
        """Each write has been one."""

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)


class Countdown:
    """Lets a process end before its ``steps``-th change, counted from 0."""

    def __init__(self, steps: int | None) -> None:
        self._left = steps

    def __call__(self, step: str) -> None:
        """Count a step."""
        if self._left is None or step == "read":
            return
        if self._left <= 0:
            raise Crash
        self._left -= 1


def files(
    root: Path, before: Callable[[str], None] = lambda step: None, *, is_strict: bool = False
) -> CheckpointFiles:
    """Return access to files in ``root``, as a new process has it."""
    return files_of(fs.PyFileSystem(TwoStepSystem(root, before, is_strict=is_strict)))


class Mounted:
    """A checkpoint on such a file system, by its URI."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._steps: int | None = None
        monkeypatch.setattr(file_systems, "files_at", self._files_at)

    def crashing(self, steps: int | None) -> Folder:
        """Return it to a process that ends after so many changes."""
        self._steps = steps
        return Folder("two-step:/checkpoint")

    def _files_at(self, uri: str) -> tuple[CheckpointFiles, str]:
        return files(self._root, Countdown(self._steps)), uri.removeprefix("two-step:/")
