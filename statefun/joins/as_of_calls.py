# SPDX-License-Identifier: Apache-2.0
"""Joins a stream with the values of another one that were valid at the time of each record."""

from __future__ import annotations

from typing import ClassVar

from statefun.joins.buffered import Buffer, Buffered
from statefun.joins.interval_calls import IntervalCalls
from statefun.sdk.callables import refuse_coroutine
from statefun.sdk.context import Context


class AsOfCalls(IntervalCalls):
    """The handlers of a function that is called with each left record and the newest right record that is not later.

    A left record waits until the watermark has passed its time, so that all earlier right records have come.
    """

    joins_at_once: ClassVar[bool] = False

    def _let_go(self, context: Context, buffer: Buffer, record: Buffered) -> None:
        if not record.is_left:
            return
        partners = [
            each
            for each in buffer.between(record.time - self._before, record.time)
            if not each.is_left
        ]
        if not partners:
            super()._let_go(context, buffer, record)
            return
        newest = max(partners, key=Buffered.age)
        left, right = (self._value(context, buffer, each) for each in (record, newest))
        refuse_coroutine(self._fun(context, left, right))

    def _forget(self, context: Context, buffer: Buffer) -> None:
        """Remove the right records that no left record can find any more, as a newer one has come."""
        watermark = context._watermark  # noqa: SLF001 - no part of the API
        if watermark is None:
            return
        # An earlier left record would be late.
        superseded = buffer.superseded(watermark - self._grace)
        if superseded:
            buffer.remove(superseded)
