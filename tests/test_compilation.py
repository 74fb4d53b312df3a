# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import statefun
from statefun.compilation import MODULES, compiled_folder, source_of
from statefun.sdk.errors import StateDecodeError
from statefun.sdk.primitives import IntType
from statefun.sdk.tracebacks import passes_users_code
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import ValueSpec, value_specs
from statefun.sdk.values import Values

ROOT = Path(__file__).resolve().parent.parent


def _is_compiled(environment: dict[str, str]) -> bool:
    said = subprocess.run(
        [sys.executable, "-c", "import statefun; print(statefun.__compiled__)"],
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return said.strip() == "True"


def test_the_environment_switches_compiled_code_off() -> None:
    """With ``STATEFUN_PURE=1`` the engine runs in Python, whatever has been compiled."""
    assert not _is_compiled({"STATEFUN_PURE": "1"})


def test_what_was_compiled_from_these_sources_is_used() -> None:
    """A checkout runs compiled code if it was compiled from the present sources."""
    assert _is_compiled({"STATEFUN_PURE": ""}) == compiled_folder(ROOT).is_dir()


def test_the_present_sources_compile() -> None:
    """``make setup`` goes on in Python if the sources do not compile: the tests then say so."""
    assert not compiled_folder(ROOT).with_suffix(".failed").exists(), "see build/bootstrap.log"


def _imported() -> set[str]:
    """Return the modules that the compiled modules import, and these."""
    imports = re.compile(r"^\s*from (statefun[\w.]*) import", re.MULTILINE)
    texts = (source_of(module).read_text("utf-8") for module in MODULES)
    return set(MODULES).union(*map(imports.findall, texts))


def test_changed_sources_do_not_run_compiled(tmp_path: Path) -> None:
    """If a module that is compiled, or one that it imports, has changed, older compiled code is not found."""
    shutil.copytree(ROOT / "statefun", tmp_path / "statefun")
    folders = {compiled_folder(tmp_path)}
    sources = [
        source
        for name in _imported()
        if (source := source_of(name, tmp_path)).exists() and source.parent.name != "protocol"
    ]
    for source in sources:
        with source.open("a") as file:
            file.write("# changed\n")
        folders.add(compiled_folder(tmp_path))
    assert len(folders) == 1 + len(sources)


def test_frames_of_compiled_modules_are_no_users_code() -> None:
    """An error that no code of users has caused has no traceback for users, compiled or not."""
    with pytest.raises(StateDecodeError) as caught:
        Values(value_specs([ValueSpec("n", IntType)]), {"n": TypedValue("a/b", b"")}).read("n")
    frames = caught.value.__traceback__
    assert frames is not None
    assert not passes_users_code(caught.value.with_traceback(frames.tb_next))


def test_compiled_modules_exist() -> None:
    """The list names modules of the package, in order, each once."""
    assert sorted(set(MODULES)) == [*MODULES]
    assert all(source_of(module, ROOT).exists() for module in MODULES)


def test_the_package_says_in_which_form_it_runs() -> None:
    """``statefun.__compiled__`` is true if the functions on a message's way are compiled code."""
    assert statefun.__compiled__ == (type(Values.read).__name__ != "function")
