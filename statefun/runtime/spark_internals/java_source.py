# SPDX-License-Identifier: Apache-2.0
"""Compiles small Java classes, for work that only code inside the JVM can do.

Spark 4.2.0 contains the compiler Janino, for the code that Spark generates. Janino compiles
Java without generics and lambdas.
"""

from __future__ import annotations

from typing import Any

from statefun.runtime.spark_internals.jvm import jvm


def java_class(name: str, source: str, parent: Any) -> Any:
    """Compile Java code, and return its class ``name``; the loader ``parent`` finds all other classes."""
    compiler = jvm().org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent)
    compiler.cook(source)
    return compiler.getClassLoader().loadClass(name)
