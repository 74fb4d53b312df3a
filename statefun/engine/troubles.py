# SPDX-License-Identifier: Apache-2.0
"""Encodes what is known of an address's failed calls, in states and in results of long calls."""

from __future__ import annotations

from datetime import timedelta

from statefun.protocol.runtime_pb2 import AddressState
from statefun.sdk.invocation_batch import Trouble
from statefun.sdk.times import in_milliseconds


def put_trouble(stored: AddressState.Trouble, trouble: Trouble) -> None:
    """Write what is known of an address's failed calls into its stored form."""
    stored.outages, stored.alone, stored.attempts, spent, stored.most = trouble
    stored.spent = in_milliseconds(spent)


def read_trouble(stored: AddressState.Trouble) -> Trouble:
    """Return what is known of an address's failed calls, read from its stored form."""
    spent = timedelta(milliseconds=stored.spent)
    return Trouble(stored.outages, stored.alone, stored.attempts, spent, stored.most)
