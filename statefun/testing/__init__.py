# SPDX-License-Identifier: Apache-2.0
"""Tests of functions and of whole applications, without Spark and Kafka.

:class:`TestContext` calls one function. :class:`InProcessApplication` runs a program with its
module files in this process, with a clock that tests set; :func:`explore` runs a test of such an
application many times, with different orders of messages and with crashes. The plugin for pytest has
the fixture ``statefun_app``, with which the same test also runs on Spark and a real broker.
"""

from __future__ import annotations

from statefun.testing.exploring import ScheduleError, explore
from statefun.testing.in_process import InProcessApplication
from statefun.testing.one_function import TestContext
from statefun.testing.outcomes import DeadLetter, DelayedMessage, PublishedRecord, SentMessage
from statefun.testing.tested import TestedApplication
from statefun.testing.twice import NotDeterministicError

__all__ = [
    "DeadLetter",
    "DelayedMessage",
    "InProcessApplication",
    "NotDeterministicError",
    "PublishedRecord",
    "ScheduleError",
    "SentMessage",
    "TestContext",
    "TestedApplication",
    "explore",
]
