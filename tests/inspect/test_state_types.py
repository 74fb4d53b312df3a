# SPDX-License-Identifier: Apache-2.0
"""``statefun state types``: what a checkpoint says about the values of its functions."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from statefun import IntType, LongType, StatefulFunctions, StringType, ValueSpec
from statefun.cli import main
from statefun.runtime.checkpoint.declarations import Declarations, with_present
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.known_functions import KnownFunctions, write_functions

CARD = "t.fns/card"
STARTS = [
    (0, {CARD: [ValueSpec("cents", IntType), ValueSpec("owner", StringType)], "t.fns/log": []}),
    (
        7,
        {
            CARD: [
                ValueSpec(
                    "balance",
                    LongType,
                    expire_after_write=timedelta(hours=2),
                    renamed_from="cents",
                    upgrades={IntType: int},
                ),
                ValueSpec("owner", StringType),
            ]
        },
    ),
]


@pytest.fixture
def known(tmp_path: Path) -> str:
    """Return a checkpoint with which two versions of a program were started."""
    declarations: Declarations = {}
    for since, specs in STARTS:
        functions = StatefulFunctions()
        for typename, own in specs.items():
            functions.register(typename, lambda ctx, message: None, own)
        declarations = with_present(declarations, functions, since)
    write_functions(
        Folder.at(tmp_path),
        KnownFunctions(
            frozenset({CARD}),
            {"t.fns/log": 3},
            declarations=declarations,
            names={CARD: ["t.fns/payment-card"]},
        ),
    )
    return str(tmp_path)


def test_each_declaration_has_its_first_micro_batch(
    known: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table has a line for each change, and says how functions were called."""
    assert main(["state", "types", "--checkpoint", known]) == 0

    assert capsys.readouterr().out.splitlines() == [
        (
            "function            value    type                      since batch  reads also                    "
            "expires"
        ),
        "t.fns/log           -        -                         -            -                             -",
        "t.fns/payment-card  cents    io.statefun.types/int     0            -                             -",
        "t.fns/payment-card  cents    (removed)                 7            -                             -",
        "t.fns/payment-card  owner    io.statefun.types/string  0            -                             -",
        (
            "t.fns/payment-card  balance  io.statefun.types/long    7            cents, io.statefun.types/int  "
            "2:00:00 after the last write"
        ),
        "function t.fns/log is not registered any more",
        "function t.fns/payment-card was t.fns/card before, and is stored as t.fns/card",
        "2 functions, 2 values",
    ]


@pytest.mark.parametrize("name", [CARD, "t.fns/payment-card"])
def test_one_function_as_json(known: str, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A function is found by each of its names."""
    assert main(["state", "types", name, "--checkpoint", known, "--json"]) == 0

    (function,) = json.loads(capsys.readouterr().out)["functions"]
    balance = function.pop("values")["balance"]
    assert function == {
        "type": "t.fns/payment-card",
        "former_names": ["t.fns/card"],
        "stored_as": "t.fns/card",
        "registered": True,
    }
    assert balance == {
        "type": "io.statefun.types/long",
        "declarations": [
            {
                "since_batch": 7,
                "type": "io.statefun.types/long",
                "older_types": ["io.statefun.types/int"],
                "renamed_from": ["cents"],
                "expires": "2:00:00 after the last write",
                "secret": False,
            }
        ],
    }


def test_unknown_functions_and_folders_are_refused(
    known: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nearest name is named."""
    assert main(["state", "types", "t.fns/crad", "--checkpoint", known]) == 1
    assert "there is no function t.fns/crad; did you mean" in capsys.readouterr().err
    assert main(["state", "types", "--checkpoint", str(tmp_path / "none")]) == 1
    assert "there is no checkpoint at" in capsys.readouterr().err
