# SPDX-License-Identifier: Apache-2.0
"""Chooses the form of the hot modules: compiled, or Python.

A wheel has each compiled module next to its source. A checkout has them in ``build/compiled``, in a folder
that is named by a digest of the sources and of Python: if a source is changed, or another
commit checked out, the folder has another name, and Python's modules are used. With ``STATEFUN_PURE=1`` in
the environment, they are used in any case.

The choice is made when this module is imported, before the hot modules. It imports no other module of the
package.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

MODULES = (
    "statefun.engine.address_keys",
    "statefun.engine.address_values",
    "statefun.engine.calls",
    "statefun.engine.deserializing",
    "statefun.engine.dispatcher",
    "statefun.engine.effects",
    "statefun.engine.groups",
    "statefun.engine.immediate",
    "statefun.engine.invoker",
    "statefun.engine.own_messages",
    "statefun.engine.plain_states",
    "statefun.engine.sending",
    "statefun.engine.sinks",
    "statefun.engine.span_details",
    "statefun.engine.tallies",
    "statefun.engine.trace_journal",
    "statefun.runtime.dispatch.arrow_path",
    "statefun.runtime.dispatch.evaluation",
    "statefun.runtime.spark_internals.pickled_state",
    "statefun.runtime.spark_internals.state_batches",
    "statefun.sdk.call_context",
    "statefun.sdk.context",
    "statefun.sdk.deadline",
    "statefun.sdk.encoding",
    "statefun.sdk.invocation",
    "statefun.sdk.kafka_parts",
    "statefun.sdk.primitives",
    "statefun.sdk.sent",
    "statefun.sdk.storage",
    "statefun.sdk.values",
    "statefun.windows.open_windows",
    "statefun.windows.window_context",
    "statefun.windows.window_values",
)
"""The modules that are compiled: what each message goes through."""
GROUP = "statefun_compiled"
"""The name of the compiled code of all modules, from which mypyc makes the name of its library."""
LIBRARY = f"{GROUP}__mypyc"
_USED = (
    "engine",
    "module",
    "runtime",
    "runtime/dispatch",
    "runtime/rows",
    "runtime/spark_internals",
    "sdk",
    "windows",
)
"""The packages of these modules and of what they import: compiled code relies on the types of both."""
_PURE = "STATEFUN_PURE"
_PARENT = Path(__file__).parent.parent
_DIGITS = 16


def source_of(module: str, root: Path = _PARENT) -> Path:
    """Return the file with the source of a module, below the folder with the package."""
    return root.joinpath(*module.split(".")).with_suffix(".py")


def compiled_folder(root: Path = _PARENT) -> Path:
    """Return the folder for the compiled modules of a checkout, by the present content of their sources."""
    digest = hashlib.sha256(f"{sys.version} {EXTENSION_SUFFIXES[0]}".encode())
    for source in sorted(
        source for name in _USED for source in root.joinpath("statefun", name).glob("*.py")
    ):
        digest.update(source.read_bytes())
    return root / "build" / "compiled" / digest.hexdigest()[:_DIGITS]


class _Finder(MetaPathFinder):
    """Finds the modules of :data:`MODULES` in the chosen form.

    Args:
        folder: the folder with the compiled modules; None to use Python's.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - a part of the protocol
        target: ModuleType | None = None,  # noqa: ARG002 - as above
    ) -> ModuleSpec | None:
        """Return the spec of a hot module in the chosen form; None for all other modules."""
        if fullname in MODULES and self._folder is None:
            return spec_from_file_location(fullname, source_of(fullname))
        if self._folder is not None and (fullname in MODULES or fullname == LIBRARY):
            file = self._folder.joinpath(*fullname.split("."))
            return spec_from_file_location(fullname, f"{file}{EXTENSION_SUFFIXES[0]}")
        return None


def _choose_form() -> None:
    """Install a finder, so that later imports of hot modules load the chosen form."""
    if os.environ.get(_PURE, "0") not in {"", "0"}:
        sys.meta_path.insert(0, _Finder(None))
    elif (_PARENT / "build" / "compiled").is_dir():
        folder = compiled_folder()
        if folder.is_dir():
            sys.meta_path.insert(0, _Finder(folder))


def is_compiled() -> bool:
    """Return whether the hot modules run as compiled code; one of them must have been imported."""
    return not all(
        str(sys.modules[name].__file__).endswith(".py") for name in MODULES if name in sys.modules
    )


_choose_form()
