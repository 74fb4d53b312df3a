# SPDX-License-Identifier: Apache-2.0
"""The requests that the admin API answers; paths and words follow Kafka Connect's REST API where they mean the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from http import HTTPStatus

from statefun.module.yaml.durations import parse_duration
from statefun.runtime.admin.admin_changes import AdminChanges, loggers, set_level
from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.admin.api_route import ApiAnswer, ApiRequest, ApiRoute
from statefun.runtime.admin.letter_routes import letter_routes
from statefun.runtime.admin.metric_table import METRICS_TYPE, metrics_text
from statefun.runtime.admin.topology import topology
from statefun.runtime.admin.trace_routes import trace_routes
from statefun.runtime.checkpoint.pauses import Pausable
from statefun.runtime.http_server import RefusedError
from statefun.runtime.stored.known_values import nearest
from statefun.sdk.errors import ConfigurationError, DefinitionError

_PATIENCE = timedelta(minutes=5)
_MOST_EDGES = 500


def api_routes(
    views: AdminViews, changes: AdminChanges, about: Mapping[str, str]
) -> list[ApiRoute]:
    """Return all requests that the API of an application answers, except for the page and the document.

    Args:
        views: shows the application.
        changes: changes it.
        about: the answer to ``GET /``.
    """
    return [
        ApiRoute(
            "GET",
            "/",
            "about",
            "the version, and the checkpoint",
            "About",
            lambda _: ApiAnswer(about),
        ),
        ApiRoute(
            *("GET", "/health/live", "live", "whether micro-batches are committed", "Health"),
            partial(_health, views, needs_query=False),
            is_open=True,
            query=["patience"],
            is_lenient=True,
            statuses=[503],
        ),
        ApiRoute(
            *("GET", "/health/ready", "ready", "whether the query runs, too", "Health"),
            partial(_health, views, needs_query=True),
            is_open=True,
            query=["patience"],
            is_lenient=True,
            statuses=[503],
        ),
        ApiRoute(
            *("GET", "/status", "status", "progress, rates, and what waits", "Status"),
            lambda _: ApiAnswer(views.status()),
        ),
        ApiRoute(
            *("GET", "/functions", "functions", "all functions", "Functions"),
            lambda _: ApiAnswer(views.functions()),
        ),
        ApiRoute(
            *("GET", "/functions/{namespace}/{name}", "function", "a function", "Function"),
            lambda request: ApiAnswer(
                views.function(_known(request.id, "function", views.function_names()))
            ),
            statuses=[404],
        ),
        *_parts(views, changes, Pausable.INGRESS),
        *_parts(views, changes, Pausable.EGRESS),
        *(
            ApiRoute(
                *("PUT", f"/{verb}", f"{verb}_application", f"{verb}s the application", "Paused"),
                partial(_pause, views, changes, Pausable.APPLICATION, is_paused=verb == "pause"),
                statuses=[202],
            )
            for verb in ("pause", "resume")
        ),
        ApiRoute(
            *("POST", "/restart", "restart", "ends the run, and begins another one", "Done"),
            partial(_restart, changes),
            statuses=[202],
        ),
        ApiRoute(
            *("POST", "/messages/{namespace}/{name}/{id}", "send", "sends a message", "Sent"),
            partial(_send, changes),
            statuses=[202, 400, 404, 409, 415],
        ),
        ApiRoute(
            *("GET", "/state/{namespace}/{name}/{id}", "state", "all about an address", "State"),
            partial(_state, views),
            statuses=[404],
        ),
        ApiRoute(
            *("GET", "/topology", "topology", "what flows between the parts", "Topology"),
            partial(_topology, views),
            query=["limit"],
        ),
        ApiRoute(
            *("GET", "/batches", "batches", "where the time of micro-batches went", "Batches"),
            lambda _: ApiAnswer(views.batches()),
        ),
        ApiRoute(
            *("GET", "/failures", "failures", "failures by kind, newest first", "Failures"),
            lambda _: ApiAnswer(views.failures()),
        ),
        *letter_routes(views.definition.module),
        *trace_routes(views.definition),
        ApiRoute(
            *("GET", "/timers", "timers", "when timers are due", "Timers"),
            lambda _: ApiAnswer(views.timers()),
        ),
        ApiRoute(
            *("GET", "/module", "module", "the module files, with findings", "Module"),
            lambda _: ApiAnswer(views.module()),
        ),
        ApiRoute(
            *("GET", "/loggers", "loggers", "the levels of the driver's loggers", "Loggers"),
            lambda _: ApiAnswer(loggers()),
        ),
        ApiRoute(
            *("PUT", "/loggers/{logger}", "set_level", "sets the level of a logger", "Changed"),
            _set_level,
            statuses=[400, 404],
        ),
        ApiRoute(
            *("GET", "/metrics", "metrics", "all metrics, for Prometheus", "text"),
            lambda _: ApiAnswer(metrics_text(views), type=METRICS_TYPE),
            is_lenient=True,
        ),
    ]


def _parts(views: AdminViews, changes: AdminChanges, part: Pausable) -> list[ApiRoute]:
    """Return the requests about ingresses or egresses."""
    kind = part.value
    plural = f"{kind}es"
    is_ingress = part is Pausable.INGRESS
    all_of, one_of = (
        (views.ingresses, views.ingress) if is_ingress else (views.egresses, views.egress)
    )
    names = views.parts.ingresses if is_ingress else views.parts.egresses
    path, schema = f"/{plural}/{{namespace}}/{{name}}", plural.capitalize()
    return [
        ApiRoute(
            "GET", f"/{plural}", plural, f"all {plural}", schema, lambda _: ApiAnswer(all_of())
        ),
        ApiRoute(
            *("GET", path, kind, f"an {kind}", kind.capitalize()),
            lambda request: ApiAnswer(one_of(_known(request.id, kind, names))),
            statuses=[404],
        ),
        *(
            ApiRoute(
                *("PUT", f"{path}/{verb}", f"{verb}_{kind}", f"{verb}s an {kind}", "Paused"),
                partial(_pause, views, changes, part, is_paused=verb == "pause"),
                statuses=[202, 404],
            )
            for verb in ("pause", "resume")
        ),
    ]


def _health(views: AdminViews, request: ApiRequest, *, needs_query: bool) -> ApiAnswer:
    try:
        given = request.query.get("patience")
        patience = _PATIENCE if given is None else parse_duration(given)
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"patience {error}") from None
    reason = views.trouble(patience)
    if needs_query and not reason and not views.figures.is_up:
        reason = "the query does not run yet"
    status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
    return ApiAnswer({"is_healthy": not reason, "reason": reason}, status)


def _pause(
    views: AdminViews,
    changes: AdminChanges,
    part: Pausable,
    request: ApiRequest,
    *,
    is_paused: bool,
) -> ApiAnswer:
    name = ""
    if part is not Pausable.APPLICATION:
        is_ingress = part is Pausable.INGRESS
        names = views.parts.ingresses if is_ingress else views.parts.egresses
        name = _known(request.id, part.value, names)
    has_changed = changes.pause(part, name, is_paused=is_paused)
    content = {"kind": part.value, "name": name, "is_paused": is_paused, "has_changed": has_changed}
    return ApiAnswer(content, HTTPStatus.ACCEPTED if has_changed else HTTPStatus.OK)


def _restart(changes: AdminChanges, _: ApiRequest) -> ApiAnswer:
    changes.restart()
    return ApiAnswer({"done": "restart"}, HTTPStatus.ACCEPTED)


def _send(changes: AdminChanges, request: ApiRequest) -> ApiAnswer:
    names = request.names
    path = names["namespace"], names["name"], names["id"]
    address = changes.send(path, request.content_type, request.body)
    return ApiAnswer({"address": address}, HTTPStatus.ACCEPTED)


def _state(views: AdminViews, request: ApiRequest) -> ApiAnswer:
    names = request.names
    try:
        found = views.state(names["namespace"], names["name"], names["id"])
    except (ConfigurationError, DefinitionError) as error:
        raise RefusedError(HTTPStatus.NOT_FOUND, error.message) from error
    if found is None:
        text = f"the checkpoint has nothing about {request.id}/{names['id']}"
        raise RefusedError(HTTPStatus.NOT_FOUND, text)
    return ApiAnswer(found)


def _topology(views: AdminViews, request: ApiRequest) -> ApiAnswer:
    return ApiAnswer(topology(views, request.limit(_MOST_EDGES)))


def _set_level(request: ApiRequest) -> ApiAnswer:
    set_level(request.names["logger"], request.body)
    return ApiAnswer([request.names["logger"]])


def _known(name: str, kind: str, names: Sequence[str] | frozenset[str]) -> str:
    """Return ``name`` if the application has a part with this name.

    Raises:
        RefusedError: if there is none; the error's text suggests the nearest name.
    """
    if name not in names:
        hint = nearest(name, sorted(names), "known")
        raise RefusedError(HTTPStatus.NOT_FOUND, f"the application has no {kind} {name}{hint}")
    return name
