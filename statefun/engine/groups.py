# SPDX-License-Identifier: Apache-2.0
"""The messages and the state of one address in a micro-batch, in the form that the dispatcher uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError
from mypy_extensions import mypyc_attr

from statefun.engine.address_keys import address_of
from statefun.engine.address_values import AddressValues
from statefun.engine.origin import headers_of, original
from statefun.engine.row_flags import ENCODED, KEYLESS, REPLAYED
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.sdk.errors import CheckpointError, StatefunError, caused
from statefun.sdk.invocation_batch import Invocation
from statefun.sdk.types import TypedValue

OWN_PREFIX: Final = "statefun."
"""The prefix of the typenames of the engine's own messages, such as wake-ups."""

T = TypeVar("T")

_NEVER = -2
_make_value: Final = partial(tuple.__new__, TypedValue)
_make_invocation: Final = partial(tuple.__new__, Invocation)


COLUMNS = ("caller", "typename", "value", "trace", "flags")
"""The columns that the dispatcher reads for every row; see :class:`Columns`."""


@mypyc_attr(allow_interpreted_subclasses=True)  # a test watches it
class Columns:
    """Messages as rows of ``envelope.ROW_SCHEMA``, column by column.

    Args:
        caller: the keys of the addresses that have sent the messages; None for ingress records.
        typename: the typenames of the values.
        value: the values; None for a record without a value (no function gets such a record).
        trace: the trace-context headers, or None.
        flags: the facts about each row, as bits; see ``row_flags``.
        cell: returns the cell of a further column, given the name of the column and the row.
        column: returns all cells of a further column, given its name; None if no event times are needed.
    """

    def __init__(  # noqa: PLR0913 - a row has so many
        self,
        caller: Sequence[bytes | None],
        typename: Sequence[str],
        value: Sequence[Any],  # bytes, or None
        trace: Sequence[str | None],
        flags: Sequence[int],
        *,
        cell: Callable[[str, int], Any],
        column: Callable[[str], Sequence[Any]] | None = None,
    ) -> None:
        self.caller = caller
        self.typename = typename
        self.value = value
        self.trace = trace
        self.flags = flags
        self.cell = cell
        self.column = column
        self.times: Sequence[int | None] | None = None
        """The event times of all rows, in milliseconds since the epoch; None if no ingress declares event time."""
        self.untimed: dict[int, StatefunError] = {}
        """The errors of the records whose event time cannot be read, by row."""
        self._routes: Sequence[Any] | None = None
        self._records: dict[int, RecordOrigin | None] = {}
        """The origins that were asked for, by row: a long call asks twice."""
        self.has_own = any(name.startswith(OWN_PREFIX) for name in set(typename))
        """Whether one of the rows is one of the engine's own messages."""
        self.has_encoded = any(flag & ENCODED for flag in set(flags))
        """Whether one of the rows holds an ingress record that no deserializer has decoded yet."""

    def invocation(self, row: int) -> Invocation:
        """Return the message in a row as an invocation.

        The invocation is made only now, and not for all rows at once: Python's garbage collector would examine the
        tuples of all rows again and again.
        """
        key = self.caller[row]
        argument = _make_value((self.typename[row], self.value[row]))
        return _make_invocation((address_of(key) if key else None, argument, self.trace[row]))

    def routes(self) -> Sequence[Any]:
        """Return the numbers of the routes of all rows; None for rows that are no ingress records."""
        if self._routes is None:
            if self.column is None:
                self._routes = [self.cell("route", row) for row in range(len(self.typename))]
            else:
                self._routes = self.column("route")
        return self._routes

    def time(self, row: int) -> int | None:
        """Return the event time of a row, in milliseconds since the epoch; None if it has none."""
        return None if self.times is None else self.times[row]

    def is_encoded(self, row: int) -> bool:
        """Return whether a row holds an ingress record that no deserializer has decoded yet."""
        return bool(self.flags[row] & ENCODED)

    def record(self, row: int) -> RecordOrigin | None:
        """Return the origin of the ingress record in a row; None if the row is another message."""
        if row not in self._records:
            self._records[row] = self._new_record(row)
        return self._records[row]

    def _new_record(self, row: int) -> RecordOrigin | None:
        topic = self.cell("topic", row)
        if topic is None:
            return None
        # pandas converts a column of integers with nulls to floats.
        origin = RecordOrigin(
            topic=topic,
            partition=int(self.cell("partition", row)),
            offset=int(self.cell("offset", row)),
            timestamp=int(self.cell("timestamp", row)),
            route=int(self.cell("route", row)),
            keyless=bool(self.flags[row] & KEYLESS),
        )
        for name, content in headers_of(self.cell("headers", row)):
            origin.headers.add(key=name, value=content)
        key = self.cell("key", row)
        if key is not None:
            origin.key = bytes(key)
        return original(origin) if self.flags[row] & REPLAYED else origin


class Group:
    """The messages of one address in a micro-batch, and the state of the address.

    Args:
        key: the key of the address.
        columns: the rows of many addresses.
        start: the index of the group's first row in ``columns``.
        end: the index after that of the group's last row.
        values: the state of the address.
        last: whether the address gets no further rows in this micro-batch.
    """

    __slots__ = ("columns", "end", "key", "last", "start", "values")

    def __init__(  # noqa: PLR0913, PLR0917 - one object for each address: keywords would take time
        self,
        key: bytes,
        columns: Columns,
        start: int,
        end: int,
        values: AddressValues,
        last: bool = True,  # noqa: FBT001, FBT002 - as above
    ) -> None:
        self.key = key
        self.columns = columns
        self.start = start
        self.end = end
        self.values = values
        self.last = last


def own_value(key: bytes, typename: str, value: bytes, read: Callable[[bytes], T]) -> T:
    """Return the decoded value of one of the engine's own messages.

    Args:
        key: the key of the address that gets the message.
        typename: the typename of the value.
        value: the value.
        read: decodes the value.

    Raises:
        CheckpointError: naming the address, if the value cannot be decoded.
    """
    try:
        return read(value)
    except (DecodeError, ValueError) as error:
        text = (
            f"a message of type {typename} to {address_of(key)} is damaged ({error}); restore the "
            "checkpoint from a copy"
        )
        raise caused(CheckpointError(text), error) from error
