# SPDX-License-Identifier: Apache-2.0
"""Small Java classes, for tasks that Python cannot do inside the JVM.

Spark 4.2.0 has Janino, with which it compiles the code that it generates. Janino takes Java
without generics and lambdas.
"""

from __future__ import annotations

from typing import Any

from statefun.runtime.spark_internals.jvm import jvm


def java_class(name: str, source: str, parent: Any) -> Any:
    """Return the Java class ``name`` that ``source`` declares; ``parent`` loads classes for it."""
    compiler = jvm().org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent)
    compiler.cook(source)
    return compiler.getClassLoader().loadClass(name)
