# SPDX-License-Identifier: Apache-2.0
"""Tables and joins: records of several topics with one key meet at one address.

The public names are here. The package is built only on state, messages, and timers in event time.
"""

from __future__ import annotations

from statefun.joins.interval_functions import JoinedFunction, joined, joined_as_of
from statefun.joins.tables import Table

__all__ = ["JoinedFunction", "Table", "joined", "joined_as_of"]
