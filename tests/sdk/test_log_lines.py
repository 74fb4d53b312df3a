# SPDX-License-Identifier: Apache-2.0
"""Lines of text and of JSON, and how many of them are shown."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun import Address
from statefun.sdk.current import current_address
from statefun.sdk.function_logger import FunctionLogger
from statefun.sdk.log_limits import LogLimit
from statefun.sdk.log_lines import FunctionLogLimit, JsonLines, TextLines

ADA = Address("test.fns/payment", "Ada")
TRACE = "traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Lines(logging.Handler):
    """Keeps formatted lines."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(self.format(record))


def new_logger() -> logging.Logger:
    """Return the tests' logger without handlers."""
    logger = logging.getLogger("test.lines")
    logger.handlers.clear()
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    return logger


@pytest.fixture
def logger() -> logging.Logger:
    """Return a logger without handlers."""
    return new_logger()


def text_of(logger: logging.Logger, batch: int | None = None) -> Lines:
    """Let a logger format lines of text."""
    formatter = TextLines()
    formatter.batch = batch
    lines = Lines(formatter)
    logger.addHandler(lines)
    return lines


def test_text_names_the_address_the_micro_batch_and_the_fields(logger: logging.Logger) -> None:
    """Words are shown as they are, other text is quoted; a line stays a line."""
    lines = text_of(logger, 12)
    log = FunctionLogger(ADA, None, logger)

    log.info("charged %s", 3)
    log.warning("refused", user="Ada", reason="no money", code=-1, path=None, more="a\nb")
    FunctionLogger(Address("test.fns/payment", "A\nB"), None, logger).info("x")

    log.info("a\nERROR test.fns/payment/root: forged\t%s", "\x1b[2J")

    assert lines.lines.pop() == (
        "INFO test.fns/payment/Ada (batch 12): a\\nERROR test.fns/payment/root: forged\t\\x1b[2J"
    )
    fields = """user=Ada reason="no money" code=-1 path=None more='a\\nb'"""
    assert lines.lines == [
        "INFO test.fns/payment/Ada (batch 12): charged 3",
        f"WARNING test.fns/payment/Ada (batch 12): refused {fields}",
        "INFO test.fns/payment/A\\nB (batch 12): x",
    ]


def test_other_loggers_are_named_beside_the_address_of_the_call(logger: logging.Logger) -> None:
    """Outside of a call, there is no address."""
    lines = text_of(logger)
    token = current_address.set(ADA)
    logger.info("inside")
    current_address.reset(token)
    logger.info("outside")

    assert lines.lines == [
        "INFO test.fns/payment/Ada test.lines: inside",
        "INFO test.lines: outside",
    ]


def test_a_traceback_follows_its_line(logger: logging.Logger) -> None:
    """In JSON it is a member."""
    text, as_json = text_of(logger), Lines(JsonLines())
    logger.addHandler(as_json)
    try:
        raise ValueError("no money")
    except ValueError:
        FunctionLogger(ADA, None, logger).exception("failed")

    first, *others = text.lines[0].splitlines()
    assert first == "ERROR test.fns/payment/Ada: failed"
    assert others[0] == "Traceback (most recent call last):"
    assert others[-1] == "ValueError: no money"
    assert json.loads(as_json.lines[0])["exception"].splitlines() == others


