# SPDX-License-Identifier: Apache-2.0
"""Collects the results of Spark's jobs, for years, without a list in the JVM that grows with each job.

Based on ``SocketAuthServer.scala`` of Spark 4.2.0 and ``java.io.DeleteOnExitHook`` of Java 17 and 21: PySpark reads the
results of each job from a socket of its own. Spark deletes the file of a Unix socket afterwards, but has asked Java to
delete it at the end of the JVM as well, and Java keeps the path until then: about 105 bytes for each micro-batch.
"""

from __future__ import annotations

import itertools
import logging
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from statefun.runtime.spark_internals.java_source import java_class
from statefun.runtime.spark_internals.jvm import JVM_GONE, JvmError, jvm

T = TypeVar("T")
logger = logging.getLogger("statefun")
_JOBS_PER_SEARCH = 1000
_jobs = itertools.count(1)
_CLASS = "SocketPaths"
_SOURCE = f"""
import java.io.File;
import java.lang.reflect.Field;
import java.util.Iterator;
import java.util.Set;

public class {_CLASS} implements java.util.concurrent.Callable {{
    public Object call() throws Exception {{
        Class hook = Class.forName("java.io.DeleteOnExitHook");
        Field field = hook.getDeclaredField("files");
        field.setAccessible(true);
        int count = 0;
        synchronized (hook) {{  // as the hook's own methods
            Set paths = (Set) field.get(null);
            if (paths != null) {{  // or the JVM is ending
                Iterator each = paths.iterator();
                while (each.hasNext()) {{
                    String path = (String) each.next();
                    if (path.endsWith(".sock") && !new File(path).exists()) {{
                        each.remove();
                        count++;
                    }}
                }}
            }}
        }}
        return Integer.valueOf(count);
    }}
}}
"""


class Results(Protocol[T]):
    """A DataFrame or an RDD."""

    def collect(self) -> list[T]:
        """Run a job, and return its results."""


def collected(results: Results[T]) -> list[T]:
    """Run a job, and return its results, which have to be few; sometimes, forget the sockets of former jobs."""
    found = results.collect()
    if next(_jobs) % _JOBS_PER_SEARCH == 0:
        forget_sockets()
    return found


def forget_sockets() -> int:
    """Make Java forget the paths of Unix sockets whose files are gone; return their number.

    If the JVM does not allow it, nothing changes.
    """
    try:
        return int(_paths().call())
    except JVM_GONE:
        raise
    except (JvmError, TypeError):  # py4j takes a class that does not exist for a package
        logger.debug("Java remembers the path of the socket of each Spark job", exc_info=True)
        return 0


@lru_cache(maxsize=1)
def _paths() -> Any:
    loader = jvm().java.lang.Thread.currentThread().getContextClassLoader()
    return java_class(_CLASS, _SOURCE, loader).getConstructors()[0].newInstance(None)
