# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import subprocess
import sys
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


def test_only_records_about_connections_are_kept_back(capsys: pytest.CaptureFixture[str]) -> None:
    """The root logger and its loggers print all other records as they would without a run."""
    with nothing_set_up() as root, silent_connections():
        root.handle(
            root.makeRecord("root", logging.ERROR, "/py4j/java_gateway.py", 1, "no", (), None)
        )
        logging.getLogger("py4j.java_gateway").error("no")
        logging.getLogger("others").warning("a word of others")
        logging.warning("a word of the program")  # noqa: LOG015 - which would add a handler

    assert capsys.readouterr().err == "a word of others\na word of the program\n"


def test_logging_is_as_it_was_after_a_run_that_fails() -> None:
    """No filter, handler or level of the run stays."""
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


def test_runs_that_overlap_restore_all_settings() -> None:
    """Whichever run ends first."""
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


def test_the_jvm_prints_no_trace_while_it_ends() -> None:
    """Such as the trace of a future whose thread pool was stopped before it."""
    program = """
from statefun.runtime.spark_internals.java_source import java_class
from statefun.runtime.spark_internals.jvm import jvm
from statefun.runtime.spark_internals.logs import quieten_jvm

java = jvm().java.lang
source = '''
public class Late extends Thread {
    public void run() {
        try { Thread.sleep(500); } catch (InterruptedException e) { }
        new IllegalStateException("too late").printStackTrace();
        System.out.println("ended");
    }
}
'''
late = java_class("Late", source, java.Thread.currentThread().getContextClassLoader())
java.Runtime.getRuntime().addShutdownHook(late.getConstructors()[0].newInstance(None))
quieten_jvm()
java.System.err.println("before the end")
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    text, _ = process.communicate()  # the JVM holds the pipe until it has ended

    assert process.returncode == 0, text
    assert "before the end" in text
    assert "ended" in text
    assert "too late" not in text
