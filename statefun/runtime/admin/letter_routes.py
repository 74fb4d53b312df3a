# SPDX-License-Identifier: Apache-2.0
"""The requests of the admin API about dead letters: what ``statefun dlq`` does, within limits that a driver can bear."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from http import HTTPStatus
from typing import Any

from statefun.module.model import Module
from statefun.runtime.admin.api_route import ApiAnswer, ApiRequest, ApiRoute
from statefun.runtime.http_server import RefusedError
from statefun.runtime.letters.dead_letter import DeadLetter
from statefun.runtime.letters.dead_letters import DeadLetters
from statefun.runtime.letters.letter_ends import EndResult, LetterEnds
from statefun.runtime.letters.letter_filter import LetterFilter, parse_moment
from statefun.runtime.letters.letter_texts import as_json
from statefun.runtime.stored.known_values import nearest
from statefun.sdk.errors import ConfigurationError

_LISTED = 100
"""How many letters a list has if the client does not say how many."""
_MOST = 1000
"""How many letters a list has, and how many letters a request replays, at most."""
_NEWEST = 10_000
"""How many of the newest offsets of each partition are read to find letters."""
_LONG = {"key", "value", "headers", "traceback"}
"""The parts of a letter that lists lack."""
_FILTERS = ("function", "error", "topic", "since", "until")
_PATH = "/dead-letters/{partition}/{offset}"
_TO_TARGET = "to-target"


def letter_routes(module: Module) -> list[ApiRoute]:
    """Return the requests about the dead letters of an application."""
    letters = _Letters(module)
    return [
        ApiRoute(
            *("GET", "/dead-letters", "dead_letters", "dead letters, newest first", "DeadLetters"),
            letters.listing,
            query=[*_FILTERS, "limit"],
            statuses=[400, 404],
        ),
        ApiRoute(
            *("GET", _PATH, "dead_letter", "all parts of a dead letter", "DeadLetter"),
            letters.letter,
            statuses=[404],
        ),
        ApiRoute(
            *("POST", f"{_PATH}/replay", "replay", "sends a dead letter again", "Replayed"),
            letters.replay,
            query=[_TO_TARGET],
            statuses=[400, 404, 409],
        ),
        ApiRoute(
            *("POST", "/dead-letters/replay", "replay_some", "sends dead letters again"),
            *("Replayed", letters.replay_some),
            query=[*_FILTERS, "limit", _TO_TARGET],
            statuses=[400, 404, 409],
        ),
    ]


class _Letters:
    """The dead letters of an application.

    Args:
        module: its ingresses and egresses.
    """

    def __init__(self, module: Module) -> None:
        self._letters = None if module.dead_letters is None else DeadLetters(module)
        self._lock = threading.Lock()

    def listing(self, request: ApiRequest) -> ApiAnswer:
        """Return the newest letters that pass a filter, without their parts that may be long."""
        letters, filter_, limit = self._found, _filter(request), request.limit(_LISTED, _MOST)
        total = 0

        def shown() -> Iterator[tuple[Any, dict[str, Any]]]:
            nonlocal total
            for letter in letters.stream(filter_, _NEWEST):
                total += 1
                facts = {name: each for name, each in as_json(letter).items() if name not in _LONG}
                yield letter.age_order, facts

        with self._lock:
            newest = heapq.nlargest(limit, shown())
        content = {
            "topic": letters.topic,
            "replay_topic": letters.egress.replay_topic,
            "total": total,
            "letters": [facts for _, facts in newest],
        }
        return ApiAnswer(content)

    def letter(self, request: ApiRequest) -> ApiAnswer:
        """Return all parts of a letter."""
        with self._lock:
            return ApiAnswer(as_json(self._letter(request)))

    def replay(self, request: ApiRequest) -> ApiAnswer:
        """Replay a letter."""
        to_target = _to_target(request)
        with self._lock:
            id_ = self._letter(request).id
            result = self._replayed(LetterFilter.of([id_]), to_target=to_target)
        if result.problems:
            raise RefusedError(HTTPStatus.CONFLICT, result.problems[0].message)
        return _answer(result)

    def replay_some(self, request: ApiRequest) -> ApiAnswer:
        """Replay the oldest letters that pass a filter."""
        to_target, filter_, limit = (
            _to_target(request),
            _filter(request),
            request.limit(_MOST, _MOST),
        )
        if filter_.is_empty:
            text = f"say which dead letters are replayed: {', '.join(_FILTERS)}"
            raise RefusedError(HTTPStatus.BAD_REQUEST, text)
        with self._lock:
            found = ((each.age_order, each.id) for each in self._found.stream(filter_, _NEWEST))
            ids = [id_ for _, id_ in heapq.nsmallest(limit, found)]
            if not ids:
                return _answer(EndResult(0))
            return _answer(self._replayed(LetterFilter.of(ids), to_target=to_target))

    @property
    def _found(self) -> DeadLetters:
        """The dead letters, if the application can have any.

        Raises:
            RefusedError: if no egress declares a topic for dead letters.
        """
        if self._letters is None:
            text = "no egress has a deadLetterTopic, so there are no dead letters"
            raise RefusedError(HTTPStatus.NOT_FOUND, text)
        return self._letters

    def _letter(self, request: ApiRequest) -> DeadLetter:
        """Return the letter that the request's path names.

        Raises:
            RefusedError: if there is none; the error's text suggests the nearest id.
        """
        letters = self._found
        id_ = f"{request.names['partition']}/{request.names['offset']}"
        for letter in letters.stream(LetterFilter.of([id_])):
            return letter
        ids = sorted(each.id for each in letters.stream(newest=_NEWEST))
        text = f"no dead letter has the id {id_}, or it was replayed or dropped already"
        raise RefusedError(HTTPStatus.NOT_FOUND, text + nearest(id_, ids, "dead letters"))

    def _replayed(self, filter_: LetterFilter, *, to_target: bool) -> EndResult:
        try:
            return LetterEnds(self._found).replay(filter_, to_target=to_target)
        except ConfigurationError as error:
            raise RefusedError(HTTPStatus.CONFLICT, error.message) from error


def _filter(request: ApiRequest) -> LetterFilter:
    now = datetime.now(timezone.utc)
    given = request.query.get

    def moment(name: str) -> datetime | None:
        text = given(name)
        return None if text is None else parse_moment(text, now)

    try:
        since, until = moment("since"), moment("until")
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from None
    return LetterFilter(None, given("function"), given("error"), given("topic"), since, until)


def _to_target(request: ApiRequest) -> bool:
    text = request.query.get(_TO_TARGET, "false")
    if text not in {"true", "false"}:
        problem = f"{_TO_TARGET} must be true or false, but is {text!r}"
        raise RefusedError(HTTPStatus.BAD_REQUEST, problem)
    return text == "true"


def _answer(result: EndResult) -> ApiAnswer:
    problems = [each.message for each in result.problems]
    return ApiAnswer({"replayed": result.count, "problems": problems})
