# SPDX-License-Identifier: Apache-2.0
"""The form in which Spark stores the state of ``applyInPandasWithState``: a pickled row.

From ``GroupStateImpl``'s use in ``ApplyInPandasWithStatePythonRunner.scala`` (``PythonSQLUtils.toPyRow``)
and the pickler of ``net.razorvine`` in Spark 4.2.0. A row of one binary column is a converter for
the row's schema, applied to ``bytes(bytearray(<text>, "latin-1"))``, where four bytes have the
length of the text, and the text follows in UTF-8. A worker may return any pickle of a tuple.
"""

from __future__ import annotations

import struct

import pyspark

from statefun.sdk.errors import CheckpointError

_TEXT = b"c__builtin__\nbytearray\nX"
_LENGTH = struct.Struct("<I")
_BEFORE = len(_TEXT) + _LENGTH.size
_SHORT = 256
"""A value of at least this size has four bytes for its length in a pickle; a shorter value has one."""
_END = b"q\x03X\x07\x00\x00\x00latin-1q\x04\x86Rq\x05\x85Rq\x06tRq\x07."


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
    end = len(row) - len(_END)
    if (
        start <= _BEFORE
        or not row.endswith(_END)
        or int.from_bytes(row[start - _LENGTH.size : start], "little") != end - start
    ):
        raise CheckpointError(
            f"a stored state does not have the form of Spark {pyspark.__version__} "
            f"({row[:200]!r}); run with spark.statefun.dispatch=pandas, and report this as a bug of statefun"
        )
    return row[start:end].decode().encode("latin-1")
