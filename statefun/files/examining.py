# SPDX-License-Identifier: Apache-2.0
"""What is to be read of a file: its content beside how far it is read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from statefun.files.file_log import FileRange, FileState
from statefun.files.file_settings import FileFormat, Files, UnfinishedLine
from statefun.files.folder_watch import Found
from statefun.files.parsing import change_of, digest_of
from statefun.files.parts import Damaged, Piece, lines_of, rows_of
from statefun.files.path_identity import shown

_NO_STATE = FileState(0, 0, 0, is_all=False, size=0, digest="")


class Examined(NamedTuple):
    """What a look into a file has found."""

    ranges: list[FileRange]
    """The parts to read, without the numbers of their records."""
    change: str | None
    """How it is no longer the file that was read."""
    has_more: bool
    """Whether more of it may be read when it has been still."""
    warning: tuple[str, str] | None = None
    """What is odd, and what happens."""


NOTHING = Examined([], None, has_more=False)


def examine(  # noqa: PLR0913, PLR0917 - the facts about a file
    found: Found,
    state: FileState | None,
    files: Files,
    unfinished_line: UnfinishedLine,
    limit: int,
    most: int,
    *,
    is_still: bool,
) -> Examined:
    """Look into a file.

    Args:
        found: the file.
        state: how far it is read; None if nothing is.
        files: how it is read.
        unfinished_line: whether a last line needs a line break.
        limit: where to end, in bytes.
        most: how many records to find at most.
        is_still: whether it has not changed for so long that it is as its writer leaves it.

    Raises:
        OSError: if it cannot be read.
    """
    with found.folder.open(found.name) as file:
        is_still = is_still and file.seek(0, io.SEEK_END) == found.facts.size
        change = None if state is None else _change_of(file, found, state, files)
        before = _NO_STATE if state is None or change is not None else state
        is_cut = limit < found.facts.size
        warning = None
        if files.format is FileFormat.PARQUET:
            pieces, odd = (
                ([], None) if is_cut else _rows_of(file, before, limit, most, is_still=is_still)
            )
            if odd is not None:
                warning = f"file {found.path} {odd}", "it is read when it is"
            has_more = not pieces and not before.is_all and not (is_still or is_cut)
        else:
            may_wait = unfinished_line is UnfinishedLine.READ and not is_cut
            delimiter = files.delimiter if files.format is FileFormat.CSV else None
            takes_rest = is_still and may_wait
            pieces = list(lines_of(file, before, limit, most, delimiter, takes_rest=takes_rest))
            end = pieces[-1].end if pieces else before.end
            has_more = end < limit and may_wait and not is_still
            if before.is_torn and pieces and _goes_on(file, before.end):
                text = f"file {found.path} has gone on in the last line that was read"
                warning = text, "the rest of it is read as another one"
        return Examined(
            list(_ranges(file, found, before, pieces, files)), change, has_more, warning
        )


def _change_of(file: BinaryIO, found: Found, state: FileState, files: Files) -> str | None:
    change = change_of(file, state)
    is_other_size = found.facts.size != state.size
    if change is None and files.format is FileFormat.PARQUET and is_other_size:
        change = "was replaced by another one"
    return change


def _goes_on(file: BinaryIO, end: int) -> bool:
    file.seek(end)
    return file.read(1) not in {b"\n", b"\r"}


def _rows_of(
    file: BinaryIO, state: FileState, size: int, most: int, *, is_still: bool
) -> tuple[list[Piece], str | None]:
    if state.is_all:
        return [], None
    try:
        pieces = list(rows_of(file, state, size, most))
    except Damaged as error:
        return ([Piece(0, 0, 1, is_last=True, problem=str(error))] if is_still else []), None
    if pieces or not is_still:
        return pieces, None
    return [], "is no whole Parquet file"


def _ranges(
    file: BinaryIO, found: Found, state: FileState, pieces: list[Piece], files: Files
) -> Iterator[FileRange]:
    """Yield the parts of a file, each with how far the file is read after it."""
    lines = state.lines or int(files.format is FileFormat.CSV)  # its header
    for piece in pieces:
        size = found.facts.size if files.format is FileFormat.PARQUET else piece.end
        lines += piece.lines
        after = FileState(
            piece.end,
            lines,
            found.facts.modified,
            piece.is_last,
            size,
            digest_of(file, size),
            piece.header,
            piece.is_torn,
        )
        yield FileRange(
            found.route,
            shown(found.folder.location),
            found.name,
            piece.start,
            piece.end,
            lines - piece.lines + 1,
            0,
            piece.lines,
            after,
            piece.problem,
        )
