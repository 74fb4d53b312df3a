# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark import accumulators

from statefun.runtime.spark_internals.logs import silent_connections


@contextmanager
def nothing_set_up() -> Iterator[logging.Logger]:
    """Give the root logger as in a program that has not set logging up."""
    logger = logging.getLogger()
    kept = logger.handlers[:]  # those of pytest
    logger.handlers.clear()
    try:
        yield logger
    finally:
        logger.handlers[:] = kept


def test_only_words_about_connections_are_kept_back(capsys: pytest.CaptureFixture[str]) -> None:
    """The root logger and its loggers say the rest as they would without a run."""
    with nothing_set_up() as root, silent_connections():
        root.handle(
            root.makeRecord("root", logging.ERROR, "/py4j/java_gateway.py", 1, "no", (), None)
        )
        logging.getLogger("py4j.java_gateway").error("no")
        logging.getLogger("others").warning("a word of others")
        logging.warning("a word of the program")  # noqa: LOG015 - which would add a handler

    assert capsys.readouterr().err == "a word of others\na word of the program\n"


def test_logging_is_as_it_was_after_a_run_that_fails() -> None:
    """Neither filter nor handler nor level stays behind."""
    with nothing_set_up() as root:
        with pytest.raises(LookupError), silent_connections():
            raise LookupError
        left = (root.handlers[:], root.filters[:], logging.getLogger("py4j").level)

    assert left == ([], [], logging.NOTSET)
    assert "handle_error" not in vars(accumulators.AccumulatorTCPServer)


def test_a_logger_with_a_handler_of_its_own_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Statefun's own logger is one; its status line moves out of the way of its handler alone."""
    logger = logging.getLogger("others.own")
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    try:
        with nothing_set_up(), silent_connections():
            logger.warning("once")
            logging.getLogger("others.own.child").warning("once")
    finally:
        logger.removeHandler(handler)

    assert capsys.readouterr().err == "once\nonce\n"


def test_runs_that_overlap_leave_nothing_behind() -> None:
    """Whichever ends first."""
    with nothing_set_up() as root:
        first, second = silent_connections(), silent_connections()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        between = logging.getLogger("py4j").level
        second.__exit__(None, None, None)
        left = (root.handlers[:], root.filters[:], logging.getLogger("py4j").level)

    assert between > logging.CRITICAL
    assert left == ([], [], logging.NOTSET)
    assert "handle_error" not in vars(accumulators.AccumulatorTCPServer)
