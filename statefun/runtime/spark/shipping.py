# SPDX-License-Identifier: Apache-2.0
"""Makes the modules that define an application's functions importable for workers.

Functions of the main program are sent to workers by value; functions of modules are imported by each worker.
On this machine, workers find the modules where the program has found them. Modules are sent to other
machines, unless they belong to an installed package.
"""

from __future__ import annotations

import atexit
import hashlib
import inspect
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from pyspark import SparkContext

from statefun.runtime.spark_internals.error_texts import lacking_module
from statefun.sdk.errors import PlatformError
from statefun.sdk.functions import StatefulFunctions

_ADVICE = (
    "with which they start: install statefun wherever workers run, or name a Python that has it in "
    "spark.pyspark.python; modules that --py-files sends arrive too late"
)
_INSTALLED = tuple(
    Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")
)


def lacks_statefun(text: str) -> PlatformError | None:
    """Return an error if Spark's text says that workers cannot import statefun or its packages; else None.

    Every machine with workers needs statefun beforehand: the daemon that starts workers is a module of
    statefun, and it starts before the modules that Spark sends have arrived.
    """
    module = lacking_module(text)
    return (
        PlatformError(f"the Python workers cannot import {module}, {_ADVICE}") if module else None
    )


def import_paths() -> tuple[str, ...]:
    """Return the folders in which this process finds modules, for workers on this machine."""
    return tuple(str(Path(path).absolute()) for path in sys.path)


def send_modules(context: SparkContext, functions: StatefulFunctions) -> None:
    """Send the modules that define functions to all machines of a cluster, except installed modules."""
    submitted = {
        Path(file).stem for file in context.getConf().get("spark.submit.pyFiles", "").split(",")
    }
    for name in sorted(own_modules(functions) - submitted):
        file = Path(inspect.getfile(sys.modules[name]))
        context.addPyFile(str(_zipped(file.parent if file.name == "__init__.py" else file)))


def own_modules(functions: StatefulFunctions) -> set[str]:
    """Return the names of the top-level modules that define functions and are not installed."""
    names = {_top_level(handler.fun) for function in functions for handler in function.handlers} - {
        "__main__",
        "statefun",
    }
    return {name for name in names if _is_own(name)}


def _top_level(call: Callable[..., object]) -> str:
    return str(inspect.unwrap(call).__module__).partition(".")[0]


def _is_own(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and not _is_below(Path(file).resolve(), _INSTALLED)


def _is_below(file: Path, folders: Iterable[Path]) -> bool:
    return any(file.is_relative_to(folder) for folder in folders)


def _zipped(module: Path) -> Path:
    """Pack a module or package into a zip file, the form that Spark sends; its name depends on the content."""
    sources = sorted(module.rglob("*.py")) if module.is_dir() else [module]
    content = {str(source.relative_to(module.parent)): source.read_bytes() for source in sources}
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:16]
    archive = _archives() / f"{module.stem}-{digest}.zip"
    if not archive.exists():
        with zipfile.ZipFile(archive, "w") as file:
            for name, text in content.items():
                file.writestr(name, text)
    return archive


@cache
def _archives() -> Path:
    """Return a temporary folder for the zip files, from which each machine that joins the cluster loads them."""
    folder = Path(tempfile.mkdtemp(prefix="statefun-modules-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
