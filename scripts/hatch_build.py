# SPDX-License-Identifier: Apache-2.0
"""Adds the compiled modules to a wheel, if the variable ``STATEFUN_COMPILE`` is set.

The wheels of a release are built with it. Without it, as in an installation from the sources, a wheel has
Python's modules alone, and needs no compiler.
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledModules(BuildHookInterface[Any]):  # type: ignore[misc] # hatchling is there in builds alone
    """Compiles the hot modules when a wheel is built."""

    def dependencies(self) -> list[str]:
        """Return what has to be installed for the compilation."""
        return ["attrs", "mypy", "setuptools", "types-protobuf"] if self._compiles() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the files to the wheel."""
        if version == "editable" or not self._compiles():
            return
        script = runpy.run_path(str(Path(self.root, "scripts", "compile_engine.py")))
        made = Path(self.root, "build", "wheel")
        script["compile_into"](made)
        for file in made.rglob("*.*"):
            if file.is_file():
                build_data["force_include"][str(file)] = str(file.relative_to(made))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    @staticmethod
    def _compiles() -> bool:
        return os.environ.get("STATEFUN_COMPILE", "0") not in {"", "0"}
