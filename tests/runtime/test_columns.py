# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.runtime.columns import values_of

COLUMNS = {
    pa.binary(): st.none() | st.binary(max_size=9),
    pa.string(): st.none() | st.text(max_size=9),
    pa.int32(): st.none() | st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.none() | st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.none() | st.booleans(),
    pa.map_(pa.string(), pa.binary()): st.none()
    | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3),
}


@pytest.mark.parametrize("type_", COLUMNS, ids=str)
@given(data=st.data())
def test_columns_become_lists_as_arrow_makes_them(type_: pa.DataType, data: Any) -> None:
    """Values, types and nulls are the same, also of a part of a column."""
    column = pa.array(data.draw(st.lists(COLUMNS[type_], max_size=9)), type_)
    part = column.slice(data.draw(st.integers(0, len(column))))

    values = values_of(part)

    assert values == part.to_pylist()
    assert list(map(type, values)) == list(map(type, part.to_pylist()))
