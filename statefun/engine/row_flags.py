# SPDX-License-Identifier: Apache-2.0
"""Facts about a row, as bits of its column ``flags``."""

from __future__ import annotations

KEYLESS = 1
"""The record had no key, though its address has an id."""
REPLAYED = 2
"""The record was replayed: its headers have its first origin."""
ENCODED = 4
"""The value is that of a record, which the deserializer of its route has not decoded yet."""
