# SPDX-License-Identifier: Apache-2.0
"""A JVM of Spark that outlives the programs that use it, so that each later program starts sooner.

``spark-submit`` starts a JVM, which starts the program with the port and the secret of its gateway in the
environment. Here, the JVM is started once, and each program gets the same variables. See ``launch_gateway`` in
``pyspark/java_gateway.py``, PySpark 4.2.0.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.java_gateway import launch_gateway

_launch: Callable[[], Any] = launch_gateway
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
_QUICK_START = "-XX:TieredStopAtLevel=1"
"""Java's option to compile quickly instead of well, as a program that is developed has little to do."""


class WarmSpark:
    """Starts a JVM of Spark when the first program needs it, and ends it in :meth:`close`.

    Args:
        arguments: options of ``spark-submit``, such as ``--conf`` and ``spark.master=local[2]``.
        environment: the variables of the JVM.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._environment = environment
        self._gateway: Any = None

    def variables(self) -> Mapping[str, str]:
        """Return the environment variables with which a program uses the JVM; start the JVM if it does not run."""
        if self._gateway is None:
            with _environment(
                {
                    _JVM_OPTIONS: _QUICK_START,
                    **self._environment,
                    _ARGUMENTS: shlex.join([*self._arguments, "pyspark-shell"]),
                }
            ):
                self._gateway = _launch()
        parameters = self._gateway.gateway_parameters
        return {
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }

    def end_session(self) -> None:
        """End the session that a program has left in the JVM, if there is one; end a JVM that cannot do it."""
        if self._gateway is None:
            return
        try:
            session = self._gateway.jvm.org.apache.spark.sql.SparkSession.getDefaultSession()
            if session.isDefined():
                session.get().stop()
        except (Py4JError, OSError):
            self.close()

    def close(self) -> None:
        """End the JVM, with everything that programs have left in it."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()  # the JVM ends when its input ends
            gateway.proc.kill()
            gateway.proc.wait()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Add variables to the environment of this process during the block."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
