# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib
import re
import shutil
import sys
from pathlib import Path

import pytest

from statefun import StatefulFunctions
from statefun.runtime.spark.session import open_session
from statefun.runtime.spark.shipping import lacks_statefun, send_modules

DAEMON = "\nError from python worker:\n"
NO_MODULE = "No module named"


@pytest.mark.spark
def test_modules_of_functions_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module and a package that only the driver can find are imported by a worker."""
    (tmp_path / "sent_module.py").write_text("def f(ctx, message):\n    pass\n")
    (tmp_path / "sent_package").mkdir()
    (tmp_path / "sent_package" / "__init__.py").write_text("")
    (tmp_path / "sent_package" / "inner.py").write_text("def g(ctx, message):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    functions = StatefulFunctions()
    functions.register("t/f", importlib.import_module("sent_module").f)
    functions.register("t/g", importlib.import_module("sent_package.inner").g)
    functions.register("t/installed", shutil.copyfile)  # of an installed one
    context = open_session(debug=False, state_partitions=1).sparkContext
    paths = list(sys.path)

    send_modules(context, functions)

    send_modules(context, functions)  # a second run of the process finds them sent

    sent = sorted(Path(file).name for file in context.listFiles if "sent_" in file)
    assert [re.sub(r"-[0-9a-f]{16}", "", name) for name in sent] == [
        "sent_module.zip",
        "sent_package.zip",
    ]

    def imported(name: str) -> str:
        return str(importlib.import_module(name).__file__)

    found = context.parallelize(["sent_module", "sent_package.inner"], 1).map(imported).collect()
    monkeypatch.setattr(sys, "path", paths)
    assert not any(str(tmp_path) in file for file in found)


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        (
            f"{DAEMON}  python3: Error ... (ModuleNotFoundError: {NO_MODULE} 'statefun')\n",
            "statefun",
        ),
        (f"{DAEMON}  Traceback ...\n  ModuleNotFoundError: {NO_MODULE} 'google.rpc'\n", "google"),
        (
            f"{DAEMON}ModuleNotFoundError: {NO_MODULE} 'a'\nModuleNotFoundError: {NO_MODULE} 'b'",
            "b",
        ),
        (f"{DAEMON}Killed\nPYTHONPATH was:\nModuleNotFoundError: {NO_MODULE} 'statefun'", None),
        (f"Failed to ...:\nModuleNotFoundError: {NO_MODULE} 'orders'\n", None),
    ],
)
def test_workers_without_statefun_are_recognized_by_sparks_text(
    text: str, lacking: str | None
) -> None:
    """A package that statefun needs may be missing, too; a function's module has an error of its own."""
    error = lacks_statefun(text)

    assert (error is not None) is (lacking is not None)
    if error is not None:
        assert error.message.startswith(f"the Python workers cannot import {lacking}, with which")
