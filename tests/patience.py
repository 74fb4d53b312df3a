# SPDX-License-Identifier: Apache-2.0
"""How long tests wait for a state before they fail: longer than it takes on a busy machine."""

from __future__ import annotations

from datetime import timedelta

PATIENCE = timedelta(minutes=10)
"""A state that takes longer will never come."""
SECONDS = PATIENCE.total_seconds()
