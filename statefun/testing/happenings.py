# SPDX-License-Identifier: Apache-2.0
"""What is on its way, what is kept, and what a micro-batch does."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import attrs

from statefun.module.sinks import EgressRecord
from statefun.sdk.address import Address
from statefun.sdk.context import Cancellation
from statefun.sdk.invocation_batch import InvocationResult
from statefun.sdk.record import KafkaRecord
from statefun.sdk.types import TypedValue


class Pending(NamedTuple):
    """A message on its way."""

    target: Address
    caller: Address | None
    argument: TypedValue
    record: KafkaRecord | None = None
    """The record that it was, if it came from an ingress."""
    is_encoded: bool = False
    """Whether the record's deserializer has still to read it."""
    decoded: TypedValue | None = None
    """What the deserializer has made of it."""
    attempts: int = 0
    """How often it was tried before."""
    trace: str | None = None


class Kept(NamedTuple):
    """A stored value."""

    value: TypedValue
    expires: datetime | None


class Delayed(NamedTuple):
    """A message that was sent with a delay."""

    due: datetime
    message: Pending
    token: str


@attrs.define
class Effects:
    """What a micro-batch has done."""

    states: dict[Address, dict[str, Kept]] = attrs.field(factory=dict)
    messages: list[Pending] = attrs.field(factory=list)
    delayed: list[tuple[Address, Delayed | Cancellation]] = attrs.field(factory=list)
    """By sender, or what is tried again."""
    records: list[tuple[str, EgressRecord]] = attrs.field(factory=list)
    """By egress."""
    skipped: list[str] = attrs.field(factory=list)
    """Texts about messages that were left out."""


def present(kept: Mapping[str, Kept], now: datetime) -> dict[str, Kept]:
    """Return the values that have not expired."""
    return {name: each for name, each in kept.items() if each.expires is None or each.expires > now}


def renewed(kept: Mapping[str, Kept], result: InvocationResult, now: datetime) -> dict[str, Kept]:
    """Return the values after a call, with the times when they expire."""
    values = dict(kept)
    lives = {each.name: each.after for each in result.expiring}
    for name, value in result.state_mutations.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = Kept(value, now + lives[name] if name in lives else None)
    for name, after, on_call in result.expiring:
        if on_call and name in values:
            values[name] = values[name]._replace(expires=now + after)
    return values
