# SPDX-License-Identifier: Apache-2.0
"""Examines a file: checks that the part already read has not changed, and finds the parts to read next."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from statefun.files.file_log import FileRange, FileState
from statefun.files.file_settings import FileFormat, Files, UnfinishedLine
from statefun.files.folder_watch import ListedFile
from statefun.files.parsing import change_of, digest_of
from statefun.files.parts import (
    DamagedFileError,
    Piece,
    UnfinishedFileError,
    lines_of,
    rows_of,
)
from statefun.files.path_identity import identity_of

_NO_STATE = FileState(0, 0, 0, is_all=False, size=0, digest="")


class Examination(NamedTuple):
    """What :func:`examine` has found in a file: the parts to read next, and changes and problems."""

    ranges: list[FileRange]
    """The parts to read next; ``first``, the offset of a part, is 0 until the micro-batch is planned."""
    change: str | None
    """How the part already read has changed, such as "was cut off"; None if it has not changed."""
    has_more: bool
    """Whether more of the file may become readable once the file has stayed unchanged for a while."""
    warning: tuple[str, str] | None = None
    """A warning about the file for the log: what is unusual, and what the application does."""


NOTHING_NEW = Examination([], None, has_more=False)


def examine(  # noqa: PLR0913, PLR0917 - the facts about a file
    listed_file: ListedFile,
    state: FileState | None,
    files: Files,
    unfinished_line: UnfinishedLine,
    limit: int,
    most: int,
    *,
    is_still: bool,
) -> Examination:
    """Return which parts of a file to read next, and how the part already read has changed.

    Args:
        listed_file: the file.
        state: how far the file is read; None if no part of the file is read.
        files: how to read the file.
        unfinished_line: what to do with a last line that has no line break.
        limit: the number of bytes of the file that may be read, from its beginning on.
        most: how many records all parts together have at most.
        is_still: whether the file has stayed unchanged for so long that its writer must have finished.

    Raises:
        OSError: if the file cannot be read.
    """
    with listed_file.folder.open(listed_file.name) as file:
        is_still = is_still and file.seek(0, io.SEEK_END) == listed_file.facts.size
        change = None if state is None else _change_of(file, listed_file, state, files)
        before = _NO_STATE if state is None or change is not None else state
        is_cut = limit < listed_file.facts.size
        warning = None
        if files.format is FileFormat.PARQUET:
            pieces, problem = (
                ([], None)
                if is_cut
                else _parquet_pieces(file, before, limit, most, is_still=is_still)
            )
            if problem is not None:
                warning = f"file {listed_file.path} {problem}", "waiting for the rest of the file"
            has_more = not pieces and not before.is_all and not (is_still or is_cut)
        else:
            may_wait = unfinished_line is UnfinishedLine.READ and not is_cut
            delimiter = files.delimiter if files.format is FileFormat.CSV else None
            takes_rest = is_still and may_wait
            pieces = list(lines_of(file, before, limit, most, delimiter, takes_rest=takes_rest))
            end = pieces[-1].end if pieces else before.end
            has_more = end < limit and may_wait and not is_still
            if before.is_torn and pieces and _continues_line(file, before.end):
                text = (
                    f"the last line of file {listed_file.path} was read and has become longer since"
                )
                warning = text, "the rest of the line is read as another line"
        return Examination(
            list(_ranges(file, listed_file, before, pieces, files)), change, has_more, warning
        )


def _change_of(
    file: BinaryIO, listed_file: ListedFile, state: FileState, files: Files
) -> str | None:
    change = change_of(file, state)
    is_other_size = listed_file.facts.size != state.size
    if change is None and files.format is FileFormat.PARQUET and is_other_size:
        change = "was replaced by another file"
    return change


def _continues_line(file: BinaryIO, end: int) -> bool:
    file.seek(end)
    return file.read(1) not in {b"\n", b"\r"}


def _parquet_pieces(
    file: BinaryIO, state: FileState, size: int, most: int, *, is_still: bool
) -> tuple[list[Piece], str | None]:
    if state.is_all:
        return [], None
    try:
        return list(rows_of(file, state, size, most)), None
    except UnfinishedFileError:
        return [], "is not a complete Parquet file" if is_still else None
    except DamagedFileError as error:
        return ([Piece(0, 0, 1, is_last=True, problem=str(error))] if is_still else []), None


def _ranges(
    file: BinaryIO, listed_file: ListedFile, state: FileState, pieces: list[Piece], files: Files
) -> Iterator[FileRange]:
    """Yield the parts of a file, each with the state of the file after the part is read."""
    lines = state.lines
    for piece in pieces:
        if not lines and piece.header:
            lines = 1  # the first line of CSV names the fields
        size = listed_file.facts.size if files.format is FileFormat.PARQUET else piece.end
        lines += piece.lines
        after = FileState(
            piece.end,
            lines,
            listed_file.facts.modified,
            piece.is_last,
            size,
            digest_of(file, size),
            piece.header,
            piece.is_torn,
        )
        yield FileRange(
            listed_file.route,
            identity_of(listed_file.folder.location),
            listed_file.name,
            piece.start,
            piece.end,
            lines - piece.lines + 1,
            0,
            piece.lines,
            after,
            piece.problem,
        )
