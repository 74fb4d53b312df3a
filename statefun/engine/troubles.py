# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes the failed attempts to call an address, for states and for results of long calls."""

from __future__ import annotations

from datetime import timedelta

from statefun.protocol.runtime_pb2 import AddressState
from statefun.sdk.invocation_batch import Trouble
from statefun.sdk.times import in_milliseconds


def put_trouble(stored: AddressState.Trouble, trouble: Trouble) -> None:
    """Store the failed attempts to call an address in ``stored``."""
    stored.outages, stored.alone, stored.attempts, spent, stored.most = trouble
    stored.spent = in_milliseconds(spent)


def read_trouble(stored: AddressState.Trouble) -> Trouble:
    """Return the failed attempts to call an address, as ``stored`` in its state."""
    spent = timedelta(milliseconds=stored.spent)
    return Trouble(stored.outages, stored.alone, stored.attempts, spent, stored.most)
