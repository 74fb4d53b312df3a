# SPDX-License-Identifier: Apache-2.0
"""Facts about a row (a message in the columns that the dispatcher reads), as bits of the column ``flags``."""

from __future__ import annotations

KEYLESS = 1
"""The record in the row had no key in its topic; the id of its target comes from a transform."""
REPLAYED = 2
"""The record in the row is a replayed dead letter: its headers carry the origin of the first record."""
ENCODED = 4
"""The value is that of a record, and the deserializer of its route has not decoded it yet."""
