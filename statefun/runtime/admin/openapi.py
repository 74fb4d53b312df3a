# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of the admin API, made from its routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from statefun.runtime.admin.api_route import ApiRoute

_Schema = Mapping[str, Any]
_TEXT, _NUMBER, _WHOLE, _FLAG = (
    {"type": each} for each in ("string", "number", "integer", "boolean")
)
_COUNTS = {"type": "object", "additionalProperties": _WHOLE}
_MAYBE_TEXT = {"type": ["string", "null"]}
_MAYBE_NUMBER = {"type": ["number", "null"]}


def _object(**properties: _Schema) -> _Schema:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def _list(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


def _ref(name: str) -> _Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_PLACE = _object(kind=_TEXT, name=_TEXT)
_SCHEMAS: Mapping[str, _Schema] = {
    "About": _object(version=_TEXT, checkpoint=_TEXT),
    "Health": _object(is_healthy=_FLAG, reason=_TEXT),
    "Status": _object(
        state={"enum": ["STARTING", "RUNNING", "PAUSED", "DRAINING"]},
        batch=_WHOLE,
        planned_seconds_ago=_MAYBE_NUMBER,
        outbox=_WHOLE,
        paused=_object(application=_FLAG, ingresses=_list(_TEXT), egresses=_list(_TEXT)),
        parts=_list(_object(kind=_TEXT, id=_TEXT, state=_TEXT)),
        uptime_seconds=_NUMBER,
        restarts=_WHOLE,
        seconds_since_commit=_NUMBER,
        records_read_per_second=_NUMBER,
        records_published_per_second=_NUMBER,
        lag=_WHOLE,
        backlog=_WHOLE,
        calls_under_way=_WHOLE,
        endpoints_down=_WHOLE,
        watermark=_MAYBE_TEXT,
        counts=_COUNTS,
    ),
    "Function": _object(
        name=_TEXT,
        is_remote=_FLAG,
        values=_list(_TEXT),
        invocations=_WHOLE,
        mean_seconds=_MAYBE_NUMBER,
        retries=_WHOLE,
        failures=_COUNTS,
        messages=_COUNTS,
        records=_COUNTS,
    ),
    "Functions": _list(_ref("Function")),
    "Trace": _object(
        asked=_list(_TEXT),
        left_out=_WHOLE,
        is_cut=_FLAG,
        invocations=_list(
            _object(
                id=_TEXT,
                address=_TEXT,
                batch=_WHOLE,
                time=_TEXT,
                causes=_list(_TEXT),
                records_in=_list(_TEXT),
                failures=_list(_TEXT),
                records_out=_list(_object(topic=_TEXT, key=_TEXT)),
            )
        ),
    ),
    "Ingress": _object(
        name=_TEXT,
        type={"const": "source"},
        kind=_TEXT,
        state={"enum": ["RUNNING", "WAITING", "PAUSED"]},
        waits_for=_list(_TEXT),
        records=_WHOLE,
        lag=_WHOLE,
        topics=_list(_TEXT),
        targets=_list(_TEXT),
        partitions=_list(_object(topic=_TEXT, partition=_TEXT, offset=_WHOLE, lag=_WHOLE)),
    ),
    "Ingresses": _list(_ref("Ingress")),
    "Egress": _object(
        name=_TEXT,
        type={"const": "sink"},
        kind=_TEXT,
        state=_TEXT,
        records=_WHOLE,
        waiting_records=_WHOLE,
        waiting_batches=_WHOLE,
    ),
    "Egresses": _list(_ref("Egress")),
    "Paused": _object(kind=_TEXT, name=_TEXT, is_paused=_FLAG, has_changed=_FLAG),
    "Done": _object(done=_TEXT),
    "Sent": _object(address=_TEXT),
    "State": _object(
        address=_TEXT,
        type=_TEXT,
        id=_TEXT,
        batch=_WHOLE,
        values={"type": "object"},
        waiting={"type": "array"},
        timers={"type": "array"},
        undelivered={"type": "array"},
    ),
    "Topology": _object(
        nodes=_list(_object(kind=_TEXT, name=_TEXT, failures=_WHOLE)),
        edges=_list(_object(origin=_PLACE, target=_PLACE, count=_WHOLE)),
        total_edges=_WHOLE,
    ),
    "Batches": _list(
        _object(
            batch=_WHOLE,
            began=_TEXT,
            seconds=_NUMBER,
            rows=_WHOLE,
            phases={"type": "object", "additionalProperties": _NUMBER},
        )
    ),
    "Failures": _list(_object(kind=_TEXT, count=_WHOLE, what=_TEXT, text=_TEXT, last=_TEXT)),
    "DeadLetters": _object(
        topic=_TEXT,
        replay_topic=_MAYBE_TEXT,
        total=_WHOLE,
        letters=_list(_object(id=_TEXT)),
    ),
    "DeadLetter": _object(
        id=_TEXT, key=_MAYBE_TEXT, value=_MAYBE_TEXT, headers=_list(_list(_MAYBE_TEXT))
    ),
    "Replayed": _object(replayed=_WHOLE, problems=_list(_TEXT)),
    "Timers": _object(
        buckets=_WHOLE, due=_list(_object(time=_TEXT, in_event_time=_FLAG, buckets=_WHOLE))
    ),
    "Module": _list(
        _object(
            file=_TEXT,
            text=_TEXT,
            findings=_list(_object(severity=_TEXT, line=_WHOLE, column=_WHOLE, text=_TEXT)),
        )
    ),
    "Loggers": {"type": "object", "additionalProperties": _object(level=_TEXT)},
    "Changed": _list(_TEXT),
    "Error": _object(error_code=_WHOLE, message=_TEXT),
}
_BODIES: Mapping[str, Mapping[str, Any]] = {
    "send": {
        "text/plain": {"schema": _TEXT},
        "application/vnd.{typename}": {"schema": {"type": "string", "format": "binary"}},
    },
    "set_level": {"application/json": {"schema": _object(level=_TEXT)}},
}


def openapi(routes: Iterable[ApiRoute], version: str) -> dict[str, Any]:
    """Return the OpenAPI document.

    Args:
        routes: the requests that the API answers.
        version: the version of statefun.
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "statefun", "version": version},
        "paths": paths,
        "components": {
            "schemas": dict(_SCHEMAS),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: ApiRoute) -> dict[str, Any]:
    if route.schema == "text":
        content: Mapping[str, Any] = {"text/plain": {"schema": _TEXT}}
    else:
        content = {"application/json": {"schema": _ref(route.schema)}}
    answers = {
        str(status): {"description": HTTPStatus(status).phrase, "content": content}
        for status in (200, *(each for each in route.statuses if each in {202, 503}))
    }
    errors = {"application/json": {"schema": _ref("Error")}}
    refused = [each for each in route.statuses if each not in {202, 503}]
    answers |= {
        str(status): {"description": HTTPStatus(status).phrase, "content": errors}
        for status in sorted({400, *refused, *(() if route.is_open else (401,)), 403})
    }
    names = [(name, "path", True) for name in re.findall(r"{(\w+)}", route.path)]
    names += [(name, "query", False) for name in route.query]
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.meaning,
        "parameters": [
            {"name": name, "in": place, "required": required, "schema": _TEXT}
            for name, place, required in names
        ],
        "responses": answers,
    }
    if route.name in _BODIES:
        operation["requestBody"] = {"required": True, "content": _BODIES[route.name]}
    if not route.is_open:
        operation["security"] = [{"token": []}]
    return operation
