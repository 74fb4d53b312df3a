# SPDX-License-Identifier: Apache-2.0
"""Compile the hot modules with mypyc, for a checkout or for a wheel.

``python scripts/compile_engine.py`` compiles for this checkout, into the folder of ``build/compiled`` that
``statefun/compilation.py`` looks for; a folder that is there is left alone, and older ones are removed. It
needs mypy, setuptools and a C compiler.
"""

from __future__ import annotations

import os
import runpy
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONFIGURATION = """
[mypy]
ignore_missing_imports = true
follow_imports = silent
explicit_package_bases = true
[mypy-pyspark.*,pandas.*,pyarrow.*,numpy.*,yaml.*,confluent_kafka.*,aiohttp.*,fastavro.*,pydantic.*]
follow_imports = skip
"""
"""Other packages are Python objects for the compiled code, so that nothing is gained from their types."""


def main() -> None:
    """Compile for this checkout, unless that is done."""
    folder: Path = facts()["compiled_folder"](ROOT)
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        made = Path(name, "made")
        compile_into(made)
        # Under its name, the folder is complete or not there.
        made.rename(folder)
    for other in folder.parent.iterdir():
        if other.is_dir() and other != folder:
            shutil.rmtree(other, ignore_errors=True)
    print(f"compiled into {folder.relative_to(ROOT)}")


def facts() -> dict[str, Any]:
    """Return the names of ``statefun/compilation.py``; its package needs packages that may be missing."""
    return runpy.run_path(str(ROOT / "statefun" / "compilation.py"))


def compile_into(target: Path) -> None:
    """Compile the hot modules; write them, and their common library, below ``target`` by their names."""
    from mypyc.build import mypycify  # noqa: PLC0415 - only this program needs it
    from setuptools import setup  # noqa: PLC0415 - as above

    names = facts()
    with tempfile.TemporaryDirectory() as name, _in_folder(Path(name)):
        # setuptools would read pyproject.toml, and mypyc leaves files beside the sources.
        shutil.copytree(ROOT / "statefun", "statefun", ignore=shutil.ignore_patterns("__pycache__"))
        Path("mypy.ini").write_text(CONFIGURATION, "utf-8")
        paths = [str(Path(*module.split(".")).with_suffix(".py")) for module in names["MODULES"]]
        setup(
            name="statefun",
            packages=[],
            ext_modules=mypycify(
                ["--config-file", "mypy.ini", *paths],
                opt_level="2",
                debug_level="0",
                group_name=names["GROUP"],
            ),
            script_args=["build_ext", "--build-lib", str(target)],
        )


@contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


if __name__ == "__main__":
    main()