def test_json_has_the_address_the_trace_and_the_fields(logger: logging.Logger) -> None:
    """Members that have no value are left out."""
    formatter = JsonLines()
    lines = Lines(formatter)
    logger.addHandler(lines)
    logger.info("started")
    formatter.batch = 12
    FunctionLogger(ADA, TRACE, logger).info("charged %s", 3, amount=3, to={"name": "Ada"})

    started, charged = map(json.loads, lines.lines)
    for members in (started, charged):
        time = datetime.fromisoformat(members.pop("time"))
        assert time.utcoffset() == timedelta(0)
    assert started == {"level": "INFO", "logger": "test.lines", "message": "started"}
    assert charged == {
        "level": "INFO",
        "logger": "test.lines",
        "message": "charged 3",
        "function": "test.fns/payment",
        "id": "Ada",
        "batch": 12,
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "fields": {"amount": 3, "to": {"name": "Ada"}},
    }


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.tuples(st.text()), inner)
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.from_regex("[a-z_]+", fullmatch=True), VALUES))
def test_each_value_of_a_field_makes_one_line(fields: dict[str, Any]) -> None:
    """Text has no line ends; JSON can be read by a strict reader."""
    logger = new_logger()
    text, as_json = text_of(logger), Lines(JsonLines())
    logger.addHandler(as_json)

    FunctionLogger(ADA, None, logger).info("x", **fields)

    assert text.lines[0].isprintable()
    (line,) = as_json.lines[0].splitlines()
    members = json.loads(line, parse_constant=pytest.fail)
    assert members.get("fields", {}).keys() == fields.keys()


def test_a_field_whose_text_fails_loses_no_line(logger: logging.Logger) -> None:
    """The value is left out; the standard library would print a traceback between the lines instead."""
    text, as_json = text_of(logger), Lines(JsonLines())
    logger.addHandler(as_json)

    class Detached:
        def __repr__(self) -> str:
            raise RuntimeError("detached")

    FunctionLogger(ADA, None, logger).info("charged", row=Detached(), amount=3)
    FunctionLogger(ADA, None, logger).info("charged", row=[Detached(), float("nan")], amount=3)

    shown = "(Detached that cannot be shown: RuntimeError)"
    assert text.lines[0] == f'INFO test.fns/payment/Ada: charged row="{shown}" amount=3'
    first, second = (json.loads(line)["fields"] for line in as_json.lines)
    assert first == {"row": shown, "amount": 3}
    assert second == {"row": "(list that cannot be shown: RuntimeError)", "amount": "3"}


def test_a_place_logs_a_number_of_lines_in_an_interval(logger: logging.Logger) -> None:
    """The next line has the number of those left out; other places and other loggers are not limited."""
    now = 0.0
    limit = FunctionLogLimit(LogLimit(timedelta(seconds=10), 3, lambda: now))
    text = text_of(logger)
    text.addFilter(limit)
    log = FunctionLogger(ADA, None, logger)

    for number in [*range(5), 10, 11]:
        now = 10.0 if number > 9 else 0.0
        log.info("often %s", number)
    for number in range(5):
        logger.info("another %s", number)

    shown = [line.partition(": ")[2] for line in text.lines]
    assert shown[:4] == [
        "often 0",
        "often 1",
        "often 2",
        "often 10 (2 lines from here were left out before)",
    ]
    assert shown[4:] == ["often 11", *(f"another {number}" for number in range(5))]
    assert limit.take_left_out() == []


def test_lines_left_out_are_reported_if_their_place_logs_no_more(logger: logging.Logger) -> None:
    """They are reported once, when the interval has ended."""
    now = 0.0
    limit = FunctionLogLimit(LogLimit(timedelta(seconds=10), 1, lambda: now))
    text_of(logger).addFilter(limit)
    for _ in range(3):
        FunctionLogger(ADA, None, logger).info("x")

    assert limit.take_left_out() == []
    now = 10.0
    ((place, count),) = limit.take_left_out()
    assert place.startswith(f"{__file__}:")
    assert count == 2
    assert limit.take_left_out() == []


def test_stacks_are_shown_where_they_are_asked_for(logger: logging.Logger) -> None:
    """As with the standard library's own formatter."""
    text, json_lines = text_of(logger), Lines(JsonLines())
    logger.addHandler(json_lines)

    logger.warning("slow", stack_info=True)

    [line], [document] = text.lines, map(json.loads, json_lines.lines)
    assert line.startswith("WARNING test.lines: slow\nStack (most recent call last):\n")
    assert document["stack"].startswith("Stack (most recent call last):\n")
    assert __file__ in document["stack"]
