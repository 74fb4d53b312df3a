# SPDX-License-Identifier: Apache-2.0
"""The form in which Spark stores the state of ``applyInPandasWithState``: a pickled row.

Based on the use of ``GroupStateImpl`` in ``ApplyInPandasWithStatePythonRunner.scala``
(``PythonSQLUtils.toPyRow``) and the pickler of ``net.razorvine`` in Spark 4.0.2, 4.1.2 and 4.2.0. When Spark pickles a
row with one binary column, the pickle says: call the converter for the row's schema with
``bytes(bytearray(<text>, "latin-1"))``; Spark 4.0 leaves ``bytes`` out. The pickle has the text's length in four bytes,
and then the text in UTF-8. In the other direction, Spark accepts any pickle of a tuple from a worker.

After each object, the pickle says where to memorize it (opcode ``q``). The pickler knows objects by their identity hash
codes, and leaves ``q`` out if another object of the row has the same hash code: in about one of 100 million rows.
"""

from __future__ import annotations

import re
import struct
from typing import Final

import pyspark

from statefun.runtime.spark_internals.versions import RELEASE
from statefun.sdk.errors import CheckpointError

_TEXT: Final = b"c__builtin__\nbytearray\nX"
_LENGTH: Final = struct.Struct("<I")
_BEFORE: Final = len(_TEXT) + _LENGTH.size
_SHORT: Final = 256
"""If a value has at least this many bytes, its length takes four bytes in a pickle, otherwise one byte."""
_ENCODING: Final = b"q\x03X\x07\x00\x00\x00latin-1q\x04\x86R"
_END: Final = _ENCODING + (b"q\x05\x85Rq\x06tRq\x07." if RELEASE >= (4, 1) else b"q\x05tRq\x06.")
"""The end of nearly all rows."""
_ANY_END: Final = re.compile(
    rb"(?:q.)?X\x07\x00\x00\x00latin-1(?:q.)?\x86R(?:q.)?(?:\x85R(?:q.)?)?tR(?:q.)?\.", re.DOTALL
)


def pickled(value: bytes) -> bytes:
    """Pickle a row of one binary column in a form that Spark accepts.

    >>> import pickle
    >>> pickle.loads(pickled(b"state"))
    (b'state',)
    """
    if len(value) < _SHORT:
        return b"\x80\x03C%c%b\x85." % (len(value), value)
    return b"\x80\x03B%b%b\x85." % (_LENGTH.pack(len(value)), value)


def unpickled(row: bytes) -> bytes:
    """Return the bytes in a row that Spark has pickled; the pickle is only read, not executed.

    Raises:
        CheckpointError: if the row has another form.
    """
    start = row.find(_TEXT) + _BEFORE
    end = start + int.from_bytes(row[start - _LENGTH.size : start], "little")
    if start > _BEFORE and (row[end:] == _END or _ANY_END.fullmatch(row, end)):
        text = row[start:end]
        try:
            return text if text.isascii() else text.decode().encode("latin-1")
        except UnicodeError:
            pass  # as for any other row of another form
    raise CheckpointError(
        f"a stored state does not have the form of Spark {pyspark.__version__} "
        f"({row[:200]!r}); run with spark.statefun.dispatch=pandas, and report this as a bug of statefun"
    )
