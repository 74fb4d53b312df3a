# SPDX-License-Identifier: Apache-2.0
"""The secret values of the functions for which one function stands, such as ``test.fns/*``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from stored_checkpoint import CHECKPOINTS

from statefun import Context, IntType, Message, StatefulFunctions, StringType, ValueSpec
from statefun.cli import main
from statefun.inspect.repair_plan import Request, planned_changes
from statefun.runtime.checkpoint.declarations import with_present
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT
from statefun.runtime.checkpoint.known_functions import KnownFunctions, write_functions
from statefun.runtime.stored.committed_state import with_state
from statefun.runtime.stored.known_values import KnownValues

ADA = "test.fns/account/Ada"
PLANTED = "reminded"
"""The value that the stored checkpoint has for Ada's ``note``."""


def declaring(typename: str, *, secret: bool) -> StatefulFunctions:
    """Return a function that declares the values of the stored checkpoint."""
    functions = StatefulFunctions()
    specs = [ValueSpec("total", IntType), ValueSpec("note", StringType, secret=secret)]

    @functions.bind(typename, specs)
    def account(_ctx: Context, _message: Message) -> None:
        """Do nothing."""

    return functions


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return a checkpoint whose function ``test.fns/*`` has declared a secret value."""
    folder = shutil.copytree(CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}", tmp_path / "stored")
    declare(folder, declaring("test.fns/*", secret=True))
    return folder


def declare(checkpoint: Path, *starts: StatefulFunctions) -> None:
    """Write what the checkpoint knows after starts with some functions."""
    known = KnownFunctions()
    for since, functions in enumerate(starts):
        registered = frozenset(str(each.typename) for each in functions)
        known = KnownFunctions(
            registered, declarations=with_present(known.declarations, functions, since)
        )
    write_functions(Folder.at(checkpoint), known)


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls"],
        ["ls", "--json"],
        ["show", ADA],
        ["show", ADA, "--json"],
        ["set", ADA, "note", "hunter2", "--dry-run"],
        ["delete", ADA, "note", "--dry-run"],
    ],
    ids=" ".join,
)
def test_they_are_not_shown_without_the_program(
    stored: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """The checkpoint knows the value under the name of the namespace, and its address under its own."""
    assert main(["state", *arguments, "--checkpoint", str(stored)]) == 0

    output = capsys.readouterr().out
    assert PLANTED not in output
    assert "hunter2" not in output
    assert "secret" in output


def test_the_log_of_repairs_does_not_keep_them(stored: Path) -> None:
    """A change says that its value is secret: so the log has no value once it is applied."""
    known = KnownValues.of(Folder.at(stored), None)
    request = Request(ADA, {"note": "hunter2", "total": 5})

    changes = with_state(
        Folder.at(stored), None, lambda state: planned_changes([request], state, known, 0)
    )

    assert {each.name: each.is_secret for each in changes} == {"note": True, "total": False}


def test_they_stay_secret_when_their_function_changes_its_name(stored: Path) -> None:
    """A value that was declared for the namespace is still stored after a function of its own has taken over."""
    declare(
        stored,
        declaring("test.fns/*", secret=True),
        declaring("test.fns/account", secret=False),
    )

    assert KnownValues.of(Folder.at(stored), None).secrets("test.fns/account").names == {"note"}


def test_the_checkpoint_knows_the_types_of_their_values(stored: Path) -> None:
    """They are those of the namespace; a function that is registered by its own name has its own values."""
    assert KnownValues.of(Folder.at(stored), None).types("test.fns/account") == {
        "total": IntType,
        "note": StringType,
    }

    own = StatefulFunctions()
    own.register("test.fns/account", lambda ctx, message: None)
    declare(stored, declaring("test.fns/*", secret=True), own)

    assert KnownValues.of(Folder.at(stored), None).types("test.fns/account") == {}
