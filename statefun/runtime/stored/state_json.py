# SPDX-License-Identifier: Apache-2.0
"""Converts what a checkpoint says about an address to JSON, for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from statefun.runtime.stored.address_report import AddressReport, PendingMessage, StoredValue
from statefun.runtime.stored.plain_json import plain_json
from statefun.runtime.stored.typed_values import Decoded
from statefun.sdk.times import nearest_date


def report_json(report: AddressReport) -> dict[str, Any]:
    """Return a report for JSON; times are in ISO 8601, and bytes that are not UTF-8 in base64."""
    call = report.call
    return {
        "address": str(report.address),
        "type": report.address.typename,
        "id": report.address.id,
        "batch": report.batch,
        "values": values_json(report.values),
        "call": None
        if call is None
        else {
            "since": _iso(call.since),
            "attempt": call.attempt,
            "messages": [_message_json(each) for each in call.messages],
        },
        "waiting": [_message_json(each) for each in report.waiting],
        "waiting_until": _iso(report.waiting_until),
        "timers": [_message_json(each) for each in report.timers],
        "undelivered": [_message_json(each) for each in report.undelivered],
    }


def values_json(values: Sequence[StoredValue]) -> Mapping[str, Any]:
    """Return values for JSON, by name."""
    return {each.name: value_json(each) for each in values}


def value_json(value: StoredValue) -> dict[str, Any]:
    """Return a value for JSON."""
    return {
        "typename": value.typename,
        "bytes": value.size,
        "expires": _iso(value.expires),
        **_decoded_json(value.decoded),
    }


def _message_json(message: PendingMessage) -> dict[str, Any]:
    return {
        "caller": None if message.caller is None else str(message.caller),
        "typename": message.typename,
        "bytes": message.size,
        "due": _iso(message.due),
        "in_event_time": message.in_event_time,
        "token": message.token or None,
        "attempts": message.attempts,
        **_decoded_json(message.decoded),
    }


def _decoded_json(decoded: Decoded) -> dict[str, Any]:
    problem = "it is secret" if decoded.is_secret else decoded.problem
    return {"value": plain_json(decoded.value), "problem": problem}


def _iso(millis: int) -> str | None:
    return nearest_date(millis).isoformat().replace("+00:00", "Z") if millis else None
